package main

import (
	"bytes"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading    = regexp.MustCompile(`^#{1,6} (.*)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksLeadSomewhere follows every relative link of every page of the
// repository, its fragment included.
func TestLinksLeadSomewhere(t *testing.T) {
	root := repository(t)
	followed := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata" || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(prose(text), ""), -1) {
			target, err := url.Parse(match[1])
			if err != nil || target.IsAbs() {
				continue
			}
			followed++
			to := path
			if target.Path != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(target.Path))
			}
			if fault := follow(root, to, target.Fragment); fault != "" {
				rel, _ := filepath.Rel(root, path)
				t.Errorf("%s: the link %s %s", rel, match[1], fault)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed == 0 {
		t.Error("no link was found")
	}
}

// follow says what is wrong with a link, or nothing.
func follow(root, to, fragment string) string {
	if rel, err := filepath.Rel(root, to); err != nil || !filepath.IsLocal(rel) {
		return "leads out of the repository"
	}
	info, err := os.Stat(to)
	if err != nil {
		return "leads nowhere"
	}
	if fragment == "" {
		return ""
	}
	if info.IsDir() || filepath.Ext(to) != ".md" {
		return "has a fragment, and its target no headings"
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(prose(text)) {
		if match := heading.FindStringSubmatch(strings.TrimSpace(line)); match != nil && slug(match[1]) == fragment {
			return ""
		}
	}
	return "names a heading that is not there"
}

// slug is the name under which forges link a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// prose is a page without its fenced blocks.
func prose(text []byte) string {
	var b strings.Builder
	inside := false
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("```")) {
			inside = !inside
		} else if !inside {
			b.Write(line)
		}
	}
	return b.String()
}

// TestIndexNamesEveryPage keeps every page within reach of a reader who begins
// at docs/README.md.
func TestIndexNamesEveryPage(t *testing.T) {
	root := repository(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	index := string(text)
	for _, folder := range []string{"", "benchmarks"} {
		found, err := filepath.Glob(filepath.Join(root, "docs", folder, "*.md"))
		if err != nil || len(found) == 0 {
			t.Fatalf("docs/%s: %d pages, %v", folder, len(found), err)
		}
		for _, path := range found {
			name := filepath.Base(path)
			target := strings.TrimPrefix(folder+"/"+name, "/")
			if name != "README.md" && !strings.Contains(index, "]("+target+")") &&
				!strings.Contains(index, "]("+target+"#") {
				t.Errorf("docs/README.md has no link to %s, want one where a reader looks for it", target)
			}
		}
	}
}
