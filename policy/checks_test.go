package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
)

// TestEveryCodeIsACheck: a finding that the list does not have would have no
// text, and could not be accepted.
func TestEveryCodeIsACheck(t *testing.T) {
	known := map[string]bool{}
	for _, check := range policy.Checks() {
		known[check.Code] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	call, found := regexp.MustCompile(`\bc\.(?:rule|document)\((?:Error|Warning|Note), (?:[^",]*, )?"([a-z_]+)"`), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(text, -1) {
			if found++; !known[string(m[1])] {
				t.Errorf("%s reports %q, which is not among the checks of checks.go", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d reports, want those of all checks: the search is wrong", found)
	}
}
