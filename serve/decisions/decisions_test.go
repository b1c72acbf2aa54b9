package decisions_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
)

var (
	templates = []string{"GET /a", "POST /a", "GET /files/{path...}"}
	rules     = []policy.Rule{{Endpoint: "default", Name: "each", Limit: 2, Per: 60e9}}
)

// balancers trusts 10.0.0.0/8 to name clients.
func balancers(t testing.TB) func(*headgate.Options) {
	who, err := identity.New(identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *headgate.Options) { o.Identities = who }
}

// door is one that loopback may ask. faults are those it told of.
func door(t testing.TB, change ...func(*decisions.Options)) (h http.Handler, b *trial.Bench, faults *[]string) {
	t.Helper()
	b = trial.New(t, templates, rules, balancers(t))
	faults = new([]string)
	o := decisions.Options{
		Limiter: b.Limiter, Trusted: netip.Addr.IsLoopback, Limit: httplimit.Options{Methods: b.Table.Allowed},
		Failed: func(f decisions.Fault, err error) { *faults = append(*faults, f.String()+": "+err.Error()) },
	}
	for _, c := range change {
		c(&o)
	}
	h, err := decisions.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h, b, faults
}

// ask sends a question as it stands on the wire.
func ask(t testing.TB, h http.Handler, lines ...string) *http.Response {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\nHost: h\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:4711"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// kinds are how each kind of proxy asks about a request.
var kinds = map[string]func(method, target, client string) []string{
	"forward": func(method, target, client string) []string {
		return []string{"GET /forward HTTP/1.1", "X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + target,
			"X-Forwarded-For: " + client}
	},
	"nginx": func(method, target, client string) []string {
		return []string{"GET /nginx HTTP/1.1", "X-Original-Method: " + method, "X-Original-URI: " + target,
			"X-Real-IP: " + client}
	},
	"envoy": func(method, target, client string) []string {
		return []string{method + " /envoy" + target + " HTTP/1.1", "X-Forwarded-For: " + client}
	},
}

// status is what the client is to be answered.
func status(t testing.TB, kind string, got *http.Response) int {
	t.Helper()
	if kind != "nginx" || got.StatusCode == http.StatusOK {
		return got.StatusCode
	}
	told, err := strconv.Atoi(got.Header.Get("Headgate-Status"))
	if got.StatusCode != http.StatusForbidden || err != nil || told < 400 {
		t.Fatalf("nginx is answered %d with Headgate-Status %q, want 403 with what the client is to be answered",
			got.StatusCode, got.Header.Get("Headgate-Status"))
	}
	return told
}

func TestEachKindOfProxy(t *testing.T) {
	for kind, question := range kinds {
		t.Run(kind, func(t *testing.T) {
			h, _, faults := door(t)
			for _, c := range []struct {
				method, target, client string
				want                   int
				field, value           string // of the answer
			}{
				{"GET", "/a", "192.0.2.1", 200, "Ratelimit", `"each";r=1;t=30`},
				{"GET", "/a?x=1", "192.0.2.1", 200, "Ratelimit", `"each";r=0;t=30`},
				{"GET", "//a/./", "192.0.2.1", 429, "Retry-After", "30"},
				{"HEAD", "/a", "192.0.2.1", 429, "Retry-After", "30"},
				{"GET", "/a", "192.0.2.2", 200, "Ratelimit", `"each";r=1;t=30`}, // another client
				{"POST", "/a", "192.0.2.1", 200, "Ratelimit", `"each";r=1;t=30`},
				{"GET", "/a", "::ffff:192.0.2.1", 429, "Retry-After", "30"},
				{"PUT", "/a", "192.0.2.1", 405, "Allow", "GET, HEAD, POST"},
				{"GET", "/b", "192.0.2.1", 404, "", ""},
				{"GET", "/%00", "192.0.2.1", 400, "", ""},
				{"GET", "/a%2f", "192.0.2.1", 400, "", ""},
			} {
				got := ask(t, h, question(c.method, c.target, c.client)...)
				if status := status(t, kind, got); status != c.want ||
					c.field != "" && got.Header.Get(c.field) != c.value {
					t.Errorf("%s %s of %s: %d with %s %q, want %d with %q", c.method, c.target, c.client, status,
						c.field, got.Header.Get(c.field), c.want, c.value)
				}
			}
			if len(*faults) > 0 {
				t.Errorf("told of %v, want no fault", *faults)
			}
		})
	}
}

// What a client reads of a refusal comes through nginx too.
func TestNginxIsToldTheWholeRefusal(t *testing.T) {
	h, _, _ := door(t)
	var got *http.Response
	for range 3 {
		got = ask(t, h, kinds["nginx"]("GET", "/a", "192.0.2.1")...)
	}
	const want = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"detail":"Limit each: 2 per 1m, burst 2. Retry in 30s.","violated-policies":["each"]}`
	if told := got.Header.Get("Headgate-Problem"); told != want {
		t.Errorf("Headgate-Problem is\n%s, want\n%s", told, want)
	}
	if body, _ := io.ReadAll(got.Body); len(body) > 0 {
		t.Errorf("nginx is sent %q, which it throws away", body)
	}
}

// A client behind a balancer that is trusted is the one that the balancer names.
func TestProxyBehindABalancer(t *testing.T) {
	for kind, question := range kinds {
		h, _, _ := door(t)
		var got []int
		for _, client := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"} {
			lines := question("GET", "/a", client+", 10.0.0.1")
			if kind == "nginx" { // which leaves the field of the balancer as it is
				lines = append(question("GET", "/a", "10.0.0.1"), "X-Forwarded-For: "+client)
			}
			got = append(got, status(t, kind, ask(t, h, lines...)))
		}
		if want := [4]int{200, 200, 200, 429}; [4]int(got) != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
		// A stranger names nobody.
		lines := question("GET", "/a", "6.6.6.6, 192.0.2.1")
		if kind == "nginx" {
			lines = append(question("GET", "/a", "192.0.2.1"), "X-Forwarded-For: 6.6.6.6")
		}
		if got := status(t, kind, ask(t, h, lines...)); got != 429 {
			t.Errorf("%s: a client that calls itself another one gets %d, want 429", kind, got)
		}
	}
}

// A question that does not say what it is about is never a yes.
func TestIncompleteQuestions(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		fault string
	}{
		"no method": {[]string{"GET /forward HTTP/1.1", "X-Forwarded-Uri: /a", "X-Forwarded-For: 192.0.2.1"},
			"X-Forwarded-Method stands there 0 times"},
		"no target": {[]string{"GET /forward HTTP/1.1", "X-Forwarded-Method: GET",
			"X-Forwarded-For: 192.0.2.1"}, "X-Forwarded-Uri stands there 0 times"},
		"an empty target": {[]string{"GET /forward HTTP/1.1", "X-Forwarded-Method: GET", "X-Forwarded-Uri:",
			"X-Forwarded-For: 192.0.2.1"}, "X-Forwarded-Uri stands there 1 times"},
		"no client": {[]string{"GET /forward HTTP/1.1", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /a"},
			"X-Forwarded-For is missing"},
		"a client's name": {kinds["forward"]("GET", "/a", "192.0.2.1, unknown"), "X-Forwarded-For has no address"},
		"nothing": {[]string{"GET /nginx HTTP/1.1"}, "X-Original-Method stands there 0 times, want " +
			"once, X-Original-Uri stands there 0 times, want once, X-Real-Ip"},
		"two targets": {append(kinds["nginx"]("GET", "/a", "192.0.2.1"), "X-Original-URI: /b"),
			"X-Original-Uri stands there 2 times"},
		"two clients": {append(kinds["nginx"]("GET", "/a", "192.0.2.1"), "X-Real-IP: 192.0.2.2"),
			"X-Real-Ip stands there 2 times"},
		"no client for envoy": {[]string{"GET /envoy/a HTTP/1.1"}, "X-Forwarded-For is missing"},
		"no path":             {[]string{"GET / HTTP/1.1"}, `no_such_path: "/" is none of`},
		"a path like one":     {[]string{"GET /envoyer HTTP/1.1", "X-Forwarded-For: 192.0.2.1"}, "no_such_path"},
		"a path beyond one": {[]string{"GET /nginx/ HTTP/1.1", "X-Original-Method: GET", "X-Original-URI: /a",
			"X-Real-IP: 192.0.2.1"}, "no_such_path"},
	} {
		h, b, faults := door(t)
		got := ask(t, h, c.lines...)
		if got.StatusCode < 400 || len(*faults) != 1 || !strings.Contains((*faults)[0], c.fault) {
			t.Errorf("%s: %d, told of %q, want an error and %q", name, got.StatusCode, *faults, c.fault)
		}
		if stats := b.Buckets.Stats(b.Now.UnixNano()); stats.Live != 0 {
			t.Errorf("%s: charged to %d buckets", name, stats.Live)
		}
	}
}

func TestOnlyTrustedPeersMayAsk(t *testing.T) {
	h, _, faults := door(t, func(o *decisions.Options) { o.Trusted = func(netip.Addr) bool { return false } })
	got := ask(t, h, kinds["forward"]("GET", "/a", "192.0.2.1")...)
	if got.StatusCode != http.StatusForbidden || len(*faults) != 1 ||
		(*faults)[0] != "untrusted: 127.0.0.1 may not ask" {
		t.Errorf("%d, told of %q, want 403", got.StatusCode, *faults)
	}
}

// The proxy passes on what this door cannot take out of a request.
func TestOverridesAreRefused(t *testing.T) {
	for kind, question := range kinds {
		h, _, _ := door(t)
		for _, field := range []string{"X-HTTP-Method-Override: DELETE", "X-Rewrite-URL: /b", "x_original_url: /b"} {
			if got := status(t, kind, ask(t, h, append(question("GET", "/a", "192.0.2.1"), field)...)); got !=
				http.StatusBadRequest {
				t.Errorf("%s with %s: %d, want 400", kind, field, got)
			}
		}
		passing, _, _ := door(t, func(o *decisions.Options) { o.PassOverrides = []string{"X-HTTP-Method-Override"} })
		for field, want := range map[string]int{
			"X-Http-Method-Override: DELETE": 200,
			"X-Rewrite-URL: /b":              400,
			"X-Forwarded-Prefix: /b":         200,
		} {
			if got := status(t, kind, ask(t, passing, append(question("GET", "/files/"+strconv.Itoa(want), "192.0.2.1"),
				field)...)); got != want {
				t.Errorf("%s that passes one field, with %s: %d, want %d", kind, field, got, want)
			}
		}
	}
}

// The certificate of the proxy's own connection says nothing about the client.
func TestTheProxysCertificateIsNotTheClients(t *testing.T) {
	var seen bool
	h, _, _ := door(t, func(o *decisions.Options) {
		o.Limit.Cost = func(r *http.Request) int64 { seen = r.TLS != nil; return 1 }
	})
	r := httptest.NewRequest("GET", "/envoy/a", nil)
	r.RemoteAddr, r.Header = "127.0.0.1:1", http.Header{"X-Forwarded-For": {"192.0.2.1"}}
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	h.ServeHTTP(httptest.NewRecorder(), r)
	if seen {
		t.Error("the request that was asked about has the TLS connection of the proxy")
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := decisions.New(decisions.Options{})
	if want :=
		"decisions options: Limiter is nil, want one\nTrusted is nil, want a function that says who may ask"; err ==
		nil || err.Error() != want {
		t.Errorf("New: %v, want %s", err, want)
	}
}

// FuzzQuestion: a target is read as it would be if the request had come here
// itself, whoever asks about it.
func FuzzQuestion(f *testing.F) {
	for _, target := range []string{"/a", "/a?x", "//a", "/a/../a", "/%61", "/a%2fb", "/a;x", "http://h/a", "*", "",
		"/a b", "/files/{x}|", "/files/%zz", "/\x80"} {
		f.Add("GET", target)
	}
	f.Add("HEAD", "/a")
	f.Add("CONNECT", "/a")
	f.Fuzz(func(t *testing.T, method, target string) {
		direct := trial.New(t, templates, rules, balancers(t))
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target +
			" HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil || r.RequestURI != target || r.Method != method {
			return
		}
		r.RemoteAddr = "192.0.2.1"
		w := httptest.NewRecorder()
		httplimit.Handler(direct.Limiter, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			httplimit.Options{Methods: direct.Table.Allowed}).ServeHTTP(w, r)
		for kind, header := range map[string]http.Header{
			"forward": {"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {target}, "X-Forwarded-For": {"192.0.2.1"}},
			"nginx":   {"X-Original-Method": {method}, "X-Original-Uri": {target}, "X-Real-Ip": {"192.0.2.1"}},
		} {
			h, b, _ := door(t)
			question := &http.Request{
				Method:     "GET",
				RequestURI: "/" + kind,
				ProtoMajor: 1,
				ProtoMinor: 1,
				Header:     header,
				RemoteAddr: "127.0.0.1:1",
				Body:       http.NoBody,
			}
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, question)
			if got := status(t, kind, answer.Result()); got != w.Code ||
				answer.Header().Get("RateLimit") != w.Header().Get("RateLimit") {
				t.Fatalf("%s %q: %s is answered %d %q, and the request itself %d %q", method, target, kind, got,
					answer.Header().Get("RateLimit"), w.Code, w.Header().Get("RateLimit"))
			}
			now := b.Now.UnixNano()
			if got, want := b.Buckets.Stats(now).Live, direct.Buckets.Stats(now).Live; got != want {
				t.Fatalf("%s %q: %d buckets charged, want %d", method, target, got, want)
			}
		}
	})
}

// said keeps the status that was said, 0 if none was.
type said struct {
	http.ResponseWriter
	status int
}

func (s *said) WriteHeader(status int) { s.status = status }

// A fault of this program is never a yes.
func TestAPanicIsNoYes(t *testing.T) {
	for kind, question := range kinds {
		h, _, _ := door(t, func(o *decisions.Options) { o.Limit.Cost = func(*http.Request) int64 { panic("a fault") } })
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(question("GET", "/a", "192.0.2.1"),
			"\r\n") + "\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "127.0.0.1:4711"
		w := &said{ResponseWriter: httptest.NewRecorder()}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", kind)
				}
			}()
			h.ServeHTTP(w, r)
		}()
		if w.status != 0 {
			t.Errorf("%s: %d was said", kind, w.status)
		}
	}
}
