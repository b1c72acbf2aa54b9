package httplimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// door is a Handler before an API that answers 200, with the clock in hand.
type door struct {
	http.Handler
	now    time.Time
	served int
}

func newDoor(t testing.TB, rules []policy.Rule, o httplimit.Options, change ...func(*headgate.Options)) *door {
	t.Helper()
	d := &door{now: epoch}
	lim, table := newLimiter(t, rules, func() time.Time { return d.now }, change...)
	o.Methods = table.Allowed
	if o.Now == nil {
		o.Now = func() time.Time { return d.now }
	}
	d.Handler = httplimit.Handler(lim, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d.served++
		_, _ = io.WriteString(w, "ok")
	}), o)
	return d
}

func newLimiter(t testing.TB, rules []policy.Rule, now func() time.Time,
	change ...func(*headgate.Options)) (*headgate.Limiter, *endpoint.Table) {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "POST /v1/items", "DELETE /v1/items/{id}"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table, Now: epoch})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := headgate.Options{Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who, Now: now}
	for _, c := range change {
		c(&o)
	}
	lim, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return lim, table
}

func (d *door) do(method, target string, header ...string) *httptest.ResponseRecorder {
	r := at(httptest.NewRequest(method, "http://api/", nil), target)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// at is r with a request line for target, as net/http would have read it.
func at(r *http.Request, target string) *http.Request {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		panic(err) // the server answers such a line itself
	}
	r.RequestURI, r.URL = target, u
	return r
}

func TestAllowedResponsesCarryTheBudget(t *testing.T) {
	d := newDoor(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 5, Burst: 10}}, httplimit.Options{})
	w := d.do("GET", "/v1/items/1")
	if w.Code != http.StatusOK || d.served != 1 {
		t.Fatalf("GET = %d, served %d, want 200 and 1", w.Code, d.served)
	}
	want := map[string]string{
		"RateLimit":                     `"GET /v1/items/{id}";r=9;t=1`,
		"RateLimit-Policy":              `"GET /v1/items/{id}";q=5;w=1;headgate-burst=10`,
		"Retry-After":                   "",
		"X-RateLimit-Limit":             "",
		"Access-Control-Expose-Headers": "",
	}
	for name, value := range want {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
}

// What a browser's script may not read is as good as not sent to it.
func TestEveryFieldOfOursIsExposed(t *testing.T) {
	for _, legacy := range []httplimit.Dialect{httplimit.NoLegacy, httplimit.DeltaSeconds, httplimit.EpochSeconds} {
		d := newDoor(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Minute}},
			httplimit.Options{Legacy: legacy})
		for range 2 {
			w := d.do("GET", "/v1/items/1", "Origin", "https://shop.example")
			exposed := strings.ToLower(w.Header().Get("Access-Control-Expose-Headers"))
			for name := range w.Header() {
				switch name {
				case "Access-Control-Expose-Headers", "Cache-Control", "Content-Length", "Content-Type", "Vary",
					"X-Content-Type-Options":
					continue
				}
				if !strings.Contains(exposed+",", strings.ToLower(name)+",") {
					t.Errorf("%d, legacy %v: %s is not among the exposed fields %q", w.Code, legacy, name, exposed)
				}
			}
		}
	}
}

func TestDeniedResponsesSayWhyAndHowLong(t *testing.T) {
	d := newDoor(t, []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 30, Per: time.Minute, Burst: 1},
		{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectIP, Name: `the "guard"`},
	}, httplimit.Options{})
	d.do("GET", "/v1/items/1")
	d.now = d.now.Add(500 * time.Millisecond)
	w := d.do("GET", "/v1/items/2", "Origin", "https://shop.example")
	if w.Code != http.StatusTooManyRequests || d.served != 1 {
		t.Fatalf("second GET = %d, served %d, want 429 and 1", w.Code, d.served)
	}
	want := map[string]string{
		"Retry-After":                   "2", // 1.5 s, rounded up
		"RateLimit":                     `"GET /v1/items/{id}";r=0;t=2, "the \"guard\"";r=100`,
		"RateLimit-Policy":              `"GET /v1/items/{id}";q=30;w=60;headgate-burst=1, "the \"guard\"";q=100;w=1`,
		"Content-Type":                  "application/problem+json",
		"Cache-Control":                 "no-store",
		"Access-Control-Expose-Headers": "RateLimit, RateLimit-Policy, Retry-After",
	}
	for name, value := range want {
		if got := w.Header().Get(name); got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
	var problem struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	if problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem.Status != 429 ||
		len(problem.Violated) != 1 || problem.Violated[0] != "GET /v1/items/{id}" ||
		problem.Detail != "Limit GET /v1/items/{id}: 30 per 1m, burst 1. Retry in 1.5s." {
		t.Errorf("problem = %+v", problem)
	}
}

// A client that waits what Retry-After says is served, whatever the rate.
func TestRetryAfterIsNeverTooEarly(t *testing.T) {
	for _, rule := range []policy.Rule{
		{Limit: 1}, {Limit: 3}, {Limit: 7, Per: time.Minute}, {Limit: 1000, Burst: 1}, {Limit: 1, Per: time.Hour},
		{Limit: 999, Per: 1000 * time.Second},
	} {
		rule.Endpoint = "GET /v1/items/{id}"
		d := newDoor(t, []policy.Rule{rule}, httplimit.Options{})
		for range 5000 {
			w := d.do("GET", "/v1/items/1")
			if w.Code == http.StatusOK {
				continue
			}
			var seconds int
			if _, err := fmt.Sscan(w.Header().Get("Retry-After"), &seconds); err != nil || seconds < 1 {
				t.Fatalf("%d per %v: Retry-After = %q, want a whole number above 0", rule.Limit, rule.Per,
					w.Header().Get("Retry-After"))
			}
			d.now = d.now.Add(time.Duration(seconds) * time.Second)
			if w := d.do("GET", "/v1/items/1"); w.Code != http.StatusOK {
				t.Fatalf("%d per %v: %d after waiting %d s, want 200", rule.Limit, rule.Per, w.Code, seconds)
			}
			break
		}
	}
}

func TestRefusalsByReason(t *testing.T) {
	noPolicies := func(o *headgate.Options) { o.Policies = headgate.Fixed(nil) }
	denyUnruled := func(o *headgate.Options) { o.DenyWithoutRule = true }
	for name, c := range map[string]struct {
		method, target string
		change         func(*headgate.Options)
		status         int
		header, value  string
		detail         string
	}{
		"unknown endpoint": {"GET", "/v2/nothing", nil, 404, "Retry-After", "", "No endpoint has this path."},
		"unknown method": {"PATCH", "/v1/items/1", nil, 405, "Allow", "DELETE, GET, HEAD",
			"This path has no such method."},
		"invalid target": {"GET", "/v1/items/%00", nil, 400, "Allow", "",
			"The request target holds an encoded control byte."},
		"no policies": {"GET", "/v1/items/1", noPolicies, 503, "Retry-After", "5", "No limits have been loaded yet."},
		"no rule": {"GET", "/v1/items/1", denyUnruled, 403, "Retry-After", "",
			"No rate limit rule covers this endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*headgate.Options) {}
			}
			d := newDoor(t, nil, httplimit.Options{}, c.change)
			w := d.do(c.method, c.target)
			if w.Code != c.status || d.served != 0 {
				t.Errorf("%s %s = %d, served %d, want %d and 0", c.method, c.target, w.Code, d.served, c.status)
			}
			if got := w.Header().Get(c.header); got != c.value {
				t.Errorf("%s = %q, want %q", c.header, got, c.value)
			}
			if !strings.Contains(w.Body.String(), c.detail) {
				t.Errorf("body %s does not say %q", w.Body, c.detail)
			}
		})
	}
}

// Nothing that a client sent is repeated to it: a response that reflects is a
// response that can be aimed.
func TestRefusalsDoNotReflect(t *testing.T) {
	d := newDoor(t, nil, httplimit.Options{})
	for _, target := range []string{"/v2/<script>MARK", "/v1/items/MARK%00", "/MARK/%2f"} {
		w := d.do("GET", target, "X-Api-Key", "MARK", "Origin", "MARK")
		if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, "MARK") {
			t.Errorf("the answer to %s repeats it: %s", target, text)
		}
	}
}

func TestLegacyDialects(t *testing.T) {
	rules := []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 60, Per: time.Minute, Burst: 5}}
	for name, c := range map[string]struct {
		dialect httplimit.Dialect
		reset   string
	}{
		"delta": {httplimit.DeltaSeconds, "1"},
		"epoch": {httplimit.EpochSeconds, fmt.Sprint(epoch.Unix() + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDoor(t, rules, httplimit.Options{Legacy: c.dialect, OmitFields: true}).do("GET", "/v1/items/1")
			for header, want := range map[string]string{
				"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "4", "X-RateLimit-Reset": c.reset,
				"X-RateLimit-Strategy": "token_bucket", "RateLimit": "", "RateLimit-Policy": "",
			} {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s = %q, want %q", header, got, want)
				}
			}
		})
	}
}

func TestShadowRulesAreNotAdvertised(t *testing.T) {
	d := newDoor(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1, Mode: policy.Shadow}}, httplimit.Options{})
	for range 3 {
		w := d.do("GET", "/v1/items/1")
		if w.Code != http.StatusOK || w.Header().Get("RateLimit") != "" {
			t.Errorf("GET = %d with RateLimit %q, want 200 and none", w.Code, w.Header().Get("RateLimit"))
		}
	}
}

func TestPeer(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7", "[2001:db8::1%eth0]:1": "2001:db8::1%eth0", "192.0.2.7": "192.0.2.7",
		"@": "invalid IP", "": "invalid IP",
		"2001:db8::1": "2001:db8::1", "::": "::", "[::1]": "invalid IP", ":80": "invalid IP",
		"192.0.2.7:99999": "invalid IP", "192.0.2.7:x": "invalid IP",
	} {
		if got := httplimit.Peer(&http.Request{RemoteAddr: remote}); got.String() != want {
			t.Errorf("Peer(%q) = %v, want %v", remote, got, want)
		}
	}
}

func TestIdentifierReachesTheRules(t *testing.T) {
	d := newDoor(t, []policy.Rule{{Endpoint: "POST /v1/items", Limit: 1, Subject: policy.SubjectIdentifier}},
		httplimit.Options{
			Identifier: func(r *http.Request) string { return r.Header.Get("X-User") },
			Peer:       func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") },
		})
	for i, c := range []struct {
		user string
		want int
	}{{"ann", 200}, {"ann", 429}, {"bob", 200}} {
		if w := d.do("POST", "/v1/items", "X-User", c.user); w.Code != c.want {
			t.Errorf("request %d of %s = %d, want %d", i, c.user, w.Code, c.want)
		}
	}
}

func Example() {
	template, _ := endpoint.ParseTemplate("GET /v1/items/{id}")
	table, _ := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	set, _ := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Minute, Burst: 2},
	}}, policy.CompileOptions{Endpoints: table})
	buckets, _ := memory.New(memory.Options{})
	who, _ := identity.New(identity.Options{})
	lim, _ := headgate.New(headgate.Options{
		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
	})

	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	limited := httplimit.Handler(lim, api, httplimit.Options{})
	for _, target := range []string{"/v1/items/1", "//v1/./items/2", "/v1/%69tems/3"} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // what follows depends on the clock
		fmt.Println(w.Code, left)
	}
	// Output:
	// 200 "GET /v1/items/{id}";r=1
	// 200 "GET /v1/items/{id}";r=0
	// 429 "GET /v1/items/{id}";r=0
}

// Times that are longer than can be told are told as the longest, never as none.
func TestTimesThatSaturate(t *testing.T) {
	const ages = 200 * 365 * 24 * time.Hour
	for dialect, want := range map[httplimit.Dialect]string{
		httplimit.DeltaSeconds: "9223372037",
		httplimit.EpochSeconds: "9223372037",
	} {
		lim, _ := newLimiter(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Burst: 2, Per: ages}}, nil)
		h := httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			httplimit.Options{Legacy: dialect, Now: func() time.Time { return epoch }})
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/items/1", nil))
		}
		if got := w.Header().Get("X-RateLimit-Reset"); got != want {
			t.Errorf("dialect %d: X-RateLimit-Reset is %q, want %s", dialect, got, want)
		}
	}
}

// A request that passes costs two allocations, of which its fields are made, and none without them.
func TestHandlerAllocates(t *testing.T) {
	for _, c := range []struct {
		o    httplimit.Options
		most float64
	}{{httplimit.Options{}, 2}, {httplimit.Options{OmitFields: true}, 0}} {
		lim, _ := newLimiter(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 30}}, nil)
		h := httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), c.o)
		r := httptest.NewRequest("GET", "/v1/items/1", nil)
		w := httptest.NewRecorder()
		n := testing.AllocsPerRun(1000, func() {
			clear(w.Header())
			h.ServeHTTP(w, r)
		})
		if n >= c.most+trial.Allocations {
			t.Errorf("%+v: %v allocations, want %v", c.o, n, c.most)
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	for name, o := range map[string]httplimit.Options{"fields": {}, "bare": {OmitFields: true}} {
		b.Run(name, func(b *testing.B) {
			lim, _ := newLimiter(b, []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 30}}, nil)
			h := httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), o)
			r := httptest.NewRequest("GET", "/v1/items/1", nil)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				clear(w.Header())
				h.ServeHTTP(w, r)
			}
		})
	}
}

// TestNewWantsAHandler: nil is said at the start, with whatever is wrong with the rules.
func TestNewWantsAHandler(t *testing.T) {
	_, err := httplimit.New(nil, "default 1")
	for _, want := range []string{"next is nil, want the handler to limit", `Rules[0]`, `limit is "1"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New says %v, want %s", err, want)
		}
	}
	if _, err := httplimit.New(nil, "default 1/s"); err == nil {
		t.Error("New takes nil for a handler")
	}
}
