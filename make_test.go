package headgate_test

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	if steps := strings.Split(strings.TrimSpace(string(out)), "\n"); len(steps) != 1 ||
		!strings.HasPrefix(steps[0], "awk ") {
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
		case d.IsDir() && (path != "." && strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" ||
			name == "node_modules"):
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
				t.Errorf("%s has %s, which `make fuzz` does not ask for: want %s in a file without", path,
					c, f.Name.Name)
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

// constraints is the line by which a file is built at times alone. Make runs on Unix, so that is none.
func constraints(f *ast.File) string {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if group.End() < f.Package && constraint.IsGoBuild(c.Text) && c.Text != "//go:build unix" {
				return c.Text
			}
		}
	}
	return ""
}

// starters start a goroutine, or a server that does.
var starters = map[string]bool{
	"Go": true, "Parallel": true, "AfterFunc": true, "Serve": true, "ServeTLS": true, "ListenAndServe": true,
	"Listen":    true,
	"NewServer": true, "NewTLSServer": true, "NewUnstartedServer": true, "Start": true,
}

// TestStillPackagesStartNoGoroutine: what `make test` leaves to the run without the race detector has nothing to be
// found by it, nor do its tests.
func TestStillPackagesStartNoGoroutine(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^STILL := ((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no STILL")
	}
	packages := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))
	if len(packages) < 20 {
		t.Fatalf("STILL is %q, want more packages", packages)
	}
	for _, dir := range packages {
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s, of STILL, has no Go files: %v", dir, err)
		}
		for _, path := range files {
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, isCall := n.(*ast.CallExpr)
				_, isGo := n.(*ast.GoStmt)
				if isCall {
					if method, ok := call.Fun.(*ast.SelectorExpr); ok {
						isGo = starters[method.Sel.Name]
					}
				}
				if isGo {
					t.Errorf("%v starts a goroutine: take %s off STILL in the Makefile",
						positions.Position(n.Pos()), dir)
				}
				return true
			})
		}
	}
}
