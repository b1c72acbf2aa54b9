package file_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
)

var _ policy.Source = (*file.Source)(nil)

const everyField = `{
  "projects": {"acme": "gold", "umbrella": "silver"},
  "rules": [
    {"endpoint":"GET /v1/items/{id}","project":"acme","limit":9223372036854775807,"per":"60s","burst":7,"subject":"principal_ip","mode":"shadow","on_store_loss":"share","expires":"2026-01-31T12:00:00Z","name":"a \"name\" <x>","enforce_percent":25},
    {"endpoint":"GET /v1/items/{id}","tier":"gold","limit":1},
    {"endpoint":"default","limit":1},
    {"endpoint":"*","subject":"ip:192.0.2.0/24","mode":"block"},
    {"endpoint":"GET /health","mode":"allow"}
  ]
}
`

func everyFieldDocument() policy.Document {
	return policy.Document{
		Source:   "p.json",
		Projects: map[string]string{"acme": "gold", "umbrella": "silver"},
		Rules: []policy.Rule{
			{
				Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 9223372036854775807, Per: time.Minute, Burst: 7,
				Subject: policy.SubjectPrincipalIP, Mode: policy.Shadow, OnStoreLoss: policy.LossShare,
				Expires: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), Name: `a "name" <x>`, EnforcePercent: 25,
			},
			{Endpoint: "GET /v1/items/{id}", Tier: "gold", Limit: 1},
			{Endpoint: "default", Limit: 1},
			{Endpoint: "*", Subject: policy.SubjectIP, Only: "ip:192.0.2.0/24", Mode: policy.Block},
			{Endpoint: "GET /health", Mode: policy.Allow},
		},
	}
}

func TestDecode(t *testing.T) {
	doc, err := file.Decode([]byte(everyField), "p.json")
	if want := everyFieldDocument(); err != nil || !reflect.DeepEqual(doc, want) {
		t.Errorf("Decode = %+v, %v\nwant %+v", doc, err, want)
	}
}

func TestEncode(t *testing.T) {
	var b bytes.Buffer
	if err := file.Encode(&b, everyFieldDocument()); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(everyField, `{"acme": "gold", "umbrella": "silver"}`,
		`{"acme":"gold","umbrella":"silver"}`, 1)
	if b.String() != want {
		t.Errorf("Encode wrote\n%s\nwant\n%s", b.String(), want)
	}
}

func TestEncodeEmpty(t *testing.T) {
	var b bytes.Buffer
	if err := file.Encode(&b, policy.Document{}); err != nil {
		t.Fatal(err)
	}
	doc, err := file.Decode(b.Bytes(), "")
	if err != nil || len(doc.Rules) != 0 {
		t.Errorf("Decode(%q) = %+v, %v", b.String(), doc, err)
	}
}

func TestDecodeSeconds(t *testing.T) {
	tests := []struct {
		per  string
		want time.Duration // 0: refused
	}{
		{`60`, time.Minute}, {`"60s"`, time.Minute}, {`"1m"`, time.Minute}, {`"1h30m"`, 90 * time.Minute},
		{`"60"`, time.Minute}, {`"1d"`, 24 * time.Hour}, {`"15min"`, 15 * time.Minute}, {`"0d"`, 0}, {`"1w"`, 0},
		{`0`, 0}, {`-1`, 0}, {`1.5`, 0}, {`1e3`, 0}, {`"0.5s"`, 0}, {`""`, 0}, {`null`, 0}, {`true`, 0}, {`[60]`, 0},
		{`9223372036`, 9223372036 * time.Second}, {`9223372037`, 0}, {`99999999999999999999`, 0},
	}
	for _, tt := range tests {
		doc, err := file.Decode(fmt.Appendf(nil, `{"rules":[{"endpoint":"default","limit":1,"per":%s}]}`, tt.per), "")
		var got time.Duration
		if err == nil {
			got = doc.Rules[0].Per
		}
		if got != tt.want {
			t.Errorf("per %s = %v, %v, want %v", tt.per, got, err, tt.want)
		}
	}
}

// TestDecodeValues: what stands where it should not is named, and what follows
// is still read.
func TestDecodeValues(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"not an object", `[]`, `line 1: document: all of it is a list, want an object with "rules"`},
		{"rules no list", `{"rules": {"a": [1, {}]}}`, `line 1: document: rules is an object, want a list of rules`},
		{"rule no object", `{"rules": [7, null, "x"]}`, "line 1: rules[0]: it is 7, want an object\n" +
			"line 1: rules[1]: it is null, want an object\n" + `line 1: rules[2]: it is "x", want an object`},
		{"nested limit", `{"rules": [{"endpoint": "default", "limit": [[{"a": 1}]]}]}`,
			`line 1: rules[0]: limit is a list, want a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"`},
		{"limit null", `{"rules": [{"endpoint": "default", "limit": null}]}`,
			`line 1: rules[0]: limit is null, want a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"`},
		{"limit one above", `{"rules": [{"endpoint": "default", "limit": 9223372036854775808}]}`,
			`line 1: rules[0]: limit is 9223372036854775808, want a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"`},
		{"limit with an exponent", `{"rules": [{"endpoint": "default", "limit": 1e3}]}`,
			`line 1: rules[0]: limit is 1e3, want a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"`},
		{"tier no text", `{"rules": [], "projects": {"acme": 3}}`,
			`line 1: projects: acme is 3, want the name of a tier`},
		{"project twice", `{"rules": [], "projects": {"a": "x", "a": "y"}}`,
			`line 1: projects: a is given twice, want it once`},
		{"field twice in other letters", `{"rules": [{"endpoint": "default", "limit": 1, "l\u0069mit": 2}]}`,
			`line 1: rules[0]: limit is given twice, want it once`},
		{"rules twice", `{"rules": [], "rules": []}`, `line 1: document: rules is given twice, want it once`},
		{"unknown field", `{"rules": [], "revision": {"rules": [1]}}`,
			`line 1: document: revision is no field of this format, want version, projects, rules or ignore`},
		{"version of zero", `{"version": 0, "rules": []}`,
			`line 1: document: version is 0, want the version that the rules were exported from, 1 or more`},
		{"version as a text", `{"version": "7", "rules": []}`,
			`line 1: document: version is "7", want the version that the rules were exported from, 1 or more`},
		{"strange field", `{"rules": [], "\n": 1}`,
			`line 1: document: "\n" is no field of this format, want version, projects, rules or ignore`},
		{"long field", `{"rules": [], "` + strings.Repeat("x", 99) + `éé": 1}`,
			// no character is cut in two
			`line 1: document: "` + strings.Repeat("x", 99) +
				`…" is no field of this format, want version, projects, rules or ignore`},
		{"more behind", `{"rules": []} {}`,
			`line 1: document: it is no JSON (something follows the document), want a JSON document`},
		{"not UTF-8", "{\"rules\": [], \"\xff\": 1}",
			`line 1: document: it is no JSON (it is not UTF-8), want a JSON document`},
		{"nothing", ``, `line 1: document: it is no JSON (it ends too early), want a JSON document`},
		{"limit with two times", `{"rules": [{"endpoint": "default", "per": 60, "limit": "20/s"}]}`,
			`line 1: rules[0]: per is given, want the time in one place: limit has one, as 20/s does`},
		{"limit in a time on requests under way",
			`{"rules": [{"endpoint": "default", "limit": "5/m", "subject": "in_flight:ip"}]}`,
			`line 1: rules[0]: limit is 5 per 60s, want 5, because so many requests are under way at once for each ip, ` +
				`and none in a time; or subject "ip" for a rate`},
		{"limit without a number", `{"rules": [{"endpoint": "default", "limit": "some/s"}]}`,
			`line 1: rules[0]: limit is "some/s", want a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"`},
		{"all at once", "{\"rules\": [\n{\"endpoint\": 1, \"limit\": 1.5},\n{\"endpoint\": \"default\", \"limit\": " +
			"1, \"mode\": 1, \"name\": false}\n]}",
			"line 2: rules[0]: endpoint is 1, want a template such as \"GET /v1/items/{id}\", or \"default\", " +
				"\"UNKNOWN\" or \"*\"\n" +
				"line 2: rules[0]: limit is 1.5, want a whole number, 1 to 9223372036854775807, or one with a " +
				"time, such as \"20/s\" or \"100/15min\"\n" +
				"line 3: rules[1]: mode is 1, want \"enforce\", \"shadow\", \"allow\" or \"block\"\n" +
				"line 3: rules[1]: name is false, want a text, or no such field"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := file.Decode([]byte(tt.text), "")
			if err == nil || err.Error() != tt.want {
				t.Errorf("Decode(%s)\n got %v\nwant %s", tt.text, err, tt.want)
			}
			if len(doc.Rules) != 0 {
				t.Errorf("Decode returned rules with its error: %+v", doc)
			}
		})
	}
}

func TestDecodeNullIsNone(t *testing.T) {
	doc, err := file.Decode(
		[]byte(`{"rules":[{"endpoint":"default","limit":1,"project":null,"tier":null,"expires":null}]}`), "")
	want := []policy.Rule{{Endpoint: "default", Limit: 1}}
	if err != nil || !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Decode = %+v, %v, want %+v", doc.Rules, err, want)
	}
}

func TestDecodeStopsAtTooManyProblems(t *testing.T) {
	_, err := file.Decode([]byte(`{"rules":[`+strings.Repeat(`1,`, 5000)+`1]}`), "")
	if got := strings.Count(err.Error(), "\n"); got != 100 {
		t.Errorf("Decode reports %d lines, want 100 and the one that says that reading ended", got+1)
	}
}

func TestDecodeErrorsUnwrap(t *testing.T) {
	_, err := file.Decode([]byte(`{"rules":[{"endpoint":"default","limit":1.5}]}`), "p.json")
	var p policy.Problem
	if !errors.As(err, &p) || p.Rule != 0 || p.Field != "limit" || p.Value != "1.5" {
		t.Errorf("errors.As(%v) = %+v, want the problem with the limit of rule 0", err, p)
	}
}

// TestSourceVersion: every change of content shows, including one that leaves
// modification time and size as they are, and a mere touch does not.
func TestSourceVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	s, err := file.NewSource(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Version(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Version without a file = %v, want ErrNotExist", err)
	}
	write := func(limit int, modified time.Time) {
		t.Helper()
		text := fmt.Sprintf(`{"rules":[{"endpoint":"default","limit":%d}]}`, limit)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	version := func() string {
		t.Helper()
		v, err := s.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	now := time.Now()
	write(1, now)
	first := version()
	write(2, now)
	if version() == first {
		t.Error("a change within the clock's resolution does not show")
	}
	write(1, now)
	if version() != first {
		t.Error("the same content has another version")
	}
	old := now.Add(-time.Hour)
	write(1, old)
	if version() != first {
		t.Error("a touch is a change")
	}
	write(3, old.Add(time.Second))
	if version() == first {
		t.Error("a change of content and time does not show")
	}
	doc, v, err := s.Load(t.Context())
	if err != nil || v != version() || doc.Rules[0].Limit != 3 || doc.Source != path {
		t.Errorf("Load = %+v, %q, %v", doc, v, err)
	}
}

// TestSourceBadFileHasAVersion, so that the cache does not read it again until
// it changes.
func TestSourceBadFileHasAVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(path, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := file.NewSource(path)
	if err != nil {
		t.Fatal(err)
	}
	_, v, err := s.Load(t.Context())
	if err == nil || v == "" || !strings.HasPrefix(err.Error(), path+":1: ") {
		t.Errorf("Load = %q, %v, want a version, and an error that names file and line", v, err)
	}
}

// FuzzDecode: never a panic, nothing accepted that is no JSON, and what is
// accepted and sound survives a round trip.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(everyField))
	for _, path := range fixtures(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := file.Decode(data, "fuzz")
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a message")
			}
			return
		}
		if !json.Valid(data) {
			t.Fatalf("Decode accepts what is no JSON: %q", data)
		}
		var b bytes.Buffer
		if err := file.Encode(&b, doc); err != nil {
			t.Fatalf("Encode(%+v): %v", doc, err)
		}
		again, err := file.Decode(b.Bytes(), "fuzz")
		if err != nil {
			t.Fatalf("Decode of what Encode wrote: %v\n%s", err, b.Bytes())
		}
		if doc.Fingerprint() != again.Fingerprint() {
			t.Fatalf("a round trip changes the document\n%+v\n%+v", doc, again)
		}
		policy.Lint(doc, policy.CompileOptions{}) // must not panic
	})
}

func fixtures(f *testing.F) []string {
	paths, err := filepath.Glob("../testdata/*.json")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no documents in ../testdata: %v", err)
	}
	return paths
}

func BenchmarkDecode(b *testing.B) {
	var text bytes.Buffer
	doc := policy.Document{}
	for i := range 10_000 {
		doc.Rules = append(doc.Rules, policy.Rule{
			Endpoint: fmt.Sprintf("GET /v1/service%d/items/{id}", i%100),
			Project:  fmt.Sprint("project-", i/100), Limit: 10,
		})
	}
	if err := file.Encode(&text, doc); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := file.Decode(text.Bytes(), ""); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleDecode() {
	doc, err := file.Decode([]byte(`{
  "projects": {"acme": "gold"},
  "rules": [
    {"endpoint": "POST /v1/login", "subject": "ip", "limit": 5, "per": "60s"},
    {"endpoint": "default", "limit": 50},
    {"endpoint": "default", "tier": "gold", "limit": 500}
  ]
}`), "policies.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range doc.Rules {
		fmt.Println(r.Title(), r.Tier, r.Limit)
	}
	_, err = file.Decode([]byte(`{"rules": [{"endpoint": "default", "limit": 1.5}]}`), "policies.json")
	fmt.Println(err)
	// Output:
	// POST /v1/login per ip  5
	// default  50
	// default gold 500
	// policies.json:1: rules[0]: limit is 1.5, want a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"
}

func ExampleEncode() {
	err := file.Encode(os.Stdout, policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 10, Burst: 20},
		{Endpoint: policy.Default, Limit: 50, Per: time.Minute, Subject: policy.SubjectIP},
	}})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// {
	//   "rules": [
	//     {"endpoint":"GET /v1/items/{id}","limit":10,"burst":20},
	//     {"endpoint":"default","limit":50,"per":"60s","subject":"ip"}
	//   ]
	// }
}

// A limit may stand with its time, wherever that is.
func TestDecodeRates(t *testing.T) {
	doc,
		err := file.Decode(
		[]byte(`{"rules": [{"endpoint": "default", "limit": "20/s"}, {"limit": "100/15min", "burst": 7, "endpoint": "UNKNOWN"}]}`), "")
	want := []policy.Rule{
		{Endpoint: "default", Limit: 20, Per: time.Second},
		{Endpoint: "UNKNOWN", Limit: 100, Per: 15 * time.Minute, Burst: 7},
	}
	if err != nil || !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Decode = %+v, %v, want %+v", doc.Rules, err, want)
	}
}
