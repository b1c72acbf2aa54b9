package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicturesOfLearn: each picture of docs/learn.md is what the command above it draws. After a
// change of what is drawn, -update makes them anew: look at them then.
func TestPicturesOfLearn(t *testing.T) {
	root := repository(t)
	page := filepath.Join(root, "docs", "learn.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, b := range readBlocks(t, page) {
		for _, line := range b.content {
			command, name, ok := strings.Cut(strings.TrimPrefix(line, "$ headgate "), " > ")
			if !ok || !strings.Contains(command, "--svg") {
				continue
			}
			drawn[name] = true
			words, err := exec.Command("bash", "-c", "printf '%s\\n' "+command).Output()
			if err != nil {
				t.Fatal(err)
			}
			got := []byte(must(t, t.TempDir(), strings.Split(strings.TrimSuffix(string(words), "\n"), "\n")...))
			path := filepath.Join(root, "docs", "learn", name)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("docs/learn/%s is not what its command draws, %v: go test ./cmd/headgate -run "+
					"TestPictures -update, in server, and look at it", name, err)
			}
			if !bytes.Contains(text, []byte("(learn/"+name+")")) {
				t.Errorf("docs/learn.md draws %s and does not show it", name)
			}
		}
	}
	there, err := filepath.Glob(filepath.Join(root, "docs", "learn", "*"))
	if err != nil || len(there) != len(drawn) || len(drawn) == 0 {
		t.Errorf("docs/learn holds %v, %v, want the %d pictures of the page", there, err, len(drawn))
	}
}
