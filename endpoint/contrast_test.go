package endpoint_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

var update = flag.Bool("update", false, "write testdata/results.txt and the table of docs/servers.md")

// vectors returns every raw target of path-oracles.json, crs-targets.json, wpt-paths.json and path-confusion-cves.json.
func vectors(t testing.TB) map[string][]string {
	t.Helper()
	var oracles, crs, wpt struct{ Cases []struct{ Raw, URI string } }
	readJSON(t, "path-oracles.json", &oracles)
	readJSON(t, "crs-targets.json", &crs)
	readJSON(t, "wpt-paths.json", &wpt)
	all := make(map[string][]string)
	for name, cases := range map[string][]struct{ Raw, URI string }{"oracles": oracles.Cases, "crs": crs.Cases,
		"wpt": wpt.Cases} {
		for _, c := range cases {
			all[name] = append(all[name], c.Raw+c.URI)
		}
		slices.Sort(all[name])
		all[name] = slices.Compact(all[name])
	}
	for _, results := range cves {
		for _, r := range results {
			all["cves"] = append(all["cves"], r.target)
		}
	}
	slices.Sort(all["cves"])
	return all
}

// TestEveryVectorHasItsResult compares the reading of every vector with the one that was looked at.
func TestEveryVectorHasItsResult(t *testing.T) {
	var b strings.Builder
	all := vectors(t)
	for _, name := range []string{"oracles", "cves", "crs", "wpt"} {
		if len(all[name]) < 16 {
			t.Errorf("%s holds %d targets, want 16 or more", name, len(all[name]))
		}
		fmt.Fprintf(&b, "# %s\n", name)
		for _, target := range all[name] {
			path, fault := endpoint.Profile{}.Canonical(target)
			if fault != endpoint.NoFault {
				path = "invalid: " + fault.String()
			}
			fmt.Fprintf(&b, "%q %s\n", target, path)
		}
	}
	compare(t, "testdata/results.txt", func(string) string { return b.String() })
}

// compare checks that a file is what write makes of it, or makes it so.
func compare(t *testing.T, file string, write func(old string) string) {
	t.Helper()
	old, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := write(string(old))
	if want == string(old) {
		return
	}
	if !*update {
		t.Errorf("%s is not what it would be now; look at what `go test ./endpoint -run %q -update` changes",
			file, t.Name())
		return
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCanonicalFormsStayCanonicalUnderAPrefix: what is left of a canonical path when a proxy strips or adds a prefix
// of whole segments is canonical too, so that nothing has to be normalised again (CVE-2026-48020).
func TestCanonicalFormsStayCanonicalUnderAPrefix(t *testing.T) {
	for _, targets := range vectors(t) {
		for _, p := range profiles() {
			for _, target := range targets {
				checkCanonical(t, p, target)
				path, fault := p.Canonical(target)
				if fault != endpoint.NoFault || path == "/" {
					continue
				}
				if added, fault := p.Canonical("/x" + path); added != "/x"+path || fault != endpoint.NoFault {
					t.Fatalf("%+v.Canonical(%q) = %q, but with /x before it %q, %v", p, target, path, added, fault)
				}
				if i := strings.IndexByte(path[1:], '/'); i >= 0 {
					rest := path[1+i:]
					if stripped, fault := p.Canonical(rest); stripped != rest || fault != endpoint.NoFault {
						t.Fatalf("%+v.Canonical(%q) = %q, but what is left of it, %q, is read as %q, %v", p, target,
							path, rest, stripped, fault)
					}
				}
			}
		}
	}
}

// TestBrowsersSplitNothing: a URL as a page has it, and the path that a browser sends for it, have one canonical form.
func TestBrowsersSplitNothing(t *testing.T) {
	var file struct {
		Cases []struct{ Raw, Pathname string }
	}
	readJSON(t, "wpt-paths.json", &file)
	both := 0
	for _, p := range profiles() {
		for _, c := range file.Cases {
			raw, fault := p.Canonical(c.Raw)
			sent, sentFault := p.Canonical(c.Pathname)
			if fault != endpoint.NoFault || sentFault != endpoint.NoFault {
				continue
			}
			both++
			if raw != sent {
				t.Errorf("%+v: Canonical(%q) = %q, but Canonical(%q), which a browser makes of it, = %q", p, c.Raw, raw,
					c.Pathname, sent)
			}
		}
	}
	if both < 1000 {
		t.Errorf("%d pairs compared, want 1000 or more", both)
	}
}

// shown are the targets of the table in docs/servers.md, for each rule.
var shown = []struct{ setting, target string }{
	{"`encoded_slash`", "/users/a%2fb/posts"},
	{"`params`", "/api/login;v=1"},
	{"`params`", "/api/x/..;/login"},
	{"`case_insensitive`", "/API/login"},
	{"`allow_double_encoding`", "/%2561dmin"},
	{"`repeated_slashes`", "//api/login"},
	{"`dot_segments`", "/api/x/./login"},
	{"`dot_segments`", "/api/x/%2e%2e/login"},
	{"`dot_segments`", "/foo//../bar"},
	{"`dot_segments`", "/a/b/../../../../c"},
	{"`unreserved_escapes`", "/users/%31"},
	{"`bad_utf8`", "/%c0%af"},
	{"`trailing_slash`", "/v1/x/"},
	{"fixed", "/api/x%5c..%5clogin"},
	{"fixed", `/a/..\c`},
	{"fixed", "/api/login#frag"},
	{"fixed", "/admin%00.js"},
	{"fixed", "/foo/bar%1"},
	{"fixed", "/admin%3f/"},
}

var servers = []struct{ name, column string }{
	{"nginx", "nginx_merge_on"}, {"nginx, `merge_slashes off`", "nginx_merge_off"}, {"HAProxy", "haproxy_raw"},
	{"HAProxy, `normalize-uri`", "haproxy_normalized"},
	{"Apache", "apache_encslash_off"}, {"Apache, `NoDecode`", "apache_encslash_nodecode"}, {"ServeMux", "go_servemux"},
	{"Envoy", "envoy_normalize_path"}, {"browsers", ""},
}

const (
	begin = "<!-- begin: go test ./endpoint -run TestContrastTable -update -->\n"
	end   = "<!-- end -->\n"
)

// TestContrastTable keeps the table of what servers were measured to do with the same targets.
func TestContrastTable(t *testing.T) {
	var file struct {
		Cases []map[string]json.RawMessage
	}
	readJSON(t, "path-oracles.json", &file)
	var b strings.Builder
	b.WriteString("| setting | target | Headgate, by default |")
	for _, s := range servers {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(servers)) + "\n")
	for _, row := range shown {
		i := slices.IndexFunc(file.Cases, func(c map[string]json.RawMessage) bool {
			var raw string
			return json.Unmarshal(c["raw"], &raw) == nil && raw == row.target
		})
		if i < 0 {
			t.Fatalf("%q was not measured", row.target)
		}
		path, fault := endpoint.Profile{}.Canonical(row.target)
		fmt.Fprintf(&b, "| %s | %s | %s |", row.setting, quote(row.target), reading(path, fault == endpoint.NoFault))
		for _, s := range servers {
			fmt.Fprintf(&b, " %s |", cell(file.Cases[i], s.column))
		}
		b.WriteString("\n")
	}
	compare(t, "../docs/servers.md", func(old string) string {
		before, after, found := strings.Cut(old, begin)
		_, after, closed := strings.Cut(after, end)
		if !found || !closed {
			t.Fatalf("docs/servers.md does not hold %q and %q", begin, end)
		}
		return before + begin + b.String() + end + after
	})
}

func cell(c map[string]json.RawMessage, column string) string {
	if column == "" {
		var pathname string
		_ = json.Unmarshal(c["whatwg_url_pathname"], &pathname)
		return quote(pathname)
	}
	var view struct {
		Status   int
		Path     *string
		Location *string
	}
	if c[column] == nil || json.Unmarshal(c[column], &view) != nil {
		return ""
	}
	switch {
	case view.Path != nil:
		return quote(*view.Path)
	case view.Location != nil && *view.Location != "":
		return fmt.Sprintf("%d to %s", view.Status, quote(*view.Location))
	}
	return fmt.Sprint(view.Status)
}

func reading(path string, valid bool) string {
	if !valid {
		return "400"
	}
	return quote(path)
}

func quote(path string) string { return "`" + strings.ReplaceAll(path, "|", `\|`) + "`" }
