package redis

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A user of the store is allowed what the page says, and what a gateway says that is refused a command: all that the
// scripts call, and nothing that nobody does.
func TestAUserNeedsWhatTheScriptsCall(t *testing.T) {
	command := regexp.MustCompile(`[A-Z]{3,}`)
	words := func(text string) []string {
		return slices.Compact(slices.Sorted(slices.Values(command.FindAllString(text, -1))))
	}
	called := map[string]bool{"INFO": true, "EVAL": true, "EVALSHA": true}
	scripts, err := filepath.Glob("../../bucket/redis/*.lua")
	if err != nil || len(scripts) < 10 {
		t.Fatal(scripts, err)
	}
	call := regexp.MustCompile(`\b(?:p?call|ask)\('([A-Z]+)'`)
	for _, name := range scripts {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range call.FindAllSubmatch(source, -1) {
			called[string(found[1])] = true
		}
	}
	want := slices.Sorted(maps.Keys(called))
	if got := words(needed); !slices.Equal(got, want) {
		t.Errorf("a gateway that is refused a command says %v, want %v", got, want)
	}
	page, err := os.ReadFile("../../docs/shared-store.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(page), "| the commands ")
	row, _, _ = strings.Cut(row, ", on all keys")
	if got := words(row); !slices.Equal(got, want) {
		t.Errorf("docs/shared-store.md says %v, want %v", got, want)
	}
}
