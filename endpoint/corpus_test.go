package endpoint_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
)

func readJSON(t testing.TB, file string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// readings returns the paths that each measured server made of each raw target, as raw targets that
// mean just that to it.
func readings(t *testing.T) map[string]map[string]string {
	t.Helper()
	var file struct {
		Cases []map[string]json.RawMessage
	}
	readJSON(t, "path-oracles.json", &file)
	if len(file.Cases) != 107 {
		t.Fatalf("path-oracles.json has %d cases, want 107", len(file.Cases))
	}
	byTarget := make(map[string]map[string]string)
	for _, c := range file.Cases {
		byServer := make(map[string]string)
		for server, raw := range c {
			var view struct{ Path *string }
			if json.Unmarshal(raw, &view) != nil || view.Path == nil || *view.Path == "" {
				continue // refused or redirected, or no server
			}
			byServer[server] = *view.Path
		}
		var target, whatwg string
		for field, to := range map[string]*string{"raw": &target, "whatwg_url_pathname": &whatwg} {
			if err := json.Unmarshal(c[field], to); err != nil {
				t.Fatalf("%s of %s: %v", field, c["raw"], err)
			}
		}
		byServer["whatwg"] = whatwg
		byTarget[target] = byServer
	}
	return byTarget
}

// decodes are the servers whose path is decoded: an escape or a ? in it is text.
var decodes = map[string]bool{
	"nginx_merge_on": true, "nginx_merge_off": true, "go_servemux": true, "go_url": true,
	"apache_encslash_off": true, "apache_encslash_nodecode": false, // the latter leaves %2F, so it is not certain
}

// TestA3CanonicalizationCorpus replays the spellings that nginx, HAProxy, Apache, Go, Envoy and
// browsers were seen to read differently. Each is refused or has the documented canonical form; and
// no two that any of these servers takes for one resource have different forms, hence different
// budgets.
func TestA3CanonicalizationCorpus(t *testing.T) {
	byTarget := readings(t)
	for _, p := range profiles() {
		resource := make(map[[2]string]map[string]string) // server and its path → our form → a target
		for target, byServer := range byTarget {
			checkCanonical(t, p, target)
			path, fault := p.Canonical(target)
			if fault != endpoint.NoFault {
				continue
			}
			if p.EncodedSlash == endpoint.KeepEncodedSlash && strings.Contains(strings.ToLower(target), "%2f") {
				continue // it is for servers that do not decode it before they split; doctor says which do
			}
			for server, theirs := range byServer {
				key := [2]string{server, theirs}
				if resource[key] == nil {
					resource[key] = make(map[string]string)
				}
				resource[key][path] = target
			}
		}
		for key, forms := range resource {
			if len(forms) > 1 {
				t.Errorf("%+v: %s takes these for %q, but they have different canonical forms: %v", p, key[0],
					key[1], forms)
			}
		}
	}
}

// TestA3ServersReadTheSameResource is the stronger half: the path that a server made of a target, asked for directly,
// has the same budget as the target.
func TestA3ServersReadTheSameResource(t *testing.T) {
	p := endpoint.Profile{}
	checked := 0
	for target, byServer := range readings(t) {
		path, fault := p.Canonical(target)
		if fault != endpoint.NoFault {
			continue
		}
		for server, theirs := range byServer {
			direct, ok := spell(theirs, server)
			if !ok {
				continue
			}
			checked++
			if got, fault := p.Canonical(direct); fault == endpoint.NoFault && got != path {
				t.Errorf("Canonical(%q) = %q, but %s reads it as %q, and Canonical(%q) = %q", target, path, server,
					theirs, direct, got)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d readings checked, want 500 or more", checked)
	}
}

// spell returns a target whose path a server would read as theirs, which is noted in the way of path-oracles.json.
func spell(theirs, server string) (target string, ok bool) {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(theirs, `"`, `\"`) + `"`)
	if server == "go_servemux" || server == "go_url" {
		text, err = strconv.Unquote(`"` + theirs + `"`)
	}
	if err != nil {
		return "", false // holds a \ of its own, which is invalid anyway
	}
	if !decodes[server] && strings.Contains(text, "%") {
		return text, true
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || strings.ContainsRune("%?#", rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// result is what a target is read as.
type result struct {
	target string
	path   string
	fault  endpoint.Fault
}

// cves are the results of the requests that got past a rule of some product.
var cves = map[string][]result{
	"CVE-2019-9901": {{"/public/../admin", "/admin", 0}},
	"CVE-2021-29492": {
		{"/x%2f..%2fadmin", "", endpoint.EscapedSlash},
		{"/x%5c..%5cadmin", "", endpoint.EscapedSlash},
	},
	"CVE-2021-31920": {{"//admin", "/admin", 0}},
	"CVE-2021-32779": {{"/admin#x", "", endpoint.RawByte}},
	"CVE-2024-38475": {{"/admin%3fx.php", "/admin%3Fx.php", 0}},
	"CVE-2020-5902":  {{"/tmui/login.jsp/..;/tmui/locallb/workspace/fileRead.jsp", "", endpoint.Parameters}},
	"CVE-2023-32315": {{"/setup/setup-s/%u002e%u002e/%u002e%u002e/log.jsp", "", endpoint.BadEscape}},
	"CVE-2021-34429": {
		{"/%u002e/WEB-INF/web.xml", "", endpoint.BadEscape},
		{"/.%00/WEB-INF/web.xml", "", endpoint.ControlByte},
	},
	"CVE-2019-11510": {
		{"/dana-na/../dana/html5acc/guacamole/../../../../etc/passwd?/dana/html5acc/guacamole/", "/etc/passwd", 0}},
	"CVE-2024-21887/CVE-2023-46805": {{"/api/v1/totp/user-backup-code/../../system/system-information",
		"/api/v1/system/system-information", 0}},
	"CVE-2024-27198": {{"/hax?jsp=/app/rest/server;.jsp", "/hax", 0}},
	"CVE-2025-32431": {{"/service/sub-path/../other-path", "/service/other-path", 0}},
	"CVE-2026-48020": nil, // no request given: TestCanonicalFormsStayCanonicalUnderAPrefix
	"CVE-2026-42272": {
		{"/a%2fb", "", endpoint.EscapedSlash},
		{"/a%2Fb", "", endpoint.EscapedSlash},
	},
	"CVE-2022-21221": {{"/..%5c..", "", endpoint.EscapedSlash}},
	"CVE-2025-54576": {{"/private?x=/public", "/private", 0}},
}

// TestPathConfusionCVEs replays requests that got past a rule of some product.
func TestPathConfusionCVEs(t *testing.T) {
	var file struct {
		Cases []struct{ ID, Request string }
	}
	readJSON(t, "path-confusion-cves.json", &file)
	for _, c := range file.Cases {
		results, ok := cves[c.ID]
		if !ok {
			t.Errorf("%s has no expected result", c.ID)
		}
		for _, r := range results {
			if !strings.Contains(c.Request, strings.TrimSuffix(strings.TrimPrefix(r.target, "/a"), "b")) {
				t.Errorf("%s: target %q is not of %q", c.ID, r.target, c.Request)
			}
			if path, fault := (endpoint.Profile{}).Canonical(r.target); path != r.path || fault != r.fault {
				t.Errorf("%s: Canonical(%q) = %q, %v, want %q, %v", c.ID, r.target, path, fault, r.path, r.fault)
			}
		}
	}
}

// TestReferenceResolution takes the examples of RFC 3986 section 5.4 that a client would send as a target.
func TestReferenceResolution(t *testing.T) {
	var file struct{ Normal, Abnormal [][2]string }
	readJSON(t, "rfc3986-5.4.json", &file)
	p := endpoint.Profile{Params: endpoint.KeepParams}
	checked := 0
	for _, example := range append(file.Normal, file.Abnormal...) {
		reference, resolved := example[0], example[1]
		want, ok := strings.CutPrefix(resolved, "http://a/")
		if !ok || strings.HasPrefix(reference, "http:") {
			continue // another scheme or authority
		}
		want, _, _ = strings.Cut("/"+want, "#")
		want, _, _ = strings.Cut(want, "?")
		target, _, _ := strings.Cut(reference, "#")
		switch {
		case target == "" || target[0] == '?':
			target = "/b/c/d;p" + target
		case target[0] != '/':
			target = "/b/c/" + target
		}
		if want != "/" {
			want = strings.TrimSuffix(want, "/")
		}
		checked++
		if path, fault := p.Canonical(target); path != want || fault != 0 {
			t.Errorf("reference %q: Canonical(%q) = %q, %v, want %q", reference, target, path, fault, want)
		}
	}
	if checked != 39 {
		t.Errorf("checked %d examples, want 39", checked)
	}
}

// operations are the templates of an OpenAPI document.
func operations(t testing.TB, names ...string) (templates []endpoint.Template) {
	t.Helper()
	for _, name := range names {
		var file struct {
			Ops []struct{ Method, Path string }
		}
		readJSON(t, name+".ops.json", &file)
		for _, op := range file.Ops {
			templates = append(templates, parse(t, op.Method+" "+op.Path))
		}
	}
	return templates
}

func parse(t testing.TB, text string) endpoint.Template {
	t.Helper()
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func compile(t testing.TB, p endpoint.Profile, templates ...endpoint.Template) *endpoint.Table {
	t.Helper()
	table, err := endpoint.Compile(templates, p)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// fill returns a path for a template, with the given text for every parameter.
func fill(template endpoint.Template, with string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(template.String(), template.Method()+" "), "{") {
		if _, after, ok := strings.Cut(part, "}"); ok {
			part = with + after
		}
		b.WriteString(part)
	}
	return b.String()
}

func TestOpenAPIDocumentsResolveToThemselves(t *testing.T) {
	for _, tt := range []struct {
		documents  []string
		operations int
	}{
		{[]string{"petstore"}, 19},
		{[]string{"stripe"}, 594},
		{[]string{"digitalocean"}, 659},
		{[]string{"petstore", "stripe", "digitalocean"}, 1272},
	} {
		table := compile(t, endpoint.Profile{}, operations(t, tt.documents...)...)
		if table.Len() != tt.operations {
			t.Errorf("%v: Len() = %d, want %d", tt.documents, table.Len(), tt.operations)
		}
		for id, template := range table.All() {
			want := endpoint.Match{ID: id, Status: endpoint.Known}
			for _, with := range []string{"x", "0b6f4b5e-8a52-4d0d-9a52-2f3a0c1d5e77", "%E2%82%AC", "a%2Bb"} {
				if got := table.Match(template.Method(), fill(template, with)); got != want {
					t.Errorf("%v: Match(%q, %q) = %v, want %v", tt.documents, template.Method(),
						fill(template, with), got, want)
				}
			}
			if got := table.Match("TRACE", fill(template, "x")); got.Status != endpoint.UnknownMethod {
				t.Errorf("%v: Match(TRACE, %q) = %v, want an unknown method", tt.documents, fill(template, "x"), got)
			}
			if got, ok := table.Lookup(template); got != id || !ok {
				t.Errorf("%v: Lookup(%q) = %d, %v, want %d", tt.documents, template, got, ok, id)
			}
		}
	}
}

// TestStaticBesideParameter takes pairs that the documents really have.
func TestStaticBesideParameter(t *testing.T) {
	table := compile(t, endpoint.Profile{}, operations(t, "petstore", "stripe", "digitalocean")...)
	for _, tt := range []struct{ method, target, want string }{
		{"GET", "/v1/customers/search", "GET /v1/customers/search"},
		{"GET", "/v1/customers/cus_1", "GET /v1/customers/{customer}"},
		{"POST", "/v1/customers/search", "POST /v1/customers/{customer}"},
		{"GET", "/pet/findByStatus?status=sold", "GET /pet/findByStatus"},
		{"GET", "/pet/findbystatus", "GET /pet/{petId}"},
		{"GET", "/user/login", "GET /user/login"},
		{"HEAD", "/user/login", "GET /user/login"},
		{"GET", "/v2/account/keys/512190", "GET /v2/account/keys/{ssh_key_identifier}"},
	} {
		m := table.Match(tt.method, tt.target)
		if got := table.Template(m.ID).String(); got != tt.want {
			t.Errorf("Match(%q, %q) = %q (%v), want %q", tt.method, tt.target, got, m.Status, tt.want)
		}
	}
}

// TestPayloadsCreateNoEndpoints sends traversal lists: whatever they match was declared.
func TestPayloadsCreateNoEndpoints(t *testing.T) {
	templates := append(operations(t, "stripe"), parse(t, "GET /api/{file}"), parse(t, "GET /api/files/{path...}"))
	sent := 0
	for _, p := range profiles() {
		table := compile(t, p, templates...)
		seen := make(map[endpoint.Match]bool)
		for _, file := range []string{"payloads-deep_traversal.txt.gz", "payloads-directory_traversal.txt.gz"} {
			payloads := lines(t, file)
			for _, line := range payloads[:race.Fewer(len(payloads))] {
				for _, prefix := range []string{"", "/", "/api/", "/api/files/", "/v1/customers/"} {
					target := prefix + line
					sent++
					checkCanonical(t, p, target)
					m := table.Match("GET", target)
					seen[m] = true
					if (m.ID != endpoint.Unknown) != (m.Status == endpoint.Known) ||
						(m.Fault != endpoint.NoFault) != (m.Status == endpoint.Invalid) ||
						int(m.ID) > table.Len() {
						t.Errorf("Match(GET, %q) = %+v, which contradicts itself", target, m)
					}
				}
			}
		}
		known := 0
		for m := range seen {
			if m.Status == endpoint.Known {
				known++
			}
		}
		if known > 3 {
			t.Errorf("%+v: payloads reach %d templates, want at most the 3 they can spell", p, known)
		}
	}
	if want := race.Fewer(68 * 5 * 1000); sent < want {
		t.Errorf("sent %d payloads, want %d or more", sent, want)
	}
}

func lines(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(z); s.Scan(); {
		all = append(all, s.Text())
	}
	return all
}
