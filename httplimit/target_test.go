package httplimit_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// received is the request that net/http reads in a request line, or nil if it
// answers that itself.
func received(line string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: api\r\n\r\n")))
	if err != nil {
		return nil
	}
	return r
}

// refusedLines are request lines in which net/url finds a path that is not the
// one behind "://", or which are no request for a path at all.
var refusedLines = []string{
	"GET x:/v1/exports?://z/v1/items/1",
	"GET x:http://api/v1/exports",
	"GET x:http://169.254.169.254/v1/items/1",
	"GET a+b:/v1/exports?://z/v1/items/1",
	"GET https:v1/exports?://z/v1/items/1",
	"GET http:/v1/exports?://z/v1/items/1",
	"GET http:v1/items/1",
	"GET h:/v1/exports?://z/v1/items/1",
	"GET x://api/v1/items/1",
	"GET ftp://api/v1/items/1",
	"GET http+unix://api/v1/items/1",
	"GET http:///v1/items/1",
	"GET http://:80/v1/items/1",
	"GET http://user@api/v1/items/1",
	"GET http://user:pass@api/v1/items/1",
	"GET http://@api/v1/items/1",
	"GET http://api%2Fv1/items/1",
	"GET http://api:80x/v1/items/1",
	"GET http://[fe80::1%25lo]/v1/items/1",
	"GET http://[::1/v1/items/1",
	"GET http://a,b/v1/items/1",
	"GET http://api\\v1/items/1",
	"OPTIONS http://api",
	"OPTIONS http://api?x",
	"OPTIONS *",
	"GET *",
	"CONNECT api:443",
	"GET api:443",
	"CONNECT x:/v1/items/1",
}

func TestTarget(t *testing.T) {
	for line, want := range map[string]string{
		"GET /a/b?x=1":                    "/a/b?x=1",
		"GET //a/%62":                     "//a/%62",
		"GET //host:80/a":                 "//host:80/a",
		"GET /a?":                         "/a?",
		"GET /a??":                        "/a??",
		"GET /a?http://b/c":               "/a?http://b/c",
		"GET /a:b/http://c/d":             "/a:b/http://c/d",
		"GET /a%2Fb%20c{d}?q={}|%zz;":     "/a%2Fb%20c{d}?q={}|%zz;",
		"GET /\xc3\xa9?\xff":              "/\xc3\xa9?\xff", // package endpoint refuses it
		"GET /a#b":                        "/a#b",           // as this
		"GET http://host/a/%62?x=1":       "/a/%62?x=1",
		"GET HtTpS://host:8/a/.":          "/a/.",
		"GET http://[2001:db8::1]:8080//": "//",
		"GET http://[2001:db8::1]/a":      "/a",
		"GET http://host:/a":              "/a",
		"GET http://host":                 "/",
		"GET http://host?x=/y":            "/?x=/y",
		"GET http://host/x://y/z":         "/x://y/z",
		"OPTIONS http://host/":            "/",
	} {
		r := received(line)
		if r == nil {
			t.Errorf("net/http refuses %q, so the case says nothing", line)
			continue
		}
		if got := httplimit.Target(r); got != want {
			t.Errorf("Target of %q = %q, want %q", line, got, want)
		}
	}
	seen := 0
	for _, line := range refusedLines {
		r := received(line)
		if r == nil {
			continue // the server answers 400
		}
		seen++
		if got := httplimit.Target(r); got != "" {
			t.Errorf("Target of %q = %q, want none", line, got)
		}
		r.ProtoMajor = 2
		if got := httplimit.Target(r); got != "" {
			t.Errorf("over HTTP/2, Target of %q = %q, want none", line, got)
		}
	}
	if seen < 20 {
		t.Errorf("net/http reads %d of the lines that Target has to refuse, want 20 or more", seen)
	}
	r := received("GET http://host/a")
	r.ProtoMajor = 2
	if got := httplimit.Target(r); got != "" {
		t.Errorf("Target of an absolute form over HTTP/2 = %q, want none", got)
	}
}

func TestTargetOfRequestsMadeByHand(t *testing.T) {
	for text, want := range map[string]string{
		"http://host/a%2Fb?x=1": "/a%2Fb?x=1", "http://host": "/", "HTTP://host?x": "/?x", "/a?": "/a?",
		"https:v1/exports?://z/v1/items/1": "", "x:/v1/exports?://z/v1/items/1": "", "mailto:x": "",
	} {
		r, err := http.NewRequest("GET", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := httplimit.Target(r); got != want {
			t.Errorf("Target of a request made for %q = %q, want %q", text, got, want)
		}
	}
	for _, c := range []struct {
		u    *url.URL
		want string
	}{
		{&url.URL{Path: "/a b"}, "/a%20b"},
		{&url.URL{Path: "/a?b"}, "/a%3Fb"},
		{&url.URL{Path: "/a/b", RawPath: "/a%2Fb"}, "/a%2Fb"},
		{&url.URL{Path: "/a/b{", RawPath: "/a%2Fb{"}, "/a%2Fb{"},
		{&url.URL{Path: "/v1/exports", RawPath: "/v1/items/1"}, ""},
		{&url.URL{Path: "/a?b", RawPath: "/a?b"}, ""},
		{&url.URL{Path: "/a%", RawPath: "/a%"}, ""},
		{&url.URL{Path: "/v1/items/1", Opaque: "/v1/exports"}, ""},
		{&url.URL{Path: "/v1/items/1", Opaque: "//host/v1/exports", Scheme: "http"}, ""},
		{nil, ""},
	} {
		if got := httplimit.Target(&http.Request{Method: "GET", URL: c.u}); got != c.want {
			t.Errorf("Target of %#v = %q, want %q", c.u, got, c.want)
		}
	}
}

// rewrites are what handlers before the limiter do to requests for /api/v1/items/a%2Fb?x=1.
var rewrites = map[string]func(*http.Request){
	"path":           func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/v1/items/7", "" },
	"path alone":     func(r *http.Request) { r.URL.Path = "/v1/items/7" },
	"raw path alone": func(r *http.Request) { r.URL.RawPath = "/v1/items/7" },
	"no raw path":    func(r *http.Request) { r.URL.RawPath = "" },
	"query":          func(r *http.Request) { r.URL.RawQuery = "x=2" },
	"opaque":         func(r *http.Request) { r.URL.Opaque = "/v1/items/7" },
	"another URL":    func(r *http.Request) { r.URL = &url.URL{Path: "/v1/items/7"} },
	"request line":   func(r *http.Request) { r.RequestURI = "/v1/items/7" },
}

// TestRewrittenRequests: what is charged is what the handlers behind read, or
// nothing gets through.
func TestRewrittenRequests(t *testing.T) {
	for name, rewrite := range rewrites {
		for _, line := range []string{"GET /api/v1/items/a%2Fb?x=1", "GET http://host/api/v1/items/a%2Fb?x=1"} {
			r := received(line)
			rewrite(r)
			if got := httplimit.Target(r); got != "" {
				t.Errorf("%s: Target of %q = %q, want none", name, line, got)
			}
		}
	}
	for _, rewritten := range []bool{false, true} {
		d := newDoor(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1}},
			httplimit.Options{Rewritten: rewritten})
		stripped := http.StripPrefix("/api", d)
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if !rewritten {
				want = http.StatusBadRequest
			}
			w := httptest.NewRecorder()
			stripped.ServeHTTP(w, received("GET /api/v1/items/7"))
			if w.Code != want {
				t.Errorf("Rewritten %v, request %d behind StripPrefix = %d, want %d", rewritten, i+1, w.Code, want)
			}
		}
		w := httptest.NewRecorder()
		if d.ServeHTTP(w, received("GET /v1/items/7")); rewritten != (w.Code == http.StatusTooManyRequests) {
			t.Errorf("Rewritten %v: the path without the prefix = %d, want it in the budget of the stripped one",
				rewritten, w.Code)
		}
	}
}

// TestNoTargetNoService: a line without a target is a 400 wherever unknown
// requests go.
func TestNoTargetNoService(t *testing.T) {
	for _, unknown := range []headgate.UnknownMode{headgate.RejectUnknown, headgate.LimitUnknown} {
		lim, _ := newLimiter(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000},
			{Endpoint: policy.UnknownEndpoint, Limit: 1000}}, nil,
			func(o *headgate.Options) { o.Unknown = unknown })
		served := ""
		h := httplimit.Handler(lim, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served = r.Method + " " + r.URL.String()
		}), httplimit.Options{})
		for _, line := range append(refusedLines, "CONNECT /v1/items/1", "CONNECT /nothing",
			"CONNECT http://api/v1/items/1") {
			r := received(line)
			if r == nil {
				continue
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest || served != "" {
				t.Errorf("unknown: %v, %s = %d, served %q; want 400 and nothing", unknown, line, w.Code, served)
			}
			served = ""
		}
		for _, path := range []string{"/v1/items/1", "/nothing"} {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, received("TRACE "+path)); w.Code != http.StatusNotFound &&
				w.Code != http.StatusMethodNotAllowed || served != "" {
				t.Errorf("unknown: %v, TRACE %s = %d, served %q; want 404 or 405 and nothing", unknown, path,
					w.Code, served)
			}
		}
		for _, method := range []string{"", "GET /v1/exports?", "GET\t", "G\xffT", "GET\r\nX:"} {
			r := received("GET /v1/items/1")
			r.Method = method
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest || served != "" {
				t.Errorf("unknown: %v, method %q = %d, served %q; want 400 and nothing", unknown, method,
					w.Code, served)
			}
		}
	}
}

// FuzzTarget: what Target returns is what net/url reads of the request line, and
// the next reader of the target finds the same.
func FuzzTarget(f *testing.F) {
	for _, line := range append(refusedLines, "GET /a%2Fb?x=1", "GET //a/./b", "GET HTTP://h:80/a?", "GET http://h",
		"GET /{a}|%7b?{}") {
		f.Add(line, true)
		f.Add(line, false)
	}
	f.Fuzz(func(t *testing.T, line string, second bool) {
		r := received(line)
		if method, uri, ok := strings.Cut(line, " "); second && ok { // as net/http does over HTTP/2
			u, err := url.ParseRequestURI(uri)
			if err != nil {
				return
			}
			r = &http.Request{Method: method, URL: u, RequestURI: uri, ProtoMajor: 2}
		}
		if r == nil {
			return
		}
		target := httplimit.Target(r)
		if target == "" {
			return
		}
		path, query, _ := strings.Cut(target, "?")
		decoded, err := url.PathUnescape(path)
		if same := decoded == r.URL.Path || path == "/" && r.URL.Path == ""; err != nil || !same ||
			query != r.URL.RawQuery || target[0] != '/' {
			t.Fatalf("Target of %q = %q, %v, and net/url reads the path %q with the query %q", line, target, err,
				r.URL.Path, r.URL.RawQuery)
		}
		if _, fault := (endpoint.Profile{}).Canonical(target); fault == endpoint.RawByte {
			return // over HTTP/2 a target may hold a space
		}
		if next := received("GET " + target); next == nil || httplimit.Target(next) != target {
			t.Fatalf("Target of %q = %q, which the next reader does not read so", line, target)
		}
		r.RequestURI = ""
		if hand := httplimit.Target(r); hand != target && r.URL.RawPath != "" {
			t.Fatalf("Target of a request made by hand for %q = %q, want %q", line, hand, target)
		}
	})
}
