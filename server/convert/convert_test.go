package convert_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/convert"
	"github.com/headgate-io/headgate/server/descriptor"
)

var update = flag.Bool("update", false, "write what conversions give into testdata and docs/coming-over.md")

// folders are the folders of testdata and the formats of their files.
var folders = []struct{ folder, format string }{
	{"nginx", "nginx"}, {"nginx-k8s-policy", "ingress-nginx"}, {"ingress-nginx", "ingress-nginx"}, {"kong", "kong"},
	{"traefik", "traefik"}, {"haproxy", "haproxy"},
}

func read(t testing.TB, path string) convert.File {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return convert.File{Name: filepath.Base(path), Text: text}
}

func templates(t testing.TB, texts ...string) (list []endpoint.Template) {
	t.Helper()
	for _, text := range texts {
		one, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

// said is a Result as a text.
func said(r convert.Result) string {
	var b strings.Builder
	b.WriteString(r.YAML())
	for _, route := range r.Routes {
		fmt.Fprintln(&b, "route", route)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(&b, n)
	}
	fmt.Fprintf(&b, "%d limits\n", r.Limits)
	return b.String()
}

// sound reports rules that cannot be loaded with their routes.
func sound(t testing.TB, r convert.Result, known []endpoint.Template) {
	t.Helper()
	if len(known) == 0 {
		known = templates(t, r.Routes...)
	}
	table, err := endpoint.Compile(known, endpoint.Profile{})
	if err != nil {
		t.Errorf("the routes: %v", err)
		return
	}
	problems := policy.Lint(r.Policy(), policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Errorf("the rules: %v", err)
	}
	for _, p := range problems {
		if p.Code == "no_endpoint" {
			t.Errorf("a rule for no endpoint: %v", p)
		}
	}
}

// TestFiles converts configurations of others, each against what was written of it, and all rules can be loaded.
func TestFiles(t *testing.T) {
	for _, f := range folders {
		paths, err := filepath.Glob(filepath.Join("testdata", f.folder, "*"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", f.folder, paths, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, ".want") {
				continue
			}
			t.Run(path, func(t *testing.T) {
				r, err := convert.Convert(f.format, []convert.File{read(t, path)}, convert.Options{})
				got := ""
				if err != nil {
					got = "error: " + err.Error() + "\n"
				} else {
					sound(t, r, nil)
					got = said(r)
				}
				compare(t, path+".want", got)
			})
		}
	}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("got\n%s\nwant %s (-update writes it)\n%s%v", got, path, want, err)
	}
}

// TestTwoFiles: zones may stand in another file than the limits.
func TestTwoFiles(t *testing.T) {
	r, err := convert.Convert("nginx", []convert.File{
		read(t, "testdata/nginx/govuk-router-rate-limiting.conf"), read(t, "testdata/nginx/govuk-router_include.conf")},
		convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "testdata/govuk.want", said(r))
}

// A file that an editor has begun with a byte order mark is read as without: nginx.conf had no limits then.
func TestAByteOrderMark(t *testing.T) {
	for format, text := range map[string]string{
		"nginx": "http {\r\nlimit_req_zone $binary_remote_addr zone=a:1m rate=5r/s;\r\nlimit_req zone=a;\r\n}\r\n",
		"haproxy": "frontend f\n  stick-table type ip size 1m expire 10s store http_req_rate(10s)\n" +
			"  http-request track-sc0 src\n  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\n",
	} {
		converted := func(text string) (convert.Result, error) {
			return convert.Convert(format, []convert.File{{Name: "f", Text: []byte(text)}}, convert.Options{})
		}
		with, err := converted("\uFEFF" + text)
		without, err2 := converted(text)
		if err != nil || err2 != nil || with.Limits != 1 || said(with) != said(without) {
			t.Errorf("%s with a mark: %v, %s\nwithout: %v, %s", format, err, said(with), err2, said(without))
		}
	}
}

// TestKnownEndpoints: with the endpoints of the API a limit is for those that lie in its location, and in no longer
// one.
func TestKnownEndpoints(t *testing.T) {
	known := templates(t, "GET /health", "GET /api/items", "POST /api/items", "GET /api/items/{id}", "POST /api/login",
		"GET /{page}")
	r, err := convert.Convert("nginx", []convert.File{{Name: "nginx.conf", Text: []byte(`
map $request_method $posts { default ""; POST $binary_remote_addr; }
geo $ours { default 0; 10.0.0.0/8 1; 192.0.2.7 1; }
map $ours $others { 0 $binary_remote_addr; 1 ""; }
limit_req_zone $binary_remote_addr zone=api:1m rate=10r/s;
limit_req_zone $others zone=login:1m rate=6r/m;
limit_req_zone $posts zone=posts:1m rate=1r/s;
server {
  location /api { limit_req zone=api burst=20 nodelay; limit_req zone=posts; }
  location = /api/login { limit_req zone=login burst=4; }
}`)}}, convert.Options{Endpoints: known})
	if err != nil {
		t.Fatal(err)
	}
	sound(t, r, known)
	want := `rules:
  - {endpoint: "POST /api/login", subject: "ip", limit: 6, per: 60s, burst: 5, algorithm: leaky_bucket, name: "login"} # nginx.conf:10 limit_req zone=login burst=4
  - {endpoint: "GET /api/items", subject: "ip", limit: 10, burst: 21, name: "api"} # nginx.conf:9 limit_req zone=api burst=20 nodelay
  - {endpoint: "POST /api/items", subject: "ip", limit: 1, burst: 1, name: "posts"} # nginx.conf:9 limit_req zone=posts
`
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		if !strings.Contains(r.YAML(), line) {
			t.Errorf("no line\n%s\nin\n%s", line, said(r))
		}
	}
	for _, network := range []string{`{endpoint: "*", subject: "ip:10.0.0.0/8", mode: allow}`,
		`{endpoint: "*", subject: "ip:192.0.2.7", mode: allow}`} {
		if !strings.Contains(r.YAML(), network) {
			t.Errorf("%s is missing in\n%s", network, said(r))
		}
	}
	if strings.Contains(r.YAML(), "GET /health") || strings.Contains(r.YAML(), "/{page}") || len(r.Routes) > 0 {
		t.Errorf("endpoints that lie in no location have rules, or there are routes:\n%s", said(r))
	}
}

// A trace of nginx: what was sent when, and what it answered.
type trace struct {
	Zone, Limit string
	Trace       []struct {
		T      int64 `json:"t_ms"`
		Status int
	}
	N         int
	OK        int
	MaxDelay  float64 `json:"max_delay_s"`
	Converted *headgate.Limiter
	now       time.Time
}

// limiter converts the limit of a trace.
func (tr *trace) limiter(t *testing.T) {
	t.Helper()
	limit := tr.Limit
	if strings.HasPrefix(limit, "(") {
		limit = ""
	}
	r, err := convert.Convert("nginx", []convert.File{{Name: "nginx.conf", Text: fmt.Appendf(nil,
		"limit_req_zone $binary_remote_addr zone=z:1m %s;\nserver { limit_req zone=z %s; location / { return 200; "+
			"} }", tr.Zone, limit)}}, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	known := templates(t, "GET /a")
	table, err := endpoint.Compile(known, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	tr.now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	set, problems := policy.Compile(r.Policy(), policy.CompileOptions{Endpoints: table, Now: tr.now})
	if set == nil {
		t.Fatal(problems)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tr.Converted, err = headgate.New(headgate.Options{
		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
		Now: func() time.Time { return tr.now },
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTracesOfNginx: converted limits answer what nginx answered, but for what lies within 5 ms of the moment at which
// the answer turns: the times are those of the client's clock.
func TestTracesOfNginx(t *testing.T) {
	const close = 5 * time.Millisecond
	var file struct {
		Sequential []trace
		Concurrent []trace `json:"concurrent_burst"`
	}
	if err := json.Unmarshal(read(t, "testdata/nginx-limit_req-traces.json").Text, &file); err != nil {
		t.Fatal(err)
	}
	request := headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr("192.0.2.1")}
	all, excused := 0, 0
	for _, tr := range file.Sequential {
		tr.limiter(t)
		start := tr.now
		for i, sent := range tr.Trace {
			all++
			at := start.Add(time.Duration(sent.T) * time.Millisecond)
			tr.now = at
			allowed := tr.Converted.Look(t.Context(), request).Allowed
			if want := sent.Status == 200; allowed != want {
				turn := close
				if allowed {
					turn = -close
				}
				tr.now = at.Add(turn)
				if tr.Converted.Look(t.Context(), request).Allowed != want {
					t.Errorf("%s %s: request %d at %d ms is allowed: %v, nginx answered %d", tr.Zone, tr.Limit, i,
						sent.T, allowed, sent.Status)
				}
				excused++
			}
			if sent.Status == 200 {
				tr.Converted.Check(t.Context(), request)
			}
		}
	}
	if all != 50 || excused > 3 {
		t.Errorf("%d requests, %d of them within %v of the turn, want 50 and 3 at most", all, excused, close)
	}
	for _, tr := range file.Concurrent {
		tr.limiter(t)
		ok, longest := 0, time.Duration(0)
		for range tr.N {
			if d := tr.Converted.Check(t.Context(), request); d.Allowed {
				ok++
				longest = max(longest, d.Wait)
			}
		}
		if ok != tr.OK {
			t.Errorf("%s %s: %d of %d at once pass, nginx let %d", tr.Zone, tr.Limit, ok, tr.N, tr.OK)
		}
		if nginx := time.Duration(tr.MaxDelay * float64(time.Second)); !strings.Contains(tr.Limit, "delay=") &&
			(longest-nginx).Abs() > 50*time.Millisecond {
			t.Errorf("%s %s: the last waits %v, with nginx %v", tr.Zone, tr.Limit, longest, nginx)
		}
	}
}

// TestSyntax: what nginx's own reader refuses is refused with its line.
func TestSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"http {\n":                     "nginx.conf:2: a block does not end, want }",
		"}\n":                          "nginx.conf:1: there is a } too many",
		"a b\n":                        "nginx.conf:2: a does not end, want ; or {",
		"a \"b;\n":                     "nginx.conf:1: a quotation does not end",
		"http { a b }":                 "nginx.conf:1: a does not end, want ; before }",
		"set ${a;":                     "nginx.conf:1: ${ does not end",
		"x_by_lua_block { if {} ":      "nginx.conf:1: a block of Lua does not end, want }",
		strings.Repeat("a { ", 40):     "nginx.conf:1: blocks nest deeper than 32",
		"x_by_lua_block { a = {} }\n}": "nginx.conf:2: there is a } too many",
	} {
		_, err := convert.Convert("nginx", []convert.File{{Name: "nginx.conf", Text: []byte(text)}}, convert.Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := convert.Convert("apache", nil, convert.Options{}); err == nil ||
		!strings.Contains(err.Error(), "want one of haproxy, ingress-nginx, kong, nginx, traefik") {
		t.Errorf("a format that there is not: %v", err)
	}
}

func FuzzConvert(f *testing.F) {
	for i, folder := range folders {
		paths, err := filepath.Glob(filepath.Join("testdata", folder.folder, "*"))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			f.Add(uint8(i), read(f, path).Text)
		}
	}
	f.Fuzz(func(t *testing.T, of uint8, text []byte) {
		format := folders[int(of)%len(folders)].format
		r, err := convert.Convert(format, []convert.File{{Name: "file", Text: text}}, convert.Options{})
		if err != nil {
			return
		}
		if err := policy.Lint(r.Policy(), policy.CompileOptions{}).Err(); err != nil {
			t.Fatalf("%s of %q: %v", format, text, err)
		}
		for _, n := range r.Notes {
			if strings.Contains(n.String(), "\n") {
				t.Fatalf("%s of %q: a note of two lines, %q", format, text, n)
			}
		}
	})
}

// TestTable: the page says of every file what became of it.
func TestTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| file | limits | rules | differ | not carried over |\n|---|---|---|---|---|\n")
	for _, f := range folders {
		paths, err := filepath.Glob(filepath.Join("testdata", f.folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, ".want") {
				continue
			}
			name := f.folder + "/" + filepath.Base(path)
			r, err := convert.Convert(f.format, []convert.File{read(t, path)}, convert.Options{})
			if err != nil {
				fmt.Fprintf(&b, "| %s | refused | | | |\n", name)
				continue
			}
			lost := 0
			for _, n := range r.Notes {
				if n.Severity == convert.Lost {
					lost++
				}
			}
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, r.Limits, len(r.Rules), len(r.Notes)-lost, lost)
		}
	}
	paths, err := filepath.Glob("../descriptor/testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		limits, err := descriptor.Read(path)
		if err != nil {
			fmt.Fprintf(&b, "| envoy/%s | refused | | | |\n", filepath.Base(path))
			continue
		}
		fmt.Fprintf(&b, "| envoy/%s | %d | as they are | 0 | 0 |\n", filepath.Base(path), len(limits.All()))
	}
	const page, begin, end = "../../docs/coming-over.md", "<!-- begin: go test ./convert -run TestTable -update -->\n",
		"<!-- end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	if table == b.String() {
		return
	}
	if !*update {
		t.Fatalf("%s does not say what became of the files (-update writes it):\n%s", page, b.String())
	}
	if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
