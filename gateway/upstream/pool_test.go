package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/gateway/upstream"
)

// origin is a server that knows no HTTP: it answers each head by what say makes of it.
type origin struct {
	net.Listener
	conns atomic.Int64 // that were accepted
	heads atomic.Int64 // that were read
}

// serve starts an origin. say is called with each head that came and the connection; the connection ends
// when it returns false.
func serve(t testing.TB, say func(conn net.Conn, in *bufio.Reader, head string) bool) *origin {
	t.Helper()
	return serveOn(t, "tcp", "127.0.0.1:0", say)
}

func serveOn(t testing.TB, network, address string,
	say func(conn net.Conn, in *bufio.Reader, head string) bool) *origin {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.conns.Add(1)
			go o.converse(c, say)
		}
	}()
	return o
}

func (o *origin) converse(c net.Conn, say func(net.Conn, *bufio.Reader, string) bool) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		head, err := readHead(in)
		if err != nil {
			return
		}
		o.heads.Add(1)
		if !say(c, in, head) {
			return
		}
	}
}

func readHead(in *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "\r\n" {
			return head.String(), nil
		}
		head.WriteString(line)
	}
}

// always answers every request by the same bytes.
func always(text string) func(net.Conn, *bufio.Reader, string) bool {
	return func(c net.Conn, _ *bufio.Reader, _ string) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

func newPool(t testing.TB, o *origin, change ...func(*upstream.Options)) *upstream.Pool {
	t.Helper()
	options := upstream.Options{HeaderTimeout: 10 * time.Second}
	if o != nil {
		options.Servers = []upstream.Server{{Address: o.Addr().String()}}
	}
	for _, c := range change {
		c(&options)
	}
	p, err := upstream.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

const get = "GET / HTTP/1.1\r\nHost: api\r\n\r\n"

// ask sends a GET and returns the status and the body.
func ask(p *upstream.Pool) (int, string, error) {
	return send(context.Background(), p, &upstream.Request{Head: []byte(get), Again: true})
}

func send(ctx context.Context, p *upstream.Pool, q *upstream.Request) (int, string, error) {
	var a upstream.Answer
	if err := p.Do(ctx, q, &a); err != nil {
		return 0, "", err
	}
	defer a.Close()
	body, err := io.ReadAll(&a)
	return a.Status, string(body), err
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// Requests one after the other use one connection, and those at once one each.
func TestConnectionsAreKept(t *testing.T) {
	o := serve(t, always(ok))
	p := newPool(t, o)
	for range 50 {
		if status, body, err := ask(p); status != 200 || body != "ok" || err != nil {
			t.Fatal(status, body, err)
		}
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("50 requests used %d connections, want 1", n)
	}
	var both [2]upstream.Answer
	for i := range both {
		if err := p.Do(context.Background(), &upstream.Request{Head: []byte(get)}, &both[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range both {
		_, _ = io.ReadAll(&both[i])
		both[i].Close()
	}
	if got := p.Servers()[0]; o.conns.Load() != 2 || got.Idle != 2 || got.Busy != 0 {
		t.Errorf("two requests at once: %d connections, %+v", o.conns.Load(), got)
	}
}

// A request that ends every server it is sent to is sent three times at most, and not to all of them.
func TestARequestThatEndsServers(t *testing.T) {
	const servers, ends = 5, "GET /ends HTTP/1.1\r\nHost: api\r\n\r\n"
	var ended atomic.Int64
	p := newPool(t, nil, func(o *upstream.Options) {
		for range servers {
			one := serve(t, func(c net.Conn, _ *bufio.Reader, head string) bool {
				if strings.HasPrefix(head, "GET /ends ") {
					ended.Add(1)
					return false
				}
				_, _ = io.WriteString(c, ok)
				return true
			})
			o.Servers = append(o.Servers, upstream.Server{Address: one.Addr().String()})
		}
	})
	for range servers { // so that there are connections that are used again
		if _, _, err := ask(p); err != nil {
			t.Fatal(err)
		}
	}
	q := &upstream.Request{Head: []byte(ends), Again: true}
	if _, _, err := send(context.Background(), p, q); err == nil || ended.Load() != 3 {
		t.Errorf("%v, and it was read %d times, want an error and 3", err, ended.Load())
	}
}

// A server that ends every connection without an answer, as one does that is about to begin anew, costs no request that
// may be sent twice: another one has it. Of the others each that is its turn is lost.
func TestOneServerOfSeveralEnds(t *testing.T) {
	ends := serve(t, func(net.Conn, *bufio.Reader, string) bool { return false })
	serves := serve(t, always(ok))
	for _, again := range []bool{true, false} {
		p := newPool(t, serves, func(o *upstream.Options) {
			o.Servers = append(o.Servers, upstream.Server{Address: ends.Addr().String()})
			o.MaxFails = 1000 // so that it keeps its turn
		})
		lost := 0
		for range 20 {
			q := &upstream.Request{Head: []byte(get), Again: again}
			if _, _, err := send(context.Background(), p, q); err != nil {
				lost++
			}
		}
		if want := map[bool]int{true: 0, false: 10}[again]; lost != want {
			t.Errorf("again %v: %d of 20 requests are lost, want %d", again, lost, want)
		}
	}
}

// At the bound requests wait for a connection, in turn, and no longer than for an answer.
func TestConnectionsAreBounded(t *testing.T) {
	free := make(chan struct{})
	o := serve(t, func(c net.Conn, _ *bufio.Reader, _ string) bool {
		<-free
		_, err := io.WriteString(c, ok)
		return err == nil
	})
	p := newPool(t, o, func(o *upstream.Options) { o.MaxConns = 3 })
	done := make(chan error)
	for range 20 {
		go func() {
			_, _, err := ask(p)
			done <- err
		}()
	}
	for range 20 {
		free <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := o.conns.Load(); n > 3 {
		t.Errorf("%d connections were opened, want at most 3", n)
	}
}

// A bound that nobody leaves.
func TestConnectionsAreAwaitedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := upstream.New(upstream.Options{
			Servers: []upstream.Server{{Address: "a:1"}}, Dial: newFleet().dial,
			MaxConns: 1, HeaderTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		var held upstream.Answer
		if err := p.Do(context.Background(), &upstream.Request{Head: []byte(get)}, &held); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ask(p); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, upstream.ErrNotSent) {
			t.Errorf("without a connection: %v, want that it took too long and was not sent", err)
		}
		ctx, leave := context.WithCancel(context.Background())
		leave()
		if _, _, err := send(ctx, p, &upstream.Request{Head: []byte(get)}); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left gets %v", err)
		}
		held.Close()
		if _, _, err := ask(p); err != nil {
			t.Errorf("once it is given back: %v", err)
		}
		p.Close()
	})
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := upstream.New(upstream.Options{
		Servers: []upstream.Server{{Address: "api"}, {Address: "unix:"}, {Address: "a:1", Weight: -1},
			{Address: "a:1"}}, HeaderTimeout: -1, MaxConns: -2,
		Health: upstream.Health{Path: "x y"},
	})
	for _, want := range []string{`address is "api"`, `address is "unix:"`, "weight -1", `"a:1", which is there twice`,
		"HeaderTimeout is -1ns", "MaxConns is -2", `Health.Path is "x y"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if _, err := upstream.New(upstream.Options{}); err == nil || !strings.Contains(err.Error(), "Servers is empty") {
		t.Error(err)
	}
}
