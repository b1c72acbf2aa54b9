package edge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/wasm"
)

// withPackage is a folder in which JavaScript finds the package headgate-edge, and with copies of files beside it.
func withPackage(t testing.TB, module []byte, files ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	root, err := filepath.Abs("../../clients/edge-js")
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	if err := os.Mkdir(modules, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(modules, "headgate-edge")); err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("limits.wasm", module)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Base(file), content)
	}
	return dir
}

func plainOf(t testing.TB, o wasm.Options) []byte {
	t.Helper()
	module, err := wasm.Build(wasm.Plain, o)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// node runs a script and returns what it prints.
func node(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// inJavaScript is a request as testdata/package.mjs reads it; times are milliseconds.
type inJavaScript struct {
	Method  string `json:"method"`
	Target  string `json:"target"`
	Address string `json:"address"`
	Key     string `json:"key"`
	Origin  string `json:"origin"`
	Now     int64  `json:"now"`
}

type decided struct {
	Status uint32            `json:"status"`
	Body   string            `json:"body"`
	Fields map[string]string `json:"fields"`
}

// TestPackageAnswersAsTheLibrary sends the same requests at the same times through net/http middleware and through the
// package for JavaScript, in each of its ways: statuses, fields and bodies are the same.
func TestPackageAnswersAsTheLibrary(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	rng, texts := rand.New(rand.NewPCG(*seed, 3)), corpus(t)
	set := compile(t, tableOf(t, endpoint.Strictest(), templates...), document(t))
	keys := keysOf(t, "acme", "umbrella", "")
	lib := libraryOf(t, set, keys, headgate.RejectUnknown, identity.Options{})
	lib.now = 1e15
	var asked bytes.Buffer
	var wants []answered
	var said []inJavaScript
	lines := json.NewEncoder(&asked)
	lines.SetEscapeHTML(false)
	for len(wants) < 3000 {
		lib.now += rng.Int64N(2000) >> rng.IntN(12) * 1e6
		method, target := anyRequest(rng, texts)
		r := inJavaScript{Method: method, Target: target, Address: peers[rng.IntN(len(peers))], Now: lib.now / 1e6}
		if rng.IntN(2) == 0 {
			r.Key = keys.texts[rng.IntN(len(keys.texts))]
		}
		var fields []string
		if rng.IntN(4) == 0 {
			r.Origin = "https://shop.example"
			fields = []string{"Origin", r.Origin}
		}
		want, read := lib.ask(method, target, r.Address, r.Key, fields...)
		if !read || strings.ToValidUTF8(target, "") != target {
			continue
		}
		if err := lines.Encode(r); err != nil {
			t.Fatal(err)
		}
		wants, said = append(wants, want), append(said, r)
	}
	dir := withPackage(t, plainOf(t, wasm.Options{Policies: set, Keys: keys.records, Secret: keys.secret,
		RejectUnknown: true}), "testdata/package.mjs")
	if err := os.WriteFile(filepath.Join(dir, "requests"), asked.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	node(t, dir, "package.mjs", "limits.wasm", "requests", "answers")
	text, err := os.ReadFile(filepath.Join(dir, "answers"))
	if err != nil {
		t.Fatal(err)
	}
	byWorker := 0
	for i, line := range strings.Split(string(text), "\n") {
		var got [3]*decided
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		for way, d := range got {
			if d == nil { // no Request has such a target
				continue
			}
			want := wants[i]
			if way == 1 {
				byWorker++
			}
			if said[i].Method == http.MethodHead {
				d.Body = want.body
			}
			if way == 2 && want.status == 0 {
				want.fields = nil // what passes is told nothing
			}
			same(t, fmt.Sprintf("%+v by way %d", said[i], way), answered{d.Status, d.Body, d.Fields}, want)
		}
	}
	t.Logf("%d requests, %d of them by worker()", len(wants), byWorker)
	if byWorker < 1000 {
		t.Error("this shows too little of worker()")
	}
}

// TestPackageItself runs what it is tested with alone, on a module that knows one endpoint.
func TestPackageItself(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "GET /a 10/s burst 20 by ip", "UNKNOWN 1/s by ip")
	o := wasm.Options{Policies: set, RejectUnknown: true}
	dir := withPackage(t, plainOf(t, o), "../../clients/edge-js/test/edge.test.js", "../../examples/edge/lambda.mjs")
	filter, err := wasm.Build(wasm.Filter, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filter.wasm"), filter, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "edge.test.js"), filepath.Join(dir, "edge.test.mjs")); err != nil {
		t.Fatal(err)
	}
	node(t, dir, "--test", "edge.test.mjs")
}
