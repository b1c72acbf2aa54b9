package kube_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/kube"
)

// written is a RateLimitPolicy as an API server writes it, made so many seconds after others.
func written(name string, second int, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"headgate.io/v1alpha1","kind":"RateLimitPolicy","metadata":{"name":%q,`+
		`"namespace":"x","uid":"u-%s","resourceVersion":"7","generation":1,"creationTimestamp":"2026-01-02T03:04:%02dZ"},`+
		`"spec":%s}`, name, name, second, spec)
}

// The older object wins, whatever order the API server lists them in, and the other one is told what it lost.
func TestMerge(t *testing.T) {
	a := written("b-older", 1, `{"projects":{"acme":"gold"},"rules":[{"endpoint":"GET /a/{id}","limit":1},{"endpoint":"default","limit":2}]}`)
	b := written("a-younger", 2, `{"projects":{"acme":"silver","zeta":"gold"},"rules":[{"endpoint":"GET /a/{other}","limit":9},`+
		`{"endpoint":"GET /a/{id}","limit":3,"subject":"ip"},{"endpoint":"GET /a/{id}","limit":4,"expires":"2030-01-01T00:00:00Z"},`+
		`{"endpoint":"* ","limit":1}]}`)
	c := written("same-time", 2, `{"rules":[{"endpoint":"GET /a/{id}","limit":5,"subject":"ip"}]}`)
	doc, version, lost, err := kube.Merge(a, b, c)
	if err != nil {
		t.Fatal(err)
	}
	limits := []int64{}
	for _, r := range doc.Rules {
		limits = append(limits, r.Limit)
	}
	if !slices.Equal(limits, []int64{1, 2, 3, 4, 1}) {
		t.Errorf("limits %v, want those of the older objects", limits)
	}
	if doc.Projects["acme"] != "gold" || doc.Projects["zeta"] != "gold" {
		t.Errorf("projects %v, want the older object's tier of acme", doc.Projects)
	}
	want := map[string][]string{
		"a-younger": {`spec.projects["acme"] is that of b-older, which is older`,
			"spec.rules[0] (GET /a/{other}) is that of b-older, which is older"},
		"same-time": {"spec.rules[0] (GET /a/{id} per ip) is that of a-younger, which is older"},
	}
	if !reflect.DeepEqual(lost, want) {
		t.Errorf("lost %q, want %q", lost, want)
	}
	if again, same, _, _ := kube.Merge(c, b, a); !reflect.DeepEqual(again, doc) || same != version {
		t.Error("in another order they are another document")
	}
	if _, other, _, _ := kube.Merge(a, b); other == version {
		t.Error("an object less is the same version")
	}
	if doc, _, _, _ := kube.Merge(); doc.Cleared != 0 {
		t.Error("no object is taken for rules that were removed on purpose")
	}
	if doc, _, _, _ := kube.Merge(written("a", 1, `{"rules":[]}`)); doc.Cleared == 0 {
		t.Error("an object without rules is not taken for rules that were removed on purpose")
	}
	if _, _, _, err := kube.Merge(a, written("bad", 3, `{"rules":[{"endpoint":"default","limit":"x"}]}`)); err == nil ||
		!strings.Contains(err.Error(), "RateLimitPolicy x/bad") {
		t.Errorf("an object that cannot be read: %v, want an error for all", err)
	}
}

// What is twice the same in one object is an error of that object, for the compiler to find.
func TestTwiceInOneObject(t *testing.T) {
	one := written("a", 1, `{"rules":[{"endpoint":"default","limit":1},{"endpoint":"default","limit":2}]}`)
	lint := func(d policy.Document) policy.Problems {
		_, problems := policy.Compile(d, policy.CompileOptions{})
		return problems
	}
	all, err := kube.Statuses([]string{one, written("b", 2, `{"rules":[{"endpoint":"UNKNOWN","limit":1}]}`)}, lint,
		false, "policies: a rule is there twice", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"a": {`"findings":[{"severity":"error","code":"duplicate","rule":1,`, `"reason":"Invalid"`, `"rules":0`},
		"b": {`"type":"Accepted","status":"True"`, `"reason":"OtherInvalid"`, `"rules":0`},
	} {
		for _, part := range want {
			if !strings.Contains(all[name], part) {
				t.Errorf("%s says %s, want %s in it", name, all[name], part)
			}
		}
	}
}

func TestParseDSN(t *testing.T) {
	for _, c := range []struct {
		dsn  string
		want kube.Config
		ok   bool
	}{
		{"kubernetes:limits", kube.Config{Namespace: "limits"}, true},
		{"kubernetes:a?server=https://h:6443&token_file=t&ca_file=c",
			kube.Config{Namespace: "a", Server: "https://h:6443", TokenFile: "t", CAFile: "c"}, true},
		{"kubernetes:a?server=http://127.0.0.1:8001", kube.Config{Namespace: "a", Server: "http://127.0.0.1:8001"}, true},
		{"kubernetes:", kube.Config{}, false},
		{"kubernetes:A", kube.Config{}, false},
		{"kubernetes:a/b", kube.Config{}, false},
		{"kubernetes:a?token_file=t", kube.Config{}, false},
		{"kubernetes:a?server=https://h&server=https://i", kube.Config{}, false},
		{"kubernetes:a?servers=https://h", kube.Config{}, false},
		{"kubernetes:a?server=http://h&token_file=t", kube.Config{}, false},
		{"kubernetes:a?server=https://u:p@h", kube.Config{}, false},
		{"kubernetes:a?server=ftp://h", kube.Config{}, false},
	} {
		got, err := kube.ParseDSN(c.dsn)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("ParseDSN(%q) = %+v, %v, want %+v", c.dsn, got, err, c.want)
		}
	}
}

// TestCRD: the definition has the fields of a rule in a file, all of them, and no other.
func TestCRD(t *testing.T) {
	all, err := kube.Objects(kube.CRD)
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	at := any(all[0])
	for _, step := range []any{"spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties",
		"rules", "items", "properties"} {
		if i, ok := step.(int); ok {
			at = at.([]any)[i]
		} else {
			at = at.(map[string]any)[step.(string)]
		}
	}
	properties := at.(map[string]any)
	for f := range reflect.TypeFor[file.Entry]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if properties[name] == nil {
			t.Errorf("a rule has the field %s in a file, and not in the CRD", name)
		}
		delete(properties, name)
	}
	for name := range properties {
		t.Errorf("a rule has the field %s in the CRD, and not in a file", name)
	}
}

func TestManifest(t *testing.T) {
	good := kube.Manifest{Namespace: "a", Name: "b", Image: "r.example/h:v1", Replicas: 2, FailurePolicy: "Fail",
		CertManager: true}
	text, err := good.YAML()
	if err != nil {
		t.Fatal(err)
	}
	all, err := kube.Objects(text)
	if err != nil || len(all) != 10 {
		t.Fatalf("%d objects, %v", len(all), err)
	}
	bad := kube.Manifest{Namespace: "a: {b}", Name: "B", Image: "h\nx: y", FailurePolicy: "Fall", CA: []byte("x")}
	_, err = bad.YAML()
	for _, field := range []string{"namespace", "name", "image", "replicas", "failure-policy", "ca-file"} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+field+" ") {
			t.Errorf("no word of %s in %v", field, err)
		}
	}
}

// served is a Source over an API server that says what answer does.
func served(t *testing.T, answer http.HandlerFunc) *kube.Source {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	source, err := kube.New(kube.Config{Namespace: "x", Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return source.Patient()
}

// What an API server says that cannot be is an error, not rules; and never a long one.
func TestHostileServer(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a refusal": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			fmt.Fprintf(w, `{"message":"no\u001b[31m\n%s"}`, strings.Repeat("x", 10_000))
		}, "answers 403: no"},
		"another place": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "answers 302"},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<html>")
		}, "the list of objects"},
		"an array":   {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") }, "the list of objects"},
		"no version": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, "no resourceVersion"},
		"null": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[null]}`)
		}, "one is null"},
		"more without end": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":"c"},"items":[%s{}]}`, strings.Repeat("{},", 999))
		}, "more than 10000 objects"},
		"a long page": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"x":"`)
			for range 33 {
				io.WriteString(w, strings.Repeat("x", 1<<20))
			}
		}, "longer than 33554432 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := served(t, c.answer).Load(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 ||
				strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("%.700v, want %q", err, c.want)
			}
		})
	}
}

// TestWatch: changes come by the watch; a version that is no longer kept, and an event that cannot be read, lead to a
// list; and what is known stays meanwhile.
func TestWatch(t *testing.T) {
	var lists, watches atomic.Int32
	list := func(limit int32) string {
		return written("a", 1, fmt.Sprintf(`{"rules":[{"endpoint":"default","limit":%d}]}`, limit))
	}
	source := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"},"items":[%s]}`, lists.Add(1)*100, list(lists.Load()))
			return
		}
		n := watches.Add(1)
		if n == 1 && r.URL.Query().Get("resourceVersion") != "100" {
			t.Errorf("watch from %s, want 100", r.URL.RawQuery)
		}
		event := func(kind, object string) {
			fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
			w.(http.Flusher).Flush()
		}
		switch n {
		case 1:
			event("MODIFIED", list(50))
			event("BOOKMARK", `{"metadata":{"resourceVersion":"150"}}`)
		case 2:
			if got := r.URL.Query().Get("resourceVersion"); got != "150" {
				t.Errorf("the second watch is from %s, want the bookmark's 150", got)
			}
			event("ERROR", `{"code":410,"message":"too old"}`)
		default:
			event("DELETED", list(1))
			event("ADDED", list(70))
			<-r.Context().Done()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan int64, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Watch(ctx, func() {
			doc, _, err := source.Load(ctx)
			if err != nil || len(doc.Rules) > 1 {
				t.Errorf("%d rules, %v", len(doc.Rules), err)
			}
			limit := int64(0)
			if len(doc.Rules) == 1 {
				limit = doc.Rules[0].Limit
			}
			changed <- limit
		})
	}()
	for _, want := range []int64{1, 50, 2, 0, 70} {
		if got := <-changed; got != want {
			t.Errorf("limit %d, want %d", got, want)
		}
	}
	cancel()
	<-done
	if n := lists.Load(); n != 2 {
		t.Errorf("%d lists, want one at the start and one after 410", n)
	}
}

// A watch that fails is a loss that is noticed then, and not when the last sign of it is old.
func TestLossIsNoticedAtOnce(t *testing.T) {
	var asked atomic.Int32
	lost := make(chan struct{}, 100)
	source := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
		case 2: // a watch, which ends
		default:
			w.WriteHeader(http.StatusInternalServerError)
			if r.URL.Query().Get("watch") == "" {
				lost <- struct{}{}
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Watch(ctx, func() {})
	}()
	<-lost
	if version, err := source.Version(ctx); err == nil {
		t.Errorf("Version = %s while the API server answers 500, want an error", version)
	}
	cancel()
	<-done
}

// A token that was renewed is used with the next call, and goes nowhere but to the server.
func TestTokenIsReadAnew(t *testing.T) {
	var seen atomic.Pointer[string]
	token := filepath.Join(t.TempDir(), "token")
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization")
		seen.Store(&said)
		w.WriteHeader(500)
	}))
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, pemOf(s.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := kube.New(kube.Config{Namespace: "x", Server: s.URL, TokenFile: token, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []string{"one", "two"} {
		if err := os.WriteFile(token, []byte(now+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := source.Report(t.Context(), nil, kube.InForce{})
		if err != nil { // nothing is known yet
			t.Fatal(err)
		}
		again, err := kube.New(kube.Config{Namespace: "x", Server: s.URL, TokenFile: token, CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Version(t.Context()); err == nil || strings.Contains(err.Error(), now) {
			t.Errorf("%v, want an error without the token", err)
		}
		if got := seen.Load(); got == nil || *got != "Bearer "+now {
			t.Errorf("Authorization %v, want %s", got, now)
		}
	}
}

// FuzzObjects: whatever an API server says is an object, merging and what is said of it does not panic, and stays
// within what the CRD allows.
func FuzzObjects(f *testing.F) {
	f.Add(written("a", 1, `{"rules":[{"endpoint":"default","limit":1}]}`), `{"metadata":{"name":"b"},"spec":{}}`)
	f.Add(`{}`, `{"spec":null,"status":{"conditions":[{"type":"Accepted"}]}}`)
	f.Add(written("é\x00", 1, `{"rules":[{"endpoint":"x"}],"ignore":[{"code":"a","reason":"b"}],"projects":{"":"x"}}`), `null`)
	f.Fuzz(func(t *testing.T, a, b string) {
		lint := func(d policy.Document) policy.Problems {
			_, problems := policy.Compile(d, policy.CompileOptions{})
			return problems
		}
		all, err := kube.Statuses([]string{a, b}, lint, true, "", time.Unix(0, 0))
		if err != nil {
			return
		}
		for _, text := range all {
			var s struct {
				Findings   []struct{ Message string }
				Conditions []struct{ Message string }
			}
			if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Findings) > 20 || len(s.Conditions) != 3 {
				t.Fatalf("%v: %s", err, text)
			}
			for _, f := range s.Findings {
				if len(f.Message) > 1024 {
					t.Errorf("a message of %d bytes", len(f.Message))
				}
			}
		}
		source, err := kube.New(kube.Config{Namespace: "x", Server: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "x"} {
			_ = source.Apply(kind, a)
			_ = source.Apply(kind, b)
		}
	})
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
