package openapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/openapi"
)

// Whatever a document holds: no panic, either operations or an error, every
// template reads back, and every line of the error names the file.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/petstore-openapi.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(shop))
	f.Add([]byte(oldShop))
	f.Add([]byte(`{"openapi":"3.0.0","servers":[{"url":"/{v}/\\u002f","variables":{"v":{"default":"1"}}}],"paths":{"/a":{"$ref":"#/paths/~1b"},"/b":{"get":{}}}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(dir, "document")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		ops, err := openapi.Load(file)
		if (err == nil) == (len(ops) == 0) {
			t.Fatalf("Load = %d operations, %v, want one of the two", len(ops), err)
		}
		checkRead(t, file, ops, err)
		ops, err = openapi.Routes(file)
		if (err == nil) == (len(ops) == 0) {
			t.Fatalf("Routes = %d operations, %v, want one of the two", len(ops), err)
		}
		checkRead(t, file, ops, err)
	})
}

func checkRead(t *testing.T, file string, ops []openapi.Operation, err error) {
	t.Helper()
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !strings.HasPrefix(line, file+":") {
				t.Errorf("the error says %q, want the file first", line)
			}
		}
	}
	for _, op := range ops {
		again, err := endpoint.ParseTemplate(op.Template.String())
		if err != nil || again != op.Template {
			t.Errorf("template %q reads back as %q, %v", op.Template, again, err)
		}
	}
}
