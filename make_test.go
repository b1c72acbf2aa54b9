package headgate_test

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMakeAloneChangesNothing: who types make in a fresh clone is told what there is, and nothing is installed or run.
func TestMakeAloneChangesNothing(t *testing.T) {
	out, err := exec.Command("make", "--no-print-directory", "--dry-run").CombinedOutput()
	if err != nil {
		t.Fatalf("make --dry-run: %v\n%s", err, out)
	}
	if steps := strings.Split(strings.TrimSpace(string(out)), "\n"); len(steps) != 1 || !strings.HasPrefix(steps[0], "awk ") {
		t.Errorf("make alone would run\n%s\nwant the list of targets alone", out)
	}
	out, err = exec.Command("make", "--no-print-directory").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "quick ") || !strings.Contains(string(out), "test ") {
		t.Errorf("make prints\n%s\n%v, want its targets", out, err)
	}
	out, err = exec.Command("make", "--no-print-directory", "--dry-run", "quick").CombinedOutput()
	if err != nil || strings.Contains(string(out), "install") {
		t.Errorf("make quick would run\n%s\n%v, want nothing installed", out, err)
	}
}

// TestMakeFuzzLeavesNoTargetOut holds what scripts/fuzz lists against the targets that Go's own parser finds.
func TestMakeFuzzLeavesNoTargetOut(t *testing.T) {
	out, err := exec.Command("scripts/fuzz", "list").CombinedOutput()
	if err != nil {
		t.Fatalf("scripts/fuzz list: %v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	var want []string
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (path != "." && strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules"):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			want = append(want, filepath.ToSlash(filepath.Dir(path))+" "+f.Name.Name)
			if c := constraints(file); c != "" {
				t.Errorf("%s has %s, which `make fuzz` does not ask for: want %s in a file without", path, c, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(got) < 60 {
		t.Errorf("scripts/fuzz runs\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// constraints is the line by which a file is built at times alone.
func constraints(f *ast.File) string {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if group.End() < f.Package && constraint.IsGoBuild(c.Text) {
				return c.Text
			}
		}
	}
	return ""
}
