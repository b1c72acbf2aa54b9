package attack_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/attack"
)

// limiter is a token bucket for every name that its request is given; correct as buckets go.
type limiter struct {
	limit  attack.Limit
	name   func(*http.Request) string
	status int

	mu      sync.Mutex
	buckets map[string]*tokens // guarded by mu
}

type tokens struct {
	left float64
	at   time.Time
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !l.take(l.name(r)) {
		w.WriteHeader(l.status)
		return
	}
	if path.Clean(r.URL.Path) == "/v1/items/1" {
		_, _ = io.WriteString(w, "an item")
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

func (l *limiter) take(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b := l.buckets[name]
	if b == nil {
		b = &tokens{float64(l.limit.Burst), now}
		l.buckets[name] = b
	}
	b.left = min(float64(l.limit.Burst), b.left+now.Sub(b.at).Seconds()*float64(l.limit.Requests)/l.limit.Per.Seconds())
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

var tenAnHour = attack.Limit{Requests: 10, Per: time.Hour, Burst: 10}

func serve(t *testing.T, h http.Handler) attack.Site {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	site, err := attack.Find(t.Context(), server.URL, nil, nobody)
	if err != nil {
		t.Fatal(err)
	}
	return site
}

func nobody(context.Context, string) ([]netip.Addr, error) {
	return nil, errors.New("nobody is to be looked up")
}

func plan() attack.Plan {
	return attack.Plan{
		Endpoint: "GET /v1/items/1",
		Limit:    tenAnHour,
		Requests: 600,
		Rate:     1000,
		Duration: time.Minute,
		Agent:    "headgate-attack/test",
	}
}

func newLimiter(name func(*http.Request) string) *limiter {
	return &limiter{limit: tenAnHour, name: name, status: http.StatusTooManyRequests, buckets: map[string]*tokens{}}
}

func peer(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// TestRunFindsEveryHole gives limiters one hole each: the attack on it, and no other, is to find it.
func TestRunFindsEveryHole(t *testing.T) {
	for _, c := range []struct {
		name    string
		by      func(*http.Request) string
		widened string
		family  string // one that must be named
	}{
		{"no hole", peer, "", ""},
		{"the leftmost forwarded address", func(r *http.Request) string { return r.Header.Get("X-Forwarded-For") },
			"headers", "X-Forwarded-For"},
		{"True-Client-IP", func(r *http.Request) string { return r.Header.Get("True-Client-IP") }, "headers",
			"True-Client-IP"},
		{"the path as it came", func(r *http.Request) string { return r.URL.EscapedPath() }, "spelling",
			"percent-encoding"},
		{"the query", func(r *http.Request) string { return r.URL.Query().Get("_") }, "spelling", "query"},
		{"the API key", func(r *http.Request) string { return r.Header.Get("X-Api-Key") }, "keys", "X-Api-Key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found, err := attack.Run(t.Context(), serve(t, newLimiter(c.by)), plan(), func(attack.Finding) {})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 6 {
				t.Fatalf("%d findings, want 6", len(found))
			}
			for _, f := range found {
				want := attack.Held
				if f.Attack == c.widened {
					want = attack.Widened
				}
				if f.Verdict != want {
					t.Errorf("%s: %s, want %s: %+v", f.Attack, f.Verdict, want, f)
				}
				if f.Verdict != attack.Widened {
					continue
				}
				named := slices.ContainsFunc(f.Families,
					func(c2 attack.FamilyCount) bool { return c2.Name == c.family && c2.Admitted > 0 })
				if !named || f.Fix == "" || f.Admitted <= int(f.Envelope) || f.Beyond < 1 {
					t.Errorf("the evidence is %+v, want %s among the families, a fix, and more than the envelope", f,
						c.family)
				}
			}
		})
	}
}

func TestRunFindsTokensUnknownAndItems(t *testing.T) {
	all := newLimiter(func(r *http.Request) string { return r.Header.Get("Authorization") })
	found, err := attack.Run(t.Context(), serve(t, all), plan(), func(attack.Finding) {})
	if err != nil || verdictOf(found, "tokens") != attack.Widened || verdictOf(found, "headers") != attack.Held {
		t.Errorf("a limiter by bearer token: %+v, %v", found, err)
	}

	byPath := newLimiter(func(r *http.Request) string { return r.URL.Path })
	anything := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !byPath.take(byPath.name(r)) {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	p := plan()
	p.Endpoint, p.Requests = "GET /v1/items/{id}", 700
	found, err = attack.Run(t.Context(), serve(t, anything), p, func(attack.Finding) {})
	if err != nil || verdictOf(found, "unknown") != attack.Widened || verdictOf(found, "items") != attack.Widened ||
		verdictOf(found, "plain") != attack.Held {
		t.Errorf("a limiter by path before an API that serves anything: %+v, %v", found, err)
	}
}

func verdictOf(found []attack.Finding, name string) attack.Verdict {
	for _, f := range found {
		if f.Attack == name {
			return f.Verdict
		}
	}
	return "not tried"
}

func TestRunWithoutALimit(t *testing.T) {
	site := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	found, err := attack.Run(t.Context(), site, plan(), func(attack.Finding) {})
	if err == nil || len(found) != 1 || found[0].Verdict != attack.Widened {
		t.Errorf("Run = %+v, %v, want the plain request widened and nothing after it", found, err)
	}
}

// TestRunStopsAtAStorm ends long before the plan does, and says what to do if 503 is meant.
func TestRunStopsAtAStorm(t *testing.T) {
	var served atomic.Int64
	site := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1) > 5 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	_, err := attack.Run(t.Context(), site, plan(), func(attack.Finding) {})
	if !errors.Is(err, attack.ErrStorm) || !strings.Contains(err.Error(), "--limited-status 503") {
		t.Errorf("Run = %v, want ErrStorm that names --limited-status 503", err)
	}
	if n := served.Load(); n > 60 {
		t.Errorf("%d requests were sent to a failing server, want it to end soon after 20", n)
	}

	says503 := newLimiter(peer)
	says503.status = http.StatusServiceUnavailable
	p := plan()
	p.Limited = []int{429, 503}
	found, err := attack.Run(t.Context(), serve(t, says503), p, func(attack.Finding) {})
	if err != nil || len(found) != 6 || verdictOf(found, "headers") != attack.Held {
		t.Errorf("a limiter that says 503, as the plan knows: %+v, %v", found, err)
	}
}

func TestRunEndsWithItsDuration(t *testing.T) {
	p := plan()
	p.Duration, p.Rate = time.Second, 30
	site := serve(t, newLimiter(peer))
	found, err := attack.Run(t.Context(), site, p, func(attack.Finding) {})
	if err == nil || !strings.Contains(err.Error(), "--duration 1s is over") {
		t.Errorf("Run = %v, want an error that says that the time was over", err)
	}
	if len(found) > 2 {
		t.Errorf("%d attacks of 3.3 s each were run in 1 s", len(found))
	}
}

// TestRunContactsNobodyElse redirects every request to another server, which must never hear of it.
func TestRunContactsNobodyElse(t *testing.T) {
	var strayed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	defer other.Close()
	l := newLimiter(peer)
	site := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != "headgate-attack/test" {
			t.Errorf("User-Agent is %q", r.UserAgent())
		}
		if !l.take(peer(r)) {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Location", other.URL)
		w.WriteHeader(http.StatusFound)
	}))
	found, err := attack.Run(t.Context(), site, plan(), func(attack.Finding) {})
	if err != nil || verdictOf(found, "plain") != attack.Held {
		t.Errorf("Run = %+v, %v", found, err)
	}
	if strayed.Load() != 0 {
		t.Errorf("%d requests followed a redirect", strayed.Load())
	}
}

// TestRunOverTLS verifies the certificate, and speaks HTTP/1.1 to servers that would rather not.
func TestRunOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(newLimiter(peer))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	site, err := attack.Find(t.Context(), server.URL, nil, nobody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attack.Run(t.Context(), site, plan(), func(attack.Finding) {}); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("Run with a certificate that nobody vouches for = %v, want it refused", err)
	}
	site.Roots = x509.NewCertPool()
	site.Roots.AddCert(server.Certificate())
	found, err := attack.Run(t.Context(), site, plan(), func(attack.Finding) {})
	if err != nil || len(found) != 6 || verdictOf(found, "plain") != attack.Held {
		t.Errorf("Run = %+v, %v", found, err)
	}
}

func TestFind(t *testing.T) {
	names := map[string]string{
		"localhost":      "127.0.0.1",
		"mine.example":   "192.0.2.7",
		"tricky.example": "127.0.0.1",
		"multi.example":  "224.0.0.1",
		"meta.example":   "169.254.169.254",
	}
	lookup := func(_ context.Context, name string) ([]netip.Addr, error) {
		if a, ok := names[strings.ToLower(name)]; ok {
			return []netip.Addr{netip.MustParseAddr(a)}, nil
		}
		return nil, fmt.Errorf("no such host as %s", name)
	}
	for _, c := range []struct {
		url   string
		owned []string
		want  string // the first address, or a part of the error
	}{
		{"http://127.0.0.1:8080", nil, "127.0.0.1:8080"},
		{"http://127.9.9.9/", nil, "127.9.9.9:80"},
		{"https://[::1]", nil, "[::1]:443"},
		{"http://[::ffff:127.0.0.1]:81", nil, "127.0.0.1:81"},
		{"http://LOCALHOST:8080", nil, "127.0.0.1:8080"},
		{"https://mine.example", []string{"Mine.Example"}, "192.0.2.7:443"},
		{"https://192.0.2.9:8443", []string{"192.0.2.9"}, "192.0.2.9:8443"},
		{"https://mine.example", nil, "--i-own-this-host mine.example"},
		{"https://mine.example", []string{"example"}, "--i-own-this-host mine.example"},
		{"https://mine.example", []string{"*.example"}, `--i-own-this-host is "*.example", want one host name`},
		{"https://sub.mine.example", []string{"mine.example"}, "--i-own-this-host sub.mine.example"},
		{"https://tricky.example", nil, "--i-own-this-host tricky.example"}, // a name may mean another machine tomorrow
		{"http://192.0.2.9", nil, "192.0.2.9 is 192.0.2.9, not loopback"},
		{"http://0.0.0.0:80", []string{"0.0.0.0"}, "which is no server's address"},
		{"http://multi.example", []string{"multi.example"}, "which is no server's address"},
		{"http://meta.example", []string{"meta.example"}, "which is no server's address"},
		{"http://gone.example", []string{"gone.example"}, "look up gone.example"},
		{"ftp://127.0.0.1", nil, "want http://HOST or https://HOST"},
		{"http://user:secret@127.0.0.1", nil, "want http://HOST or https://HOST"},
		{"http://127.0.0.1/v1", nil, "want http://HOST or https://HOST"},
		{"http://127.0.0.1:70000", nil, "want 1 to 65535"},
		{"127.0.0.1:80", nil, "want http://HOST or https://HOST"},
	} {
		site, err := attack.Find(t.Context(), c.url, c.owned, lookup)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = site.Addresses[0].String()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("Find(%q, %q) = %q, want %q", c.url, c.owned, got, c.want)
		}
	}
	if _, err := attack.Find(t.Context(), "http://other.example", nil, nobody); err == nil ||
		strings.Contains(err.Error(), "looked up") {
		t.Errorf("Find = %v, want a refusal without a look-up", err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		change func(*attack.Plan)
		want   string
	}{
		{func(*attack.Plan) {}, ""},
		{func(p *attack.Plan) { p.Endpoint = "/v1/items/1" }, `--endpoint is "/v1/items/1"`},
		{func(p *attack.Plan) { p.Endpoint = "GET v1" }, `--endpoint is "GET v1"`},
		{func(p *attack.Plan) { p.Endpoint = "GET /a\r\nX: y" }, "--endpoint is"},
		{func(p *attack.Plan) { p.Limit.Requests = 0 }, "--limit is 0, want 1 to"},
		{func(p *attack.Plan) { p.Limit.Per = 0 }, "--per is 0s, want 1ms to"},
		{func(p *attack.Plan) { p.Limit.Burst = -1 }, "--burst is -1, want 1 to"},
		{func(p *attack.Plan) { p.Requests = attack.MaxRequests + 1 }, "--requests is 50001, want 1 to 50000"},
		{func(p *attack.Plan) { p.Rate = 1e9 }, "--rate is 1e+09, want 0.1 to 1000"},
		{func(p *attack.Plan) { p.Duration = time.Hour }, "--duration is 1h0m0s, want 1s to 10m0s"},
		{func(p *attack.Plan) { p.Limited = []int{200} }, "--limited-status is 200, want 400 to 599"},
		{func(p *attack.Plan) { p.Header = []attack.Field{{Name: "A b", Value: "c"}} }, "--header is"},
		{func(p *attack.Plan) { p.Header = []attack.Field{{Name: "A", Value: "b\r\nC: d"}} }, "--header is"},
		{func(p *attack.Plan) { p.Requests = 60 },
			"--requests is 60, want 552 or more: there are 6 attacks with up to 23 variations each"},
		{func(p *attack.Plan) { p.Limit.Burst = 100 },
			"the limit admits 100 in this time. Try --rate 1000 --requests 1812 --duration 1m0s"},
		{func(p *attack.Plan) { p.Limit = attack.Limit{Requests: 1000, Per: time.Second, Burst: 10} }, "a lower limit"},
	} {
		p := plan()
		c.change(&p)
		err := p.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("Check of %+v = %v, want %q", p, err, c.want)
		}
	}
	// What the command sends unless told otherwise is enough for all attacks.
	p := plan()
	p.Endpoint, p.Requests, p.Rate = "GET /v1/items/{id}", 1200, 100
	p.Header = []attack.Field{{Name: "authorization", Value: "Bearer x"}}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestRunFindsBatches: an API that takes ten requests in one, behind a limiter that counts one, and
// behind one that reads what it counts.
func TestRunFindsBatches(t *testing.T) {
	for name, c := range map[string]struct {
		counts func(text []byte) int
		want   attack.Verdict
	}{
		"one": {func([]byte) int { return 1 }, attack.Widened},
		"each": {func(text []byte) int {
			var array []json.RawMessage
			if json.Unmarshal(text, &array) != nil {
				return 1
			}
			return len(array)
		}, attack.Held},
	} {
		l := newLimiter(peer)
		site := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			if text[0] != '[' && string(text) != `{"id":1}` || text[1] == '[' ||
				r.Header.Get("Content-Type") != "application/json" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			for range c.counts(text) {
				if !l.take(peer(r)) {
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
			}
		}))
		p := plan()
		p.Endpoint, p.Body, p.Requests = "POST /v1/items/1", `{"id":1}`, 700
		// The budget is gone after the plain requests, so what is seen is what is admitted as it fills.
		p.Limit = attack.Limit{Requests: 100, Per: time.Second, Burst: 10}
		l.limit = p.Limit
		found, err := attack.Run(t.Context(), site, p, func(attack.Finding) {})
		for range 50 { // a machine may be too busy to ask for more than the limit
			if err != nil || verdictOf(found, "batches") != attack.Inconclusive {
				break
			}
			found, err = attack.Run(t.Context(), site, p, func(attack.Finding) {})
		}
		if err != nil || verdictOf(found, "batches") != c.want {
			t.Errorf("a limiter that counts %s: %+v, %v, want %s", name, found, err, c.want)
		}
	}
}
