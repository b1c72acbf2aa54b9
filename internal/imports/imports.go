// Package imports holds a module to its import table, in a test.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Table says what packages of a module may import. Names are those within the module, "" for its
// own folder.
type Table struct {
	Module string

	// Own is what each package may import of the module. A package that is not there is at fault.
	Own map[string][]string

	// Foreign is what each may import of other modules, as the beginnings of paths.
	Foreign map[string][]string

	// Free are the beginnings of paths that every package may import.
	Free []string
}

type listed struct {
	Dir        string
	ImportPath string
	Imports    []string
}

// Check reads the imports that `go list` reports of the module in the working directory, and fails
// t for each that the table lacks.
func (table *Table) Check(t *testing.T) {
	t.Helper()
	for _, p := range list(t) {
		name, _ := table.within(p.ImportPath)
		may, known := table.Own[name]
		if !known {
			t.Errorf("package %q is not in the import table: add it, and say what it may import", name)
			continue
		}
		for _, path := range p.Imports {
			inside, own := table.within(path)
			switch {
			case own && !slices.Contains(may, inside):
				t.Errorf("package %q imports %q, want only %q: data flows one way", name, path, may)
			case !own && !standard(path) && !begins(path, table.Free) && !begins(path, table.Foreign[name]):
				t.Errorf("package %q imports %q, want the standard library and only %q besides", name, path,
					table.Foreign[name])
			}
		}
	}
}

// within is the name that a package has within the module, if it is one of it.
func (table *Table) within(path string) (string, bool) {
	inside, own := strings.CutPrefix(path, table.Module)
	if inside != "" && inside[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(inside, "/"), own
}

// standard reports whether a path is of the standard library: no domain begins it.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func begins(path string, with []string) bool {
	return slices.ContainsFunc(with, func(one string) bool { return path == one || strings.HasPrefix(path, one+"/") })
}

func list(t *testing.T) (packages []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,Imports", "./...")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		// What a test reads is what `go test` runs it again for.
		if _, err := os.ReadDir(p.Dir); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 2 {
		t.Fatalf("go list found %d packages, want the whole module", len(packages))
	}
	return packages
}
