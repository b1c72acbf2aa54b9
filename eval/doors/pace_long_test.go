//go:build unix && long

package doors

import (
	"path/filepath"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

// The package for JavaScript is one for Deno too: its tests, and against a real gateway and a real aggregator.
func TestDeno(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	env := append(append(paced(t, root), aggregator(t)...), "DENO_DIR="+t.TempDir(),
		"DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1")
	deno := filepath.Join(root, "bin/garden/venv/bin/deno")
	for _, files := range []string{"test/", "with-gateway/fetch.mjs"} {
		packageTest(t, root, "clients/pace-js", []string{deno, "test", "--no-lock", "--no-check", "--allow-all", files},
			env)
	}
}

// mypy has no complaint about the types of clients/pace-python, which says that it has them (py.typed).
func TestTypesOfPython(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, "bin/garden/venv/bin/python")
	packageTest(t, root, "clients/pace-python", []string{python, "-m", "mypy", "--strict", "--cache-dir=/dev/null",
		"headgate_pace"}, nil)
}
