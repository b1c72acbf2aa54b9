package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/gateway/upstream"
)

// TestAnswersThatEndTheConnection: after these nothing is sent on the connection, whatever else is in them.
func TestAnswersThatEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		body   string
		head   bool
	}{
		"close": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", "ok", false},
		"close among others": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nok", "ok",
			false},
		"another option": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: upgrade\r\n\r\nok", "ok",
			false},
		"HTTP/1.0": {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", "ok",
			false},
		"more than was announced": {
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "ok",
			false},
		"more behind chunks": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 " +
			"200 OK\r\nContent-Length: 4\r\n\r\nevil", "ok", false},
		"204 with a body": {
			"HTTP/1.1 204 No Content\r\nContent-Length: 44\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" +
				"evil", "", false},
		"204 with chunks":  {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", false},
		"304 with chunks":  {"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", "", false},
		"HEAD with a body": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, always(c.answer))
			p := newPool(t, o)
			for i := range int64(3) {
				_, body, err := send(context.Background(), p, &upstream.Request{Head: []byte(get), ToHEAD: c.head})
				if body != c.body || err != nil {
					t.Errorf("the body is %q, %v, want %q", body, err, c.body)
				}
				if n := o.conns.Load(); n != i+1 {
					t.Errorf("after %d requests there were %d connections", i+1, n)
				}
			}
		})
	}
}

// TestWhatIsSaidUnasked: what comes on a connection after its answer is nobody's answer, nor is a
// connection used that was closed. Both are found before the next request is sent, whatever its method and body.
func TestWhatIsSaidUnasked(t *testing.T) {
	for name, more := range map[string]string{
		"another answer": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"one byte":       "H",
		"it is closed":   "",
	} {
		for _, body := range []string{"", "all"} {
			t.Run(name+body, func(t *testing.T) {
				said := make(chan struct{})
				o := serve(t, func(c net.Conn, in *bufio.Reader, _ string) bool {
					_, _ = in.Discard(len(body))
					_, _ = io.WriteString(c, ok)
					<-said
					_, _ = io.WriteString(c, more)
					if more == "" {
						c.Close()
					}
					said <- struct{}{}
					return more != ""
				})
				p := newPool(t, o)
				for i := range int64(3) {
					q := &upstream.Request{Head: []byte(get)}
					if body != "" {
						q = &upstream.Request{
							Head: []byte("POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 3\r\n\r\n"),
							Body: strings.NewReader(body), Length: int64(len(body)),
						}
					}
					if _, answer, err := send(context.Background(), p, q); answer != "ok" || err != nil {
						t.Fatalf("request %d: %q, %v", i, answer, err)
					}
					said <- struct{}{}
					<-said
					if n := o.conns.Load(); n != i+1 {
						t.Errorf("after %d requests there were %d connections", i+1, n)
					}
				}
			})
		}
	}
}

// Whoever leaves an answer before its end leaves its connection, even if the rest has not come yet.
func TestAnswersThatAreLeft(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		p := newPool(t, serve(t, always(answer)))
		var a upstream.Answer
		if err := p.Do(context.Background(), &upstream.Request{Head: []byte(get)}, &a); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if n := p.Servers()[0].Idle; n != 0 {
			t.Errorf("%q: %d connections are kept, want none", answer, n)
		}
	}
}

// A connection that dies under a request is why a safe request is sent again, once, and no other one.
// Whenever an answer's pieces and the end of its connection come, nobody waits for what is there already: over TCP and
// Unix sockets, on connections that are new, kept, and just closed.
func TestPiecesAndEndsAtAnyMoment(t *testing.T) {
	for network, address := range map[string]string{
		"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "server.sock"),
	} {
		var n atomic.Uint64
		o := serveOn(t, network, address, func(c net.Conn, _ *bufio.Reader, head string) bool {
			rng := rand.New(rand.NewPCG(n.Add(1), 0))
			target := strings.Fields(head)[1]
			text := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target)
			for text != "" {
				piece := len(text)
				if rng.IntN(2) == 0 {
					piece = 1 + rng.IntN(len(text))
				}
				if _, err := io.WriteString(c, text[:piece]); err != nil {
					return false
				}
				text = text[piece:]
				for range rng.IntN(3) {
					runtime.Gosched()
				}
			}
			return rng.IntN(4) > 0
		})
		at := o.Addr().String()
		if network == "unix" {
			at = "unix:" + at
		}
		p := newPool(t, nil, func(opts *upstream.Options) { opts.Servers = []upstream.Server{{Address: at}} })
		var all sync.WaitGroup
		for client := range 8 {
			all.Go(func() {
				for i := range 400 {
					target := fmt.Sprintf("/%d/%d", client, i)
					status, body, err := send(t.Context(), p, &upstream.Request{
						Head: []byte("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"), Again: true,
					})
					if status != 200 || body != target || err != nil {
						t.Errorf("%s %s: %d %q, %v", network, target, status, body, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

func TestRetriesAskTheMethod(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string // to the second request of each connection, which then ends
		again  bool
		served int64
		fails  bool
	}{
		{"safe", "", true, 3, false},
		{"not safe", "", false, 2, true},
		{"an answer began", "HTTP/1.1 2", true, 2, true},
		{"an answer was announced", "HTTP/1.1 103 Early Hints\r\n\r\n", true, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := serve(t, func() func(net.Conn, *bufio.Reader, string) bool {
				var n atomic.Int64
				return func(conn net.Conn, _ *bufio.Reader, _ string) bool {
					if n.Add(1) == 2 {
						_, _ = io.WriteString(conn, c.answer)
						return false
					}
					_, _ = io.WriteString(conn, ok)
					return true
				}
			}())
			p := newPool(t, o)
			q := &upstream.Request{Head: []byte(get), Again: c.again}
			if _, _, err := send(context.Background(), p, q); err != nil {
				t.Fatal(err)
			}
			_, _, err := send(context.Background(), p, q)
			if (err != nil) != c.fails || errors.Is(err, upstream.ErrNotSent) || o.heads.Load() != c.served {
				t.Errorf("%v, and the server read %d requests; want it to fail: %v, and %d", err, o.heads.Load(),
					c.fails, c.served)
			}
		})
	}
	// Nor is a request sent again that was the first of its connection: the server closes all of them.
	o := serve(t, func(net.Conn, *bufio.Reader, string) bool { return false })
	if _, _, err := ask(newPool(t, o)); err == nil || o.heads.Load() != 1 {
		t.Errorf("%v after %d requests, want an error after one", err, o.heads.Load())
	}
}

// Whoever leaves while a server is silent ends the request and its connection, at each stage.
func TestClientsThatLeave(t *testing.T) {
	for name, said := range map[string]string{
		"before the answer": "", "in its head": "HTTP/1.1 200",
		"in its body":    "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234",
		"between chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n",
	} {
		for _, size := range []int{0, 8 << 10} { // longer heads are sent in another way
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				arrived, over := make(chan struct{}), make(chan struct{})
				o := serve(t, func(c net.Conn, in *bufio.Reader, _ string) bool {
					_, _ = io.WriteString(c, said)
					close(arrived)
					_, _ = in.ReadByte() // until the other end closes
					close(over)
					return false
				})
				p := newPool(t, o)
				ctx, leave := context.WithCancel(context.Background())
				done := make(chan error)
				go func() {
					_, _, err := send(ctx, p, &upstream.Request{Head: []byte("GET / HTTP/1.1\r\nHost: api\r\nX: " +
						strings.Repeat("x", size) + "\r\n\r\n")})
					done <- err
				}()
				<-arrived
				leave()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("it ends with %v, want context.Canceled", err)
				}
				<-over
				if got := p.Servers()[0]; got.Busy != 0 || got.Idle != 0 {
					t.Errorf("%+v, want no connection", got)
				}
			})
		}
	}
}

// The head of an answer is waited for as long as Options say, whether bytes come or not; a body longer.
func TestHeadersAreDueInTime(t *testing.T) {
	for name, piece := range map[string]string{"silence": "", "a byte at a time": "x",
		"1xx": "HTTP/1.1 102 Processing\r\n\r\n"} {
		stop := make(chan struct{})
		o := serve(t, func(c net.Conn, _ *bufio.Reader, _ string) bool {
			if piece == "x" {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return false
				case <-tick.C:
					if _, err := io.WriteString(c, piece); err != nil {
						return false
					}
				}
			}
		})
		p := newPool(t, o, func(o *upstream.Options) { o.HeaderTimeout = 60 * time.Millisecond })
		for _, q := range []*upstream.Request{
			{Head: []byte(get)},
			{
				Head:   []byte("POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 4\r\n\r\n"),
				Body:   strings.NewReader("body"),
				Length: 4,
			},
		} {
			if _, _, err := send(context.Background(), p, q); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v, want that it took too long", name, err)
			}
		}
		close(stop)
	}
}

// A body may take longer than the head may, and an answer longer than it takes to be watched.
func TestBodiesMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := upstream.New(upstream.Options{
			Servers: []upstream.Server{{Address: "a:1"}}, HeaderTimeout: time.Minute,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					in := bufio.NewReader(theirs)
					for {
						if _, err := readHead(in); err != nil {
							return
						}
						for _, part := range []string{"HTTP/1.1 200 OK\r\n", "Content-Length: 2\r\n\r\n", "o", "k"} {
							time.Sleep(25 * time.Second) // virtual
							_, _ = io.WriteString(theirs, part)
						}
					}
				}()
				return ours, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, long := range []int{0, 8 << 10, 0} {
			q := &upstream.Request{Head: []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", long) + "\r\n\r\n")}
			if status, body, err := send(context.Background(), p, q); status != 200 || body != "ok" || err != nil {
				t.Errorf("a slow answer: %d %q, %v", status, body, err)
			}
		}
		if got := p.Servers()[0]; got.Idle != 1 || got.Busy != 0 {
			t.Errorf("%+v, want the one connection", got)
		}
		p.Close()
	})
}

// An answer that is whole before the request is leaves a connection on which the server waits for the rest of a body:
// the next request would be that.
func TestAnswersBeforeTheBody(t *testing.T) {
	p := newPool(t, serve(t, always(ok)))
	body, more := io.Pipe()
	defer more.Close()
	for _, length := range []int64{100, -1} {
		framing := "Transfer-Encoding: chunked"
		if length > 0 {
			framing = "Content-Length: 100"
		}
		status, answer, err := send(context.Background(), p, &upstream.Request{
			Head: []byte("POST / HTTP/1.1\r\nHost: api\r\n" + framing + "\r\n\r\n"), Body: body, Length: length,
		})
		if status != 200 || answer != "ok" || err != nil {
			t.Fatal(status, answer, err)
		}
		if n := p.Servers()[0].Idle; n != 0 {
			t.Errorf("%s: %d connections are kept, want none", framing, n)
		}
	}
}
