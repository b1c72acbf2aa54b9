package headgate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/headgate-io/headgate"

// allowed is the import table: what each package of this module may import of
// it, besides the standard library. Data flows from left to right (endpoint,
// identity, policy, key, bucket, headgate, doors); an import points left. To
// bend it, edit this table in the same commit and say why.
var allowed = map[string][]string{
	"endpoint":          {},
	"endpoint/pattern":  {"endpoint"}, // templates from the patterns of routers
	"identity":          {},
	"identity/region":   {},
	"rate":              {}, // vocabulary: what a limit is, in exact integers
	"key":               {},
	"body":              {}, // what doors find in bodies; the pipeline never sees one
	"internal/live":     {},
	"internal/steady":   {},
	"internal/problem":  {},
	"policy":            {"endpoint", "rate", "internal/live", "internal/steady"},
	"policy/file":       {"policy"},
	"policy/sql":        {"policy"},
	"bucket":            {"key", "rate"},
	"bucket/memory":     {"bucket", "key", "rate"},
	"bucket/buckettest": {"bucket", "key", "rate", "internal/race"},
	"internal/messages": {},
	"bucket/lease":      {"bucket", "key", "rate", "internal/messages"},
	"bucket/report":     {"bucket", "key", "rate", "internal/messages"},
	"bucket/redis":      {"bucket", "bucket/lease", "bucket/report", "rate"}, // answers questions for leases, and charges reports; a client of the server comes from outside, as one method
	"internal/deadline": {},
	"bucket/scoped":     {"bucket", "bucket/lease", "bucket/report", "key", "rate", "internal/deadline"}, // decides which of the others to ask
	"simulate":          {"bucket", "bucket/lease", "bucket/report", "rate"},
	"":                  {"endpoint", "identity", "policy", "key", "bucket", "rate", "internal/steady"},
	"internal/perrule":  {"policy"},
	"httplimit":         {"", "body", "bucket", "endpoint", "policy", "internal/perrule", "internal/problem"},
	"gateway":           {"", "httplimit", "internal/problem"},
	"proofs":            {}, // no Go but a test

	"internal/mortal":    {},                                       // processes that end with the test that started them
	"internal/freeport":  {},                                       // ports for servers that tests start
	"internal/race":      {},                                       // whether the race detector watches a test
	"internal/redistest": {"internal/freeport", "internal/mortal"}, // real servers for tests
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// TestImportsPointLeft reads the imports that `go list` reports and fails when
// an arrow runs back, or when a package stands outside the table.
func TestImportsPointLeft(t *testing.T) {
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		may, ok := allowed[name]
		if !ok {
			t.Errorf("package %q is not in the import table: add it, and say what it may import", name)
			continue
		}
		for _, imported := range p.Imports {
			inside, ours := strings.CutPrefix(imported, module)
			switch {
			case ours && !contains(may, strings.TrimPrefix(inside, "/")):
				t.Errorf("package %q imports %q, want only %q: data flows one way", name, imported, may)
			case !ours && strings.Contains(strings.Split(imported, "/")[0], "."):
				t.Errorf("package %q imports %q, want the standard library alone", name, imported)
			}
		}
	}
}

// TestRootModuleRequiresNothing pins the promise to the library's users.
func TestRootModuleRequiresNothing(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module {
		t.Fatalf("module is %q, want %q", mod.Module.Path, module)
	}
	for _, r := range mod.Require {
		t.Errorf("the root module requires %s %s, want no requirement at all", r.Path, r.Version)
	}
	if _, err := os.Stat("go.sum"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("go.sum exists (%v), want none", err)
	}
}

func goList(t *testing.T, pattern string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", pattern)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 2 {
		t.Fatalf("go list found %d packages, want the whole module", len(packages))
	}
	return packages
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
