package advisories_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/advisories"
)

// accepted are vulnerabilities of modules in eval, which is never released, and why they reach nothing there.
var accepted = map[string]string{
	"GO-2026-5932": "nothing uses golang.org/x/crypto/openpgp, and there is no fixed version",
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var toolchain = regexp.MustCompile(`(?m)^toolchain (go\S+)$`)

// The modules are built with one release of Go, which has no known vulnerability.
func TestToolchainsAgree(t *testing.T) {
	want := ""
	for _, file := range []string{"go.work", "server/go.mod", "eval/go.mod"} {
		m := toolchain.FindStringSubmatch(read(t, file))
		if m == nil {
			t.Errorf("%s names no toolchain", file)
			continue
		}
		if want == "" {
			want = m[1]
		}
		if m[1] != want {
			t.Errorf("toolchain of %s is %s, want %s as in go.work", file, m[1], want)
		}
	}
	if words := advisories.Known().Words(want); words != "" {
		t.Error(words)
	}
	if words := advisories.Known().Words(runtime.Version()); words != "" {
		t.Errorf("these tests are %s", words)
	}
}

var requirement = regexp.MustCompile(`(?m)^\s*(?:require )?(\S+\.\S+/\S+) (v\S+)`)

var used = regexp.MustCompile(`(?m)^\t\./(\S+)$`)

// No module that is pinned has a known vulnerability, in any module of the workspace but the library, which pins none.
// What is accepted, with its reason, is not for what is shipped as a program.
func TestPinnedModules(t *testing.T) {
	list := advisories.Known()
	modules, files := 0, []string(nil)
	for _, m := range used.FindAllStringSubmatch(read(t, "go.work"), -1) {
		files = append(files, m[1]+"/go.mod")
	}
	if len(files) < 7 {
		t.Errorf("go.work is read as %q, want server, eval and five frameworks at least", files)
	}
	for _, file := range files {
		for _, m := range requirement.FindAllStringSubmatch(read(t, file), -1) {
			modules++
			for _, a := range list.Of(m[1], m[2]) {
				if accepted[a.ID] == "" || file == "server/go.mod" {
					t.Errorf("%s: %s %s has %s: %s; want a fixed version of %+v", file, m[1], m[2], a.ID,
						a.Summary, a.Versions)
				}
			}
		}
	}
	if modules < 60 {
		t.Errorf("%d modules are pinned, want 60 and more: the files are read wrongly", modules)
	}
}

func TestRuntimes(t *testing.T) {
	list := advisories.Known()
	for release, want := range map[string]bool{
		"go1.26.8": true, "go1.26.8 X:nodwarf5": true, "go1.27.1": true, "go1.27rc1": true, "go1.25": true,
		"go1.26.9": false, "go1.26.11": false, "go1.27.2": false, "go1.27.4-custom": false,
		"devel go1.28-abcdef": false,
	} {
		found := false
		for _, a := range list.OfRuntime(release) {
			found = found || a.ID == "GO-2026-6617"
		}
		if found != want {
			t.Errorf("%s has GO-2026-6617: %v, want %v", release, found, want)
		}
	}
	if words := list.Words("go1.26.8"); !strings.HasPrefix(words,
		"built with go1.26.8, which has known vulnerabilities: GO-2026-6617 (HTTP/2 server crash") {
		t.Error(words)
	}
}

// Each entry says enough to be judged and to be found again.
func TestListIsWhole(t *testing.T) {
	list := advisories.Known()
	if _, err := time.Parse(time.DateOnly, list.Taken); err != nil || len(list.Advisories) < 50 {
		t.Errorf("%d advisories, taken %v", len(list.Advisories), err)
	}
	if len(list.Of("github.com/jackc/pgx/v5", "v5.5.0")) == 0 ||
		len(list.Of("github.com/quic-go/quic-go", "v0.54.0")) == 0 {
		t.Error("the list knows nothing of old pgx and quic-go, want what the database knew when it was taken")
	}
	published := regexp.MustCompile(`^20\d\d(-\d\d-\d\d)?$`)
	for _, a := range list.Advisories {
		if !published.MatchString(a.Published) || a.Module == "" || a.Summary == "" || len(a.Versions) == 0 ||
			!strings.HasPrefix(a.ID, "GO-") {
			t.Errorf("%+v", a)
		}
		for _, r := range a.Versions {
			if r.Introduced == "" || r.Fixed == "" && accepted[a.ID] == "" {
				t.Errorf("%s: versions %+v, want a fixed one, or a reason why it is accepted", a.ID, r)
			}
		}
	}
}
