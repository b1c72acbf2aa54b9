package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/engine"
)

// front is the gateway's code before one server, in this process: what it lets through and what the server answers
// are counted on both sides of it.
type front struct {
	addr  string
	relay *relay
	http  *http.Server
	fast  *engine.Server // before it, if the environment says so

	admitted atomic.Int64 // decisions that let a request through
}

// compile makes the table of the garden's routes, and nil where templates do not fit a profile.
func compile(p endpoint.Profile) (*endpoint.Table, error) {
	var parsed []endpoint.Template
	for _, text := range templates {
		t, err := endpoint.ParseTemplate(text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, t)
	}
	return endpoint.Compile(parsed, p)
}

// limiter has a budget for every template that nobody exhausts. Its name is told in RateLimit-Policy.
func limiter(table *endpoint.Table) (*headgate.Limiter, error) {
	const plenty = 1 << 40
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: plenty},
		{Endpoint: "UNKNOWN", Name: "UNKNOWN", Limit: plenty}}}
	for _, text := range templates {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: text, Name: text, Limit: plenty})
	}
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		return nil, err
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		return nil, err
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		return nil, err
	}
	return headgate.New(headgate.Options{
		Endpoints:  table,
		Policies:   headgate.Fixed(set),
		Buckets:    buckets,
		Identities: who,
		Unknown:    headgate.LimitUnknown,
	})
}

// frontWindow is how many requests are sent to a gateway before the first is answered: net/http answers them in turn.
const frontWindow = 16

// newFront starts a gateway with a profile before addr. Unknown requests are limited and passed on, which is where most
// can go wrong.
func newFront(addr string, p endpoint.Profile) (*front, error) {
	table, err := compile(p)
	if err != nil {
		return nil, err
	}
	lim, err := limiter(table)
	if err != nil {
		return nil, err
	}
	f := &front{}
	if f.relay, err = newRelay(addr); err != nil {
		return nil, err
	}
	upstream, err := url.Parse("http://" + f.relay.addr)
	if err != nil {
		return nil, err
	}
	handler, err := gateway.New(gateway.Options{
		Limiter: lim, Upstream: upstream, UpstreamTimeout: 15 * time.Second, Log: slog.New(slog.DiscardHandler),
		Limit:    httplimit.Options{Methods: table.Allowed},
		Outgoing: func(*http.Request) { f.admitted.Add(1) },
	})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for frames that are written here, without TLS around them
	f.addr = l.Addr().String()
	f.http = &http.Server{
		Handler:           handler,
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 10 * time.Second,
		Protocols:         protocols,
	}
	if os.Getenv(harness.Engine) != "net/http" {
		f.fast = engine.New(f.http)
		go f.fast.Serve(l)
		return f, nil
	}
	go f.http.Serve(l)
	return f, nil
}

func (f *front) stop() {
	if f.fast != nil {
		f.fast.Close()
	}
	f.http.Close()
	f.relay.stop()
}

// settled returns how many requests were let through and how many the server answered, once neither changes any more.
func (f *front) settled() (admitted, seen int64) {
	for range 100 {
		admitted, seen = f.admitted.Load(), f.relay.answers.Load()
		time.Sleep(50 * time.Millisecond)
		if admitted == f.admitted.Load() && seen == f.relay.answers.Load() {
			break
		}
	}
	return admitted, seen
}

// relay passes bytes between the gateway and a server, and counts the answers that the server
// begins: as many requests has it seen, however they were framed.
type relay struct {
	addr    string
	to      string
	l       net.Listener
	answers atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

func newRelay(to string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{addr: l.Addr().String(), to: to, l: l, conns: make(map[net.Conn]bool)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.pass(conn)
		}
	}()
	return r, nil
}

func (r *relay) pass(client net.Conn) {
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		client.Close()
		return
	}
	r.mu.Lock()
	r.conns[client], r.conns[server] = true, true
	r.mu.Unlock()
	end := func() {
		client.Close()
		server.Close()
		r.mu.Lock()
		delete(r.conns, client)
		delete(r.conns, server)
		r.mu.Unlock()
	}
	go func() {
		io.Copy(server, client)
		end()
	}()
	io.Copy(client, &counted{Reader: server, answers: &r.answers})
	end()
}

func (r *relay) stop() {
	r.l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		conn.Close()
	}
}

// counted counts the status lines in what is read through it; those of 100 Continue are no answers.
// No server of the garden writes one into a body.
type counted struct {
	io.Reader
	answers *atomic.Int64
	tail    []byte
}

const statusLine = len("HTTP/1.1 2")

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	text := append(c.tail, p[:n]...)
	for {
		at := bytes.Index(text, []byte("HTTP/1."))
		if at < 0 || len(text) < at+statusLine {
			if at < 0 {
				at = max(len(text)-statusLine+1, 0)
			}
			c.tail = append(c.tail[:0], text[at:]...)
			return n, err
		}
		if text[at+len("HTTP/1.1")] == ' ' && text[at+statusLine-1] != '1' {
			c.answers.Add(1)
		}
		text = text[at+statusLine:]
	}
}

func describe(r request, a answer) string {
	return fmt.Sprintf("%s: served by %q on the budget of %q (status %d, read as method %q)", r, a.route, a.charged,
		a.status, a.method)
}
