package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

var (
	// pathLike is what stands in backquotes and can only be a file or a folder.
	pathLike = regexp.MustCompile(
		"`([a-z_.][a-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)*(?:/|\\.go|\\.md)|[a-z][a-z0-9_.-]*(?:/[a-z0-9_.-]+)+)`")
	firstRow = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
)

// notPaths look like one and are something else.
var notPaths = map[string]bool{"encoding/json": true, "net/http": true, "testdata/fuzz": true}

// TestPathsExist holds the pages at the root to the files that they name.
func TestPathsExist(t *testing.T) {
	root := repository(t)
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "RATIONALE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, match := range pathLike.FindAllStringSubmatch(prose(text), -1) {
			if notPaths[match[1]] {
				continue
			}
			named++
			there := false
			for _, from := range []string{"", "server", "eval"} { // tables of a module name its packages from there
				_, err := os.Stat(filepath.Join(root, from, filepath.FromSlash(match[1])))
				there = there || err == nil
			}
			if !there {
				t.Errorf("%s: `%s` is no file of the repository", page, match[1])
			}
		}
		if named == 0 {
			t.Errorf("%s names no file, want the test to find some", page)
		}
	}
}

// TestEveryUnitHasARow: the table of units in CONTRIBUTING.md has a row for each algorithm, for whatever else rules
// count and for each kind of message, and names tests, codes of lint, attacks and pages that there are.
func TestEveryUnitHasARow(t *testing.T) {
	root := repository(t)
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text),
		"\n| | lint | explain | attack | twin or oracle | nemesis | replay | page |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[1:]
	var first string
	quoted := regexp.MustCompile("`([^`]+)`")
	tests := testNames(t, root)
	attacks, err := os.ReadFile(filepath.Join(root, "docs", "attacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if len(cells) != 8 {
			t.Fatalf("%d cells in %s, want 8", len(cells), row)
		}
		first += cells[0]
		for i, cell := range cells[1:] {
			if i != 1 && i != 5 && strings.TrimSpace(cell) == "" {
				t.Errorf("an empty cell in %s", row)
			}
			for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
				_, unknown := policy.FindCheck(match[1])
				attack := strings.Contains(string(attacks), "\n| `"+match[1]+"` | ")
				_, err := os.Stat(filepath.Join(root, match[1]))
				if unknown != nil && !attack && err != nil && !tests[match[1]] && match[1] != "attack" {
					t.Errorf("`%s` in the row of%sis no test, no code of lint, no attack and no file", match[1],
						cells[0])
				}
			}
		}
	}
	var want []string
	for a := policy.TokenBucket; a <= policy.Calendar; a++ {
		want = append(want, a.String())
	}
	want = append(want, policy.Concurrency.String(), endpoint.Send, endpoint.Receive, endpoint.SendCall,
		endpoint.ReceiveCall, endpoint.MCP, endpoint.Model)
	for what := policy.CountsUnderWay; ; what++ {
		subject := policy.SubjectPrincipal.Counting(what).String()
		before, ok := strings.CutSuffix(subject, policy.SubjectPrincipal.String())
		if !ok {
			break
		}
		want = append(want, before)
	}
	for _, unit := range want {
		if !strings.Contains(first, "`"+unit+"`") {
			t.Errorf("CONTRIBUTING.md has no row for %s", unit)
		}
	}
}

// testNames are the tests and fuzz targets of the repository.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range function.FindAllSubmatch(text, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestArchitectureNamesEveryPackage: who adds a package says there what it is.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	root := repository(t)
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := func(heading string) string {
		_, after, ok := strings.Cut(string(text), "\n## "+heading+"\n")
		if !ok {
			t.Fatalf("ARCHITECTURE.md has no section %q", heading)
		}
		rows := ""
		before, _, _ := strings.Cut(after, "\n## ")
		for _, match := range firstRow.FindAllStringSubmatch(before, -1) {
			rows += match[1]
		}
		return rows
	}
	for _, module := range []struct{ folder, heading string }{{".", "The import table"},
		{"server", "The server module"}, {"eval", "The eval module"}} {
		rows := section(module.heading)
		for _, name := range packages(t, filepath.Join(root, module.folder)) {
			if !strings.Contains(rows, "`"+name+"`") {
				t.Errorf("ARCHITECTURE.md, %s: no row for `%s`", module.heading, name)
			}
		}
	}
}

// packages lists the folders below a module's root that hold code, as paths
// from there; other modules below it are left out.
func packages(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || path == root {
			return err
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || entry.Name() == "testdata" ||
			strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if !strings.HasSuffix(file, "_test.go") && !bytes.HasPrefix(text, []byte("//go:build ignore")) {
				rel, _ := filepath.Rel(root, path)
				all = append(all, filepath.ToSlash(rel))
				break
			}
		}
		return nil
	})
	if err != nil || len(all) < 5 {
		t.Fatalf("%s: packages %q, %v", root, all, err)
	}
	return all
}
