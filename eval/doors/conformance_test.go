//go:build unix

package doors

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/serve/resp"
	"github.com/headgate-io/headgate/server/envoy"
)

// call is a request of the corpus.
type call struct {
	method, target string
	client         string   // at the other end of the connection
	forwarded      string   // X-Forwarded-For as that sent it
	fields         []string // others, name and value
}

// verdict is what a door says of a call, as far as every door can: the rules that apply with what is left of each and
// when there is more, as the fields have it, and when to come back.
type verdict struct {
	status                       int
	left, limits, retry, methods string
}

// door decides calls, each on a limiter of its own.
type door struct {
	name   string
	decide func(call) verdict
}

// corpus makes calls of every kind: targets in many spellings, known and unknown, methods, clients, balancers and
// fields, each as often as it takes to empty a bucket.
func corpus() (calls []call) {
	rng := rand.New(rand.NewPCG(14, 9))
	targets := []string{
		"/v1/items/1", "/v1/items/2?x=1", "/v1/items/%31", "//v1/items/1", "/v1/./items/1", "/v1/x/../items/1",
		"/v1/items/1/", "/v1/items", "/v1/items/", "/public/a", "/public/a/b/c",
		"/public/%2e%2e/v1/items/1", "/public/a%2fb", "/public/a;b", "/public/%00", "/public/a%5cb", "/none", "/",
		"/v1/items/%zz", "/v1/ITEMS/1", "/v1/items/" + strings.Repeat("x", 300),
		"/login", "/login?user=a&user=b", "/v1/items/1?", "/public/%25", "/public/caf%C3%A9", "/public/%ff",
	}
	methods := []string{"GET", "GET", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"}
	clients := []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "::ffff:192.0.2.1", "10.0.0.1"}
	for range 1000 {
		c := call{
			method: methods[rng.IntN(len(methods))],
			target: targets[rng.IntN(len(targets))],
			client: clients[rng.IntN(len(clients))],
		}
		if rng.IntN(3) == 0 {
			c.forwarded = []string{"198.51.100.1", "198.51.100.2, 10.0.0.2", "unknown", "not an address",
				"198.51.100.3, 192.0.2.9"}[rng.IntN(5)]
		}
		if rng.IntN(12) == 0 {
			c.fields = [][]string{{"Origin", "https://a.example"}, {"Authorization", "Bearer nonsense"},
				{"Accept", "*/*"}}[rng.IntN(3)]
		}
		calls = append(calls, c)
	}
	return calls
}

// bench is a limiter for one door, on the clock that all share.
func bench(t *testing.T, clock *atomic.Int64) *headgate.Limiter {
	t.Helper()
	who, err := identity.New(identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "POST /v1/items", "GET /public/{path...}", "POST /login"} {
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
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Name: "items", Limit: 20, Per: time.Minute},
		{
			Endpoint: "GET /v1/items/{id}",
			Name:     "items by address",
			Subject:  policy.SubjectIP,
			Limit:    15,
			Per:      time.Minute,
			Burst:    30,
		},
		{Endpoint: "POST /login", Name: "logins", Limit: 3, Per: time.Hour},
		{Endpoint: policy.Default, Name: "others", Limit: 10, Per: time.Minute},
		{Endpoint: policy.All, Name: "all", Limit: 100, Per: time.Minute},
		{Endpoint: policy.All, Mode: policy.Block, Subject: policy.SubjectIP, Only: "ip:2001:db8::2"},
		{Endpoint: "GET /public/{path...}", Mode: policy.Allow, Subject: policy.SubjectIP, Only: "ip:192.0.2.2"},
	}}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{
		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
		Now: func() time.Time { return time.Unix(0, clock.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// ofAnswer reads a verdict out of an answer.
func ofAnswer(status int, h http.Header) verdict {
	return verdict{status, h.Get("RateLimit"), h.Get("RateLimit-Policy"), h.Get("Retry-After"), h.Get("Allow")}
}

// header are the fields of a call as its client sent them.
func (c call) header() http.Header {
	h := http.Header{}
	if c.forwarded != "" {
		h.Set("X-Forwarded-For", c.forwarded)
	}
	for i := 0; i+1 < len(c.fields); i += 2 {
		h.Set(c.fields[i], c.fields[i+1])
	}
	return h
}

func (c call) request(t *testing.T) *http.Request {
	r, err := http.NewRequest(c.method, "http://h/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI, r.Header, r.RemoteAddr = c.target, c.header(), net.JoinHostPort(c.client, "4711")
	if r.URL, err = url.ParseRequestURI(c.target); err != nil { // which no server of Go's passes on
		r.URL = nil
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func doors(t *testing.T, clock *atomic.Int64) []door {
	t.Helper()
	limit := func(lim *headgate.Limiter) httplimit.Options {
		return httplimit.Options{Methods: lim.Endpoints().Allowed, MaxWait: -1}
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	upstream := httptest.NewServer(ok)
	t.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	must := func(h http.Handler, err error) http.Handler {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	asked := func(lim *headgate.Limiter) decisions.Options {
		return decisions.Options{Limiter: lim, Limit: limit(lim), Trusted: netip.Addr.IsLoopback}
	}
	question := func(method, target string, h http.Header) *http.Request {
		return &http.Request{
			Method:     method,
			RequestURI: target,
			Proto:      "HTTP/1.1",
			ProtoMajor: 1,
			ProtoMinor: 1,
			Header:     h,
			RemoteAddr: "127.0.0.1:1",
			Body:       http.NoBody,
		}
	}
	chain := func(c call) string {
		if c.forwarded == "" {
			return c.client
		}
		return c.forwarded + ", " + c.client
	}
	middle, gate := bench(t, clock), bench(t, clock)
	middleware := httplimit.Handler(middle, ok, limit(middle))
	proxy := must(gateway.New(gateway.Options{Limiter: gate, Upstream: at, Limit: limit(gate)}))
	forward, nginx := must(decisions.New(asked(bench(t, clock)))), must(decisions.New(asked(bench(t, clock))))
	overHTTP, inJSON := must(decisions.New(asked(bench(t, clock)))), must(decisions.New(asked(bench(t, clock))))
	return []door{
		{"`httplimit`", func(c call) verdict {
			w := serve(middleware, c.request(t))
			return ofAnswer(w.Code, w.Header())
		}},
		{"gateway", func(c call) verdict { w := serve(proxy, c.request(t)); return ofAnswer(w.Code, w.Header()) }},
		{"Traefik, Caddy, HAProxy by Lua: /forward", func(c call) verdict {
			h := c.header()
			h.Set("X-Forwarded-Method", c.method)
			h.Set("X-Forwarded-Uri", c.target)
			h.Set("X-Forwarded-For", chain(c))
			w := serve(forward, question("GET", "/forward", h))
			return ofAnswer(w.Code, w.Header())
		}},
		{"nginx: /nginx", func(c call) verdict {
			h := c.header()
			h.Set("X-Original-Method", c.method)
			h.Set("X-Original-URI", c.target)
			h.Set("X-Real-IP", c.client)
			w := serve(nginx, question("GET", "/nginx", h))
			status := w.Code
			if told := w.Header().Get("Headgate-Status"); told != "" {
				status, _ = strconv.Atoi(told)
			}
			return ofAnswer(status, w.Header())
		}},
		{"Envoy over HTTP: /envoy", func(c call) verdict {
			h := c.header()
			h.Set("X-Forwarded-For", chain(c))
			w := serve(overHTTP, question(c.method, "/envoy"+c.target, h))
			return ofAnswer(w.Code, w.Header())
		}},
		{"programs, in JSON", func(c call) verdict {
			header := map[string][]string(c.header())
			body, err := json.Marshal(map[string]any{"method": c.method, "target": c.target, "client": c.client,
				"header": header})
			if err != nil {
				t.Fatal(err)
			}
			r := question("POST", "/v1/check", http.Header{})
			r.Body = io.NopCloser(bytes.NewReader(body))
			w := serve(inJSON, r)
			var a decisions.Answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", body, w.Code, w.Body)
			}
			h := http.Header{}
			for name, value := range a.Header {
				h.Set(name, value)
			}
			if a.Remaining != nil && !strings.Contains(h.Get("RateLimit"),
				fmt.Sprintf(`"%s";r=%d`, a.Rule, *a.Remaining)) {
				t.Errorf("%s: the fields say %s, and the answer %q and %d", body, h.Get("RateLimit"),
					a.Rule, *a.Remaining)
			}
			return ofAnswer(a.Status, h)
		}},
		overGRPC(t, asked(bench(t, clock))),
		overSPOE(t, asked(bench(t, clock))),
	}
}

func overGRPC(t *testing.T, o decisions.Options) door {
	t.Helper()
	s, err := envoy.New(o, nil, 4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = s.Shutdown(context.Background()) })
	client := auth.NewAuthorizationClient(conn)
	return door{"Envoy over gRPC", func(c call) verdict {
		about := &auth.AttributeContext_HttpRequest{Method: c.method, Path: c.target, HeaderMap: &core.HeaderMap{}}
		for name, lines := range c.header() {
			about.HeaderMap.Headers = append(about.HeaderMap.Headers,
				&core.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(lines[0])})
		}
		answer, err := client.Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Source: &auth.AttributeContext_Peer{Address: &core.Address{
				Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: c.client}}}},
			Request: &auth.AttributeContext_Request{Http: about},
		}})
		if err != nil {
			t.Fatal(err)
		}
		status, fields := http.StatusOK, answer.GetOkResponse().GetResponseHeadersToAdd()
		if denied := answer.GetDeniedResponse(); denied != nil {
			status, fields = int(denied.GetStatus().GetCode()), denied.GetHeaders()
		}
		h := http.Header{}
		for _, f := range fields {
			h.Add(f.GetHeader().GetKey(), f.GetHeader().GetValue())
		}
		return ofAnswer(status, h)
	}}
}

// overRESP asks by HG.CHECK, which has room for the status, and for the rule that binds with what is left of
// it and when to come back.
func overRESP(t *testing.T, o decisions.Options) func(call) (status int, rule, left, retry string) {
	t.Helper()
	answers, err := decisions.NewAnswers(o)
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	s, err := resp.New(resp.Options{
		Buckets: buckets, Name: func([]byte) (key.Key, uint16) { return key.Key{}, 0 }, Now: func() int64 { return 0 },
		Check: answers.Ask, Trusted: netip.Addr.IsLoopback, MaxConnections: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = l.Close(); _ = s.Shutdown(context.Background()) })
	in := bufio.NewReader(conn)
	line := func() string {
		text, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(text, "\r\n")
	}
	return func(c call) (status int, rule, left, retry string) {
		words := []string{"HG.CHECK", c.method, c.target, c.client}
		for name, lines := range c.header() {
			words = append(words, "HEADER", name, lines[0])
		}
		text := fmt.Sprintf("*%d\r\n", len(words))
		for _, w := range words {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if first := line(); first != "*7" {
			t.Fatalf("%q is answered %s", words, first)
		}
		var numbers [6]string
		for i := range numbers {
			numbers[i] = strings.TrimPrefix(line(), ":")
		}
		line() // how long the name is
		rule = line()
		if status, err = strconv.Atoi(numbers[5]); err != nil || (numbers[0] == "0") != (status == http.StatusOK) {
			t.Fatalf("%q: %v, %v", words, numbers, err)
		}
		return status, rule, numbers[2], numbers[3]
	}
}

// row counts of how many calls a door says what the first one does.
type row struct {
	door                         string
	status, left, retry, methods int
}

func (r *row) count(got, want verdict) {
	for n, same := range map[*int]bool{
		&r.status: got.status == want.status, &r.left: got.left == want.left && got.limits == want.limits,
		&r.retry: got.retry == want.retry, &r.methods: got.methods == want.methods,
	} {
		if same {
			*n++
		}
	}
}

var rewrite = flag.Bool("write", false, "write the table of docs/doors.md")

// Every door says the same of every call: the verdict, the rules that apply with what is left, and
// when to come back. The table of docs/doors.md is what was counted here.
func TestConformance(t *testing.T) {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	all := doors(t, &clock)
	redis := overRESP(t, decisions.Options{Limiter: bench(t, &clock), Trusted: netip.Addr.IsLoopback})
	rows := make([]row, len(all))
	byCommand := row{door: "clients of Redis, by HG.CHECK"}
	statuses, calls := map[int]int{}, corpus()
	for i, c := range calls {
		want := all[0].decide(c)
		statuses[want.status]++
		rows[0].count(want, want)
		for j, d := range all[1:] {
			got := d.decide(c)
			if rows[j+1].count(got, want); got != want {
				t.Errorf("call %d, %s %.80s of %s (%q, %q): %s says %+v, want %+v as %s", i, c.method, c.target,
					c.client, c.forwarded, c.fields, d.name, got, want, all[0].name)
			}
		}
		status, rule, left, retry := redis(c)
		if retry == "-1" {
			retry = ""
		}
		got := verdict{status: status, left: want.left, limits: want.limits, retry: retry}
		if rule != "" && !strings.Contains(want.left, fmt.Sprintf(`"%s";r=%s`, rule, left)) ||
			(rule == "") != (want.left == "") {
			got.left = "other"
		}
		byCommand.count(got, want)
		if got.methods = want.methods; got != want {
			t.Errorf("call %d, %s %.80s of %s: HG.CHECK says %d, %q with %s left, again in %s, want %+v as %s", i,
				c.method, c.target, c.client, status, rule, left, retry, want, all[0].name)
		}
		clock.Add(int64(50 * time.Millisecond))
	}
	for _, status := range []int{200, 400, 403, 404, 405, 429} {
		if statuses[status] < 10 {
			t.Errorf("%d calls were answered %d, want 10 or more: the corpus lacks something", statuses[status], status)
		}
	}
	table := "| door | status | limits, and what is left | Retry-After | Allow |\n|---|---|---|---|---|\n"
	for i, r := range rows {
		table += fmt.Sprintf("| %s | %d | %d | %d | %d |\n", all[i].name, r.status, r.left, r.retry, r.methods)
	}
	table += fmt.Sprintf("| %s | %d | %d, of the rule that binds | %d | not told |\n", byCommand.door, byCommand.status,
		byCommand.left, byCommand.retry)
	compareTable(t,
		fmt.Sprintf("<!-- begin: go test ./doors -run TestConformance -write -->\nOf %d calls, how many were "+
			"answered as by `httplimit`:\n\n%s<!-- end -->\n", len(calls), table))
}

// compareTable compares what was counted with the page, or writes it there.
func compareTable(t *testing.T, want string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs", "doors.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(want, "\n")
	begin, end := strings.Index(string(text), before), strings.Index(string(text), "<!-- end -->\n")
	switch {
	case begin < 0 || end < begin:
		t.Fatalf("docs/doors.md has no %s, or nothing that ends it", before)
	case *rewrite:
		write(t, path, string(text[:begin])+want+string(text[end+len("<!-- end -->\n"):]))
	case string(text[begin:end])+"<!-- end -->\n" != want:
		t.Errorf("docs/doors.md has\n%s\nwant\n%s", text[begin:end], want)
	}
}
