//go:build unix && long

package doors

import (
	"path/filepath"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

// mypy has no complaint about the types of clients/pace-python, which says that it has them (py.typed).
func TestTypesOfPython(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(root, "bin/garden/venv/bin/python")
	packageTest(t, root, "clients/pace-python", []string{python, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "headgate_pace"}, nil)
}
