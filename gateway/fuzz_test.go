package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// The property: whatever bytes a client sends, the API gets only
// requests that were charged, each with the target that was charged, and a
// ServeMux behind serves it by the route that was charged, if by any.

// patterns are the API's, as its ServeMux has them.
var patterns = []string{
	"GET /v1/items/{id}", "POST /v1/items", "GET /v1/exports", "DELETE /v1/items/{id}", "POST /login",
	"GET /v1/admin/{rest...}", "GET /{$}", "GET /files/{path...}",
}

// glass is a gateway through which everything can be seen: unknown requests
// pass, and what is charged and what the API gets is written down.
type glass struct {
	base  string
	mux   *http.ServeMux
	table *endpoint.Table
	route map[string]string // by the text of its templates

	mu      sync.Mutex
	charged []charge // guarded by mu: that were let through
	got     []string // guarded by mu: request lines that the API got
}

type charge struct {
	method, target string
	template       string // empty if unknown
}

func newGlass(t testing.TB, basePath string) *glass {
	t.Helper()
	g := &glass{mux: http.NewServeMux(), route: map[string]string{}}
	var routes []pattern.Route
	for _, p := range patterns {
		g.mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) {})
		routes = append(routes, pattern.Route{Pattern: p})
		own, err := pattern.ServeMux.Templates(pattern.Route{Pattern: p})
		if err != nil {
			t.Fatal(err)
		}
		for _, template := range own {
			g.route[template.String()] = p
		}
	}
	templates, err := pattern.ServeMux.Templates(routes...)
	if err != nil {
		t.Fatal(err)
	}
	if g.table, err = endpoint.Compile(templates, pattern.ServeMux.Profile()); err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.All, Limit: 1 << 40}}},
		policy.CompileOptions{Endpoints: g.table})
	buckets, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil || problems.Err() != nil {
		t.Fatal(err, problems.Err())
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{
		Endpoints: g.table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
		Unknown: headgate.LimitUnknown, Observe: g.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(g.listen(t) + basePath)
	if err != nil {
		t.Fatal(err)
	}
	h, err := gateway.New(gateway.Options{
		Limiter: lim, Upstream: upstream, Log: slog.New(slog.DiscardHandler),
		Limit: httplimit.Options{Peer: func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.DisableGeneralOptionsHandler = true
	server.Config.ReadTimeout = 100 * time.Millisecond // for what never ends
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	g.base = server.URL
	return g
}

func (g *glass) observe(r *headgate.Request, d *headgate.Decision) {
	if !d.Allowed {
		return
	}
	c := charge{method: r.Method, target: r.Target}
	if d.Endpoint.Status == endpoint.Known {
		c.template = g.table.Template(d.Endpoint.ID).String()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.charged = append(g.charged, c)
}

// listen starts the API. It reads requests by net/http, so that it knows where
// bodies end, and keeps their first lines as they came.
func (g *glass) listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

func (g *glass) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReaderSize(conn, 1<<17); ; {
		if _, err := in.Peek(1); err != nil {
			return
		}
		buffered, _ := in.Peek(in.Buffered())
		line, _, _ := bytes.Cut(buffered, []byte("\r\n"))
		g.mu.Lock()
		g.got = append(g.got, string(line))
		g.mu.Unlock()
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.Header.Get("Expect") != "" {
			fmt.Fprint(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// send1 writes bytes to the gateway, and reads until it closes the connection.
func (g *glass) send1(t testing.TB, stream []byte) (answers string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(stream) // the gateway may have closed it by then
	text, _ := io.ReadAll(conn)
	return string(text)
}

// check holds what the API got against what was charged since the last call.
func (g *glass) check(t testing.TB, basePath, sent string) {
	t.Helper()
	g.mu.Lock()
	got := g.got
	// The API may come to read the head of a request that broke off after the
	// client has seen the end, and others were served: many charges stay until then.
	charged := slices.Clone(g.charged)
	g.got, g.charged = nil, g.charged[max(0, len(g.charged)-64):]
	g.mu.Unlock()
	for _, line := range got {
		at := slices.IndexFunc(charged, func(c charge) bool {
			return line == c.method+" "+basePath+escapedImpossible(c.target)+" HTTP/1.1"
		})
		if at < 0 {
			t.Fatalf("the API got %q of %q; charged was %q", line, sent, charged)
		}
		if basePath == "" {
			g.checkRoute(t, line, charged[at])
		}
		charged = slices.Delete(charged, at, at+1)
	}
}

// checkRoute reads a line as a server with a ServeMux does.
func (g *glass) checkRoute(t testing.TB, line string, c charge) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + "\r\nHost: api\r\n\r\n")))
	if err != nil {
		t.Fatalf("net/http does not read the line %q, which was sent to the API: %v", line, err)
	}
	if target := httplimit.Target(r); target != escapedImpossible(c.target) {
		t.Fatalf("the next reader's target of %q is %q, and %q was charged", line, target, c.target)
	}
	w := httptest.NewRecorder()
	g.mux.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return // a redirect, or no route
	}
	if c.template != "" && r.Pattern != g.route[c.template] {
		t.Fatalf("%q was charged as %q and is served by %q", line, c.template, r.Pattern)
	}
}

// escapedImpossible is what becomes of bytes that no path may hold.
func escapedImpossible(target string) string {
	path, query, asked := strings.Cut(target, "?")
	for _, c := range "\"<>^`{|}" {
		path = strings.ReplaceAll(path, string(c), fmt.Sprintf("%%%02X", c))
	}
	if asked {
		return path + "?" + query
	}
	return path
}

// heads are first lines that have confused some reader.
var heads = append([]string{
	"GET /v1/items/7", "GET //v1/./items/%37", "POST /v1/items", "GET /v1/items/a%2Fb", "GET /v1/items/a%2Fb{c}",
	"GET /../v1/exports", "GET /files/a/%2e%2e/b",
	"GET http://api/v1/items/1?a=%zz;b", "GET /v1/items/1?a={\"b\"}|^", "GET /v1/items;v=1", "HEAD /v1/items/1",
	"DELETE /v1/items/1?", "G\xe9T /v1/items/1",
	"GET /v1/items/1 HTTP/1.1\r\nX: y\r\n\r\nGET /v1/exports",
}, confusing...)

var tails = []string{
	"", "Connection: close\r\n", "Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
	"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
	"Transfer-Encoding: chunked\r\nTrailer: X-Api-Key\r\n\r\n1\r\na\r\n0\r\nX-Api-Key: k\r\n",
	"X-HTTP-Method-Override: DELETE\r\n", "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na",
	"Connection: Upgrade\r\nUpgrade: h2c\r\n", "Content-Length: 0\r\nContent-Length: 5\r\n",
	"Transfer-Encoding : chunked\r\n", "Host: other\r\n",
}

const last = "GET /v1/items/last HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n"

// FuzzRequestBytes sends arbitrary bytes over HTTP/1.
func FuzzRequestBytes(f *testing.F) {
	for i, head := range heads {
		f.Add([]byte(head + " HTTP/1.1\r\nHost: api\r\n" + tails[i%len(tails)] + "\r\n"))
	}
	g, under := newGlass(f, ""), newGlass(f, "/base%2F")
	f.Fuzz(func(t *testing.T, stream []byte) {
		g.send1(t, append(stream, last...))
		g.check(t, "", string(stream))
		under.send1(t, append(stream, last...))
		under.check(t, "/base%2F", string(stream))
	})
}

// FuzzRequestFields sends arbitrary methods and paths over HTTP/2.
func FuzzRequestFields(f *testing.F) {
	for _, head := range heads {
		method, target, _ := strings.Cut(head, " ")
		f.Add(method, target)
	}
	g := newGlass(f, "")
	f.Fuzz(func(t *testing.T, method, target string) {
		if len(method)+len(target) > 10_000 {
			return // more than a frame
		}
		ask2(t, g.base, method, target)
		g.check(t, "", method+" "+target)
	})
}

// TestRequestsAreCharged is a short run of both with made-up requests.
func TestRequestsAreCharged(t *testing.T) {
	g := newGlass(t, "")
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	served := 0
	for range 600 {
		var stream strings.Builder
		for range 1 + random.IntN(3) {
			head := mutated(random, heads[random.IntN(len(heads))])
			stream.WriteString(head + " HTTP/1." + []string{"1", "1", "1", "0"}[random.IntN(4)] + "\r\nHost: api\r\n" +
				tails[random.IntN(len(tails))] + "\r\n")
			if method, target, ok := strings.Cut(head, " "); ok {
				ask2(t, g.base, method, target)
				g.check(t, "", head)
			}
		}
		served += strings.Count(g.send1(t, []byte(stream.String()+last)), " 200 OK\r\n")
		g.check(t, "", stream.String())
	}
	if served < 40 {
		t.Errorf("%d requests were served, so little was seen", served)
	}
}

// mutated changes a few bytes of a line.
func mutated(random *rand.Rand, line string) string {
	const alphabet = "/.%:;?#@\\ \t*{}|\"2fF5cCe3b\x80\xff\x00abAB"
	b := []byte(line)
	for range random.IntN(4) {
		at := random.IntN(len(b))
		c := alphabet[random.IntN(len(alphabet))]
		switch random.IntN(3) {
		case 0:
			b[at] = c
		case 1:
			b = append(b[:at], append([]byte{c}, b[at:]...)...)
		default:
			if len(b) > 1 {
				b = append(b[:at], b[at+1:]...)
			}
		}
	}
	return string(b)
}
