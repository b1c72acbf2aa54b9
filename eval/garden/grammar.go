package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// grammar makes requests from a seed: those that the routes want, with pieces put in, spelled otherwise or broken.
type grammar struct {
	*rand.Rand
	corpus []string // targets that were written to confuse servers
}

// newGrammar returns the grammar of one of the streams of a seed: every server is asked other requests.
func newGrammar(seed, stream uint64) (*grammar, error) {
	top, err := root()
	if err != nil {
		return nil, err
	}
	g := &grammar{Rand: rand.New(rand.NewPCG(seed, stream))}
	data := filepath.Join(top, "endpoint", "testdata")
	for _, name := range []string{"payloads-deep_traversal.txt.gz", "payloads-directory_traversal.txt.gz"} {
		f, err := os.Open(filepath.Join(data, name))
		if err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(z); lines.Scan(); {
			if line := lines.Text(); line != "" && !strings.ContainsAny(line, " \t\r") {
				g.corpus = append(g.corpus, "/"+strings.TrimPrefix(line, "/"))
			}
		}
		f.Close()
	}
	var oracles struct{ Cases []struct{ Raw string } }
	text, err := os.ReadFile(filepath.Join(data, "path-oracles.json"))
	if err == nil {
		err = json.Unmarshal(text, &oracles)
	}
	for _, c := range oracles.Cases {
		g.corpus = append(g.corpus, c.Raw)
	}
	return g, err
}

var (
	paths = []string{
		"/v1/items", "/v1/items/7", "/v1/items/search", "/v1/items/7/parts/3", "/v1/admin/users", "/v1/admin/users/7",
		"/v1/exports",
		"/v1/getThing", "/public/a", "/public/a/b", "/public", "/rpc", "/rpc", "/login", "/", "/v1", "/nothing",
		"/v1/items/7/parts",
	}
	// joints are put before, after or in place of a slash.
	joints = []string{
		"/", "//", "///", "/./", "/../", "/%2e/", "/%2e%2e/", "/.%2E/", "%2f", "%2F", "%5c", "%5C", "\\", ";", "/;",
		";x", ";x=1/", "/;x/", "%3b", "%3Bx",
		"/..;/", "/.;/", "/%2e%2e;x/", "%00", "%0a", "%20", "+", "%252f", "%252e%252e", "/..%2f", "%2f..%2f", "/x/..",
		"/x/../", "/x/%2e%2e", "/public/..", "/public/../",
		"/a%2fb/../..", "/a;x%2fb/../..", "%c0%af", "%ef%bc%8f", "%e2%80%8b", "#", "%23", "?", "%3f", "/.", "/..",
		"/...", ".json", ".", "%2e", "*", "~", "@", "%40", ":", "%3a", ",", "%2c", "!", "'", "(", "|", "\"", "<", "^",
		"`", "{", "}", "%7b", "[", "]", "%5b",
		"&", "=", "$", "%24", "%", "%zz", "%u002f", "%u2215", "\x80", "\xc3\xa9", "%c3%a9", "%e9", "%ff", "\t",
		"\x01", "\x7f",
	}
	before = []string{"", "", "", "", "", "", "", "", "/", "http://h", "HTTP://h:80", "https://u@h", "x:", "x:http://h",
		"a+b:", "http:", "h:", "//h", ".", "*", "?", "%2f", "\\", "/x?://z", "x:/v1/exports?://z",
		"http:///", "http://h?"}
	after = []string{"", "", "", "", "", "", "/", "/", "//", "/.", "?", "?x", "?x=/../y", ";", ";x", "%20", "%00", ".",
		"..", "/..", "/%2e", "#", "#x", "%2f", "&", "?://h/v1/items"}

	// names and values of queries and forms.
	keys = []string{
		"action", "action", "action", "%61ction", "actio%6e", "Action", "ACTION", "action[]", "action[0]", "[action]",
		"[action]x", "[action]z[0]", "[action].", "[[action]]", "action]", "]action", "action]x", "action[x]y",
		"[]action", "action[", "action.", "action.x", ".action", "_action", "!action", "+action", "action+",
		"%20action", "action%20", "action%00", "action%00x", "%2561ction", "act%ef%bd%89on", "action%09", "a[action]",
		"action%5b%5d", "%5Baction%5D", "x", "y", "actions", "action;x", "x;action",
		"action%u0061", "%61%63%74%69%6f%6e", "__proto__[action]", "action[login]", "action[==]", "user[action]", "&",
		"=", "%26", "%3d",
	}
	values = []string{"login", "login", "login", "log%69n", "LOGIN", "%6cogin", "login%00", "login+", "+login",
		"login%20", "%20login", "logout", "", "login;x", "login&x", "%256cogin", "login/", "l%6Fgin", "login%0a",
		"login%09", "login,logout", "[login]", "login%00x", "\"login\"", "log\xc3\xafn", "login#", "%zz"}
)

// target makes a request target.
func (g *grammar) target() string {
	if g.IntN(12) == 0 {
		t := pick(g, g.corpus)
		if g.IntN(2) == 0 {
			t = pick(g, paths) + t
		}
		if g.IntN(2) == 0 {
			t += pick(g, paths)
		}
		return t
	}
	t := pick(g, paths)
	for range g.IntN(4) {
		switch g.IntN(9) {
		case 0, 1: // at a slash
			at := slashes(t)
			i := at[g.IntN(len(at))]
			skip := g.IntN(2)
			t = t[:i] + pick(g, joints) + t[min(i+skip, len(t)):]
		case 2: // anywhere
			i := g.IntN(len(t) + 1)
			t = t[:i] + pick(g, joints) + t[i:]
		case 3, 4: // an escape of a byte
			i := g.IntN(len(t))
			t = t[:i] + fmt.Sprintf([]string{"%%%02x", "%%%02X", "%%25%02x"}[min(g.IntN(8), 2)%3], t[i]) + t[i+1:]
		case 5: // letter case
			i := g.IntN(len(t))
			t = t[:i] + strings.ToUpper(t[i:i+1]) + t[i+1:]
			if g.IntN(3) == 0 {
				t = strings.ToUpper(t)
			}
		case 6:
			t = pick(g, paths) + pick(g, []string{"/..", "/../..", "/../../..", "/%2e%2e", ";/../..", "%2f..", ""}) + t
		case 7:
			t = pick(g, before) + t
		case 8: // any byte
			i := g.IntN(len(t))
			t = t[:i] + string([]byte{byte(1 + g.IntN(255))}) + t[i+g.IntN(2):]
		}
	}
	t += pick(g, after)
	if strings.Contains(t, "rpc") && g.IntN(5) > 0 || g.IntN(20) == 0 {
		t += "?" + g.pairs()
	}
	// A line feed ends the request line, which is for the part about framing.
	return strings.NewReplacer("\n", "x", "\r", "x", " ", "x").Replace(t)
}

func slashes(t string) (at []int) {
	for i := range len(t) {
		if t[i] == '/' {
			at = append(at, i)
		}
	}
	return append(at, len(t))
}

// pairs makes a query, or a form.
func (g *grammar) pairs() string {
	var b strings.Builder
	for i := range 1 + g.IntN(3) {
		if i > 0 {
			b.WriteString(pick(g, []string{"&", "&", "&", "&", ";", "&&", "%26", "&amp;"}))
		}
		key := pick(g, keys)
		if g.IntN(4) == 0 { // brackets anywhere
			j := g.IntN(len(key) + 1)
			key = key[:j] + pick(g, []string{"[", "]", "[]", "[x]", "%5b", "%5D", ".", "+", "%20", "_"}) + key[j:]
		}
		b.WriteString(key)
		if g.IntN(10) > 0 {
			b.WriteString("=" + pick(g, values))
		}
	}
	return b.String()
}

// request makes a request: mostly its target matters, sometimes its method, query or form.
func (g *grammar) request() request {
	switch g.IntN(10) {
	case 0:
		return request{
			method: pick(g, []string{"POST", "HEAD", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "get", "Get", "GETT",
				"TRACE", "X", "PATCH"}),
			target: g.target(),
		}
	case 1:
		return request{method: "POST", target: pick(g,
			[]string{"/login", "/login", "/login", "/login?x=1", "/login?user=y"}),
			form: strings.NewReplacer("action", "user", "%61ction", "us%65r", "Action", "User", "ACTION", "USER",
				"login", "eve").Replace(g.pairs())}
	case 2:
		return request{method: "GET", target: "/rpc?" + g.pairs()}
	}
	return request{method: "GET", target: g.target()}
}

func pick(g *grammar, list []string) string { return list[g.IntN(len(list))] }
