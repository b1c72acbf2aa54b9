package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBlocksAreOfAKind holds that nothing stands on a page unchecked: every
// block runs, is a file, is tested code, or is a picture.
func TestBlocksAreOfAKind(t *testing.T) {
	root := repository(t)
	for _, path := range pages(t, root) {
		page := filepath.Base(path)
		for _, b := range readBlocks(t, path) {
			switch b.language {
			case "console", "text":
			case "yaml", "json", "graphql":
				if b.file == "" {
					t.Errorf("%s:%d: a block of %s, want <!-- file: NAME --> before it", page, b.line, b.language)
				}
			case "go", "python", "javascript", "typescript":
				checkCode(t, root, page, b)
			case "sh":
				if page != "README.md" {
					t.Errorf("%s:%d: a block of sh, want console", page, b.line)
				}
			default:
				t.Errorf("%s:%d: a block of %q, want console, text, yaml, json, graphql, go, python, javascript or "+
					"typescript", page, b.line, b.language)
			}
		}
	}
}

// checkCode compares a Go block with the tested code of its name.
func checkCode(t *testing.T, root, page string, b block) {
	t.Helper()
	file, name, _ := strings.Cut(b.code, " ")
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil || name == "" {
		t.Errorf("%s:%d: want <!-- code: FILE NAME --> before the block: %v", page, b.line, err)
		return
	}
	var code []string
	inside, found := false, false
	for _, line := range strings.Split(string(text), "\n") {
		switch strings.TrimPrefix(strings.Replace(strings.TrimSpace(line), "//", "#", 1), "# ") {
		case "begin: " + name:
			inside, found = true, true
		case "end: " + name:
			inside = false
		default:
			if inside {
				code = append(code, line)
			}
		}
	}
	if !found {
		t.Errorf("%s:%d: %s has no line %q", page, b.line, file, "// begin: "+name)
		return
	}
	if got, want := strings.Join(b.content, "\n"), strings.Join(dedent(code), "\n"); got != want {
		t.Errorf("%s:%d: the code is\n%s\n%s has\n%s", page, b.line, got, file, want)
	}
}

// dedent removes the tabs or spaces that all lines begin with, and empty lines at the
// end.
func dedent(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	least := -1
	for _, line := range lines {
		if line != "" {
			if indent := len(line) - len(strings.TrimLeft(line, "\t ")); least < 0 || indent < least {
				least = indent
			}
		}
	}
	out := slices.Clone(lines)
	for i := range out {
		out[i] = out[i][min(max(least, 0), len(out[i])):]
	}
	return out
}
