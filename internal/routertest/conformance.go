package routertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Call is a request of the corpus that every door decides about.
type Call struct {
	Method, Target string
	Client         string   // at the other end of the connection
	Forwarded      string   // X-Forwarded-For as that sent it
	Fields         []string // others, name and value
}

// Step is how far the clock goes on after each call of the corpus.
const Step = 50 * time.Millisecond

// Corpus makes calls of every kind: targets in many spellings, known and unknown, methods, clients, balancers and
// fields, each as often as it takes to empty a bucket.
func Corpus() (calls []Call) {
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
		c := Call{
			Method: methods[rng.IntN(len(methods))],
			Target: targets[rng.IntN(len(targets))],
			Client: clients[rng.IntN(len(clients))],
		}
		if rng.IntN(3) == 0 {
			c.Forwarded = []string{"198.51.100.1", "198.51.100.2, 10.0.0.2", "unknown", "not an address",
				"198.51.100.3, 192.0.2.9"}[rng.IntN(5)]
		}
		if rng.IntN(12) == 0 {
			c.Fields = [][]string{{"Origin", "https://a.example"}, {"Authorization", "Bearer nonsense"},
				{"Accept", "*/*"}}[rng.IntN(3)]
		}
		calls = append(calls, c)
	}
	return calls
}

// Header are the fields of a call as its client sent them.
func (c Call) Header() http.Header {
	h := http.Header{}
	if c.Forwarded != "" {
		h.Set("X-Forwarded-For", c.Forwarded)
	}
	for i := 0; i+1 < len(c.Fields); i += 2 {
		h.Set(c.Fields[i], c.Fields[i+1])
	}
	return h
}

// Limits are the endpoints and rules that the corpus is decided by, with buckets of their own, on a clock of Unix
// nanoseconds. Balancers are those of 10.0.0.0/8, and the trusted.
func Limits(clock *atomic.Int64, trusted ...netip.Prefix) (headgate.Options, error) {
	who, err := identity.New(identity.Options{
		TrustedProxies: append([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, trusted...),
	})
	if err != nil {
		return headgate.Options{}, err
	}
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "POST /v1/items", "GET /public/{path...}", "POST /login"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			return headgate.Options{}, err
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		return headgate.Options{}, err
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
		return headgate.Options{}, err
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 12})
	return headgate.Options{
		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
		Now: func() time.Time { return time.Unix(0, clock.Load()) },
	}, err
}

// Start is when the corpus begins.
func Start() *atomic.Int64 {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return &clock
}

// Verdict is what a door says of a call, as far as every door can: the rules that apply with what is left of each and
// when there is more, as the fields have it, and when to come back.
type Verdict struct {
	Status                       int
	Left, Limits, Retry, Methods string
	problem                      bool // problem details say so
}

// VerdictOf reads a verdict out of an answer.
func VerdictOf(status int, h http.Header) Verdict {
	return Verdict{
		Status: status, Left: h.Get("RateLimit"), Limits: h.Get("RateLimit-Policy"), Retry: h.Get("Retry-After"),
		Methods: h.Get("Allow"),
	}
}

// Row counts of how many calls a door says what another one does.
type Row struct {
	Door                         string
	Status, Left, Retry, Methods int
}

// Count compares two verdicts about a call.
func (r *Row) Count(got, want Verdict) {
	for n, same := range map[*int]bool{
		&r.Status: got.Status == want.Status, &r.Left: got.Left == want.Left && got.Limits == want.Limits,
		&r.Retry: got.Retry == want.Retry, &r.Methods: got.Methods == want.Methods,
	} {
		if same {
			*n++
		}
	}
}

// String is a row of a table in Markdown.
func (r *Row) String() string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d |\n", r.Door, r.Status, r.Left, r.Retry, r.Methods)
}

// Conforms sends the corpus to the framework and to plain net/http, each as a server, and compares what they decide
// with the table of docs/doors.md.
func (r *Router) Conforms(t *testing.T) {
	clock := Start()
	open := func() headgate.Options {
		t.Helper()
		o, err := Limits(clock)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	p := r.Start(r.routes(), who)
	if _, err := p.Open(open()); err != nil {
		t.Fatal(err)
	}
	serve := p.Serve
	if serve == nil {
		serve = (&http.Server{Handler: p.Handler}).Serve
	}
	lim, err := headgate.New(open())
	if err != nil {
		t.Fatal(err)
	}
	plain := &http.Server{Handler: httplimit.Handler(lim, http.NotFoundHandler(),
		httplimit.Options{Methods: lim.Endpoints().Allowed})}
	framework, library := listen(t, serve), listen(t, plain.Serve)
	row := Row{Door: r.Name}
	for i, c := range Corpus() {
		got, charged := framework.decide(t, c), c
		if r.Statuses == nil {
			got = got.admitted()
		} else if c.Method == http.MethodGet {
			charged.Method = http.MethodPost
		}
		want := library.decide(t, charged).admitted()
		if status, ok := r.Statuses[want.Status]; ok {
			want.Status = status
		}
		row.Count(got, want)
		if got != want {
			t.Errorf("call %d, %s %.80s of %s (%q, %q): %+v, want %+v as net/http", i, c.Method, c.Target, c.Client,
				c.Forwarded, c.Fields, got, want)
		}
		clock.Add(int64(Step))
	}
	page, err := os.ReadFile("../../docs/doors.md")
	if err != nil || !strings.Contains(string(page), row.String()) {
		t.Errorf("docs/doors.md, %v, has not the row\n%s", err, &row)
	}
}

// callers listens for connections that come from any address.
type callers struct {
	come chan net.Conn
	end  chan struct{}
}

func listen(t *testing.T, serve func(net.Listener) error) *callers {
	l, served := &callers{make(chan net.Conn), make(chan struct{})}, make(chan error, 1)
	go func() { served <- serve(l) }()
	t.Cleanup(func() { close(l.end); <-served })
	return l
}

func (l *callers) Accept() (net.Conn, error) {
	select {
	case conn := <-l.come:
		return conn, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

func (l *callers) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
func (l *callers) Close() error   { return nil }

// caller is a connection from an address.
type caller struct {
	net.Conn
	from net.Addr
}

func (c caller) RemoteAddr() net.Addr { return c.from }

// decide sends a call as it stands.
func (l *callers) decide(t *testing.T, c Call) Verdict {
	t.Helper()
	conn, server := net.Pipe()
	defer conn.Close()
	l.come <- caller{server, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.Client), 4711))}
	text := c.Method + " " + c.Target + " HTTP/1.1\r\nHost: h\r\n"
	for name, lines := range c.Header() {
		text += name + ": " + lines[0] + "\r\n"
	}
	_, sent := io.WriteString(conn, text+"\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.Method})
	if err != nil {
		t.Fatalf("%s %s: %v", c.Method, c.Target, errors.Join(sent, err))
	}
	v := VerdictOf(response.StatusCode, response.Header)
	v.problem = response.Header.Get("Content-Type") == "application/problem+json"
	return v
}

// admitted is the verdict alone: what the framework itself answers to a call that was let through is none.
func (v Verdict) admitted() Verdict {
	if !v.problem && (v.Status == 200 || v.Status == 404 || v.Status == 405) {
		v.Status, v.Methods = 200, ""
	}
	v.problem = false
	return v
}
