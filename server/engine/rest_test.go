package engine

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/race"
)

// count is how many connections wait so.
func (e *Server) count(kind int64) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		if c.phase.Load()&kinds == kind {
			n++
		}
	}
	return n
}

// until looks after connections until ok, for as long as a machine may stand still: who looks all the time counts no
// time of those who are waited for.
func (e *Server) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if ok() {
			return
		}
		e.look()
		runtime.Gosched()
	}
	t.Fatalf("not within a minute: %s", what)
}

// client is a connection to a Server of a test.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (c *client) send(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		t.Fatal(err)
	}
}

// path reads an answer of echoPath, and returns what it says.
func (c *client) path(t testing.TB) string {
	t.Helper()
	a, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func echoPath(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, r.RequestURI+string(body))
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }

// rested is a client that had an answer, and whose connection rests.
func rested(t *testing.T, e *Server, dial func() net.Conn) *client {
	t.Helper()
	before := e.count(resting)
	raw := dial()
	t.Cleanup(func() { _ = raw.Close() })
	c := &client{raw, bufio.NewReader(raw)}
	c.send(t, get("/first"))
	if got := c.path(t); got != "/first" {
		t.Fatal(got)
	}
	e.until(t, "the connection rests", func() bool { return e.count(resting) > before })
	return c
}

// A connection that rests serves what comes as if it had not.
func TestRestingIsNotNoticed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := quiet(http.HandlerFunc(echoPath))
		e := New(s)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		dial := dialer(t, l.Addr().String())
		if secure {
			with := httptest.NewUnstartedServer(nil) // for its certificate
			with.StartTLS()
			defer with.Close()
			l = tls.NewListener(l, with.TLS)
			plain := dial
			trust := with.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			trust.ServerName = "example.com"
			dial = func() net.Conn { return tls.Client(plain(), trust) }
		}
		go func() { _ = e.Serve(l) }()
		defer e.Close()
		for name, parts := range map[string][]string{
			"whole":     {get("/a")},
			"in pieces": {"G", "ET /", "a HTTP/1.1\r\nHo", "st: a\r\n\r", "\n"},
			"two":       {get("/a") + get("/b")},
			"with body": {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "hello"},
			"chunked": {"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
				"lo\r\n0\r\n\r\n"},
			"and closes": {"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
		} {
			c := rested(t, e, dial)
			text := strings.Join(parts, "")
			for i, part := range parts {
				c.send(t, part)
				if i < len(parts)-1 {
					e.until(t, "the connection wakes", func() bool { return e.count(resting) == 0 })
				}
			}
			want := "/a"
			if strings.Contains(text, "hel") {
				want += "hello"
			}
			if got := c.path(t); got != want {
				t.Errorf("TLS %v, %s: %q, want %q", secure, name, got, want)
			}
			if strings.Contains(text, "/b") {
				if got := c.path(t); got != "/b" {
					t.Errorf("TLS %v, %s: %q comes second, want /b", secure, name, got)
				}
			}
			_ = c.Close()
			e.until(t, "the connection ends", func() bool { return e.look() == 0 })
		}
	}
}

// What old clients send behind the body of a POST is forgiven after a rest as before, as net/http does.
func TestRestForgets(t *testing.T) {
	e, at := started(t, quiet(http.HandlerFunc(echoPath)))
	dial := dialer(t, at)
	c := rested(t, e, dial)
	c.send(t, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	if got := c.path(t); got != "/ahello" {
		t.Errorf("%q, want /ahello", got)
	}
	e.until(t, "it rests again", func() bool { return e.count(resting) == 1 })
	c.send(t, "\r\n"+get("/b"))
	if got := c.path(t); got != "/b" {
		t.Errorf("behind a line end %q, want /b", got)
	}
}

// Who does not take an answer by its deadline is cut off, and the next request knows nothing of the deadline.
func TestWriteDeadlinesAreNoted(t *testing.T) {
	failed := make(chan error, 1)
	e, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.SetWriteDeadline(time.Now().Add(4 * scanEvery)); err != nil {
			t.Error(err)
		}
		if r.URL.Path != "/endless" {
			echoPath(w, r)
			return
		}
		var err error
		for part := make([]byte, 1<<20); err == nil; {
			_, err = w.Write(part)
		}
		failed <- err
	})))
	raw := dialer(t, at)()
	defer raw.Close()
	c := &client{raw, bufio.NewReader(raw)}
	for range 3 {
		c.send(t, get("/a"))
		if got := c.path(t); got != "/a" {
			t.Fatal(got)
		}
		for range 20 {
			e.look()
		}
	}
	c.send(t, get("/endless"))
	var err error
	e.until(t, "the answer ends", func() bool {
		select {
		case err = <-failed:
		default:
		}
		return err != nil
	})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer ended by %v, want its deadline", err)
	}
}

// A handler that is late may take more time, as with net/http: the deadline that is over does not hold for its answer,
// nor for that of the next request.
func TestWriteDeadlinesAreReplaced(t *testing.T) {
	var e *Server
	next := make(chan time.Duration, 1)
	e, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.SetWriteDeadline(time.Now().Add(4 * scanEvery)); err != nil {
			t.Error(err)
		}
		c := w.(*answer).c
		e.until(t, "the deadline is over", func() bool { return c.writeBy.Load() == notSent })
		by := time.Time{}
		if later := <-next; later > 0 {
			by = time.Now().Add(later)
		}
		if err := control.SetWriteDeadline(by); err != nil {
			t.Error(err)
		}
		echoPath(w, r)
	})))
	raw := dialer(t, at)()
	defer raw.Close()
	c := &client{raw, bufio.NewReader(raw)}
	for _, later := range []time.Duration{time.Hour, 0, time.Hour} {
		next <- later
		c.send(t, get("/a"))
		if got := c.path(t); got != "/a" {
			t.Errorf("%v more: %q, want /a", later, got)
		}
	}
}

// Who has begun a head is asked once for what the wait holds: only so many are between two looks, and others wait too.
func TestHalfAHeadIsAskedOnce(t *testing.T) {
	e, at := started(t, quiet(http.HandlerFunc(echoPath)))
	c := rested(t, e, dialer(t, at))
	c.send(t, "GE")
	// Before it has read what came it may be asked more than once: it holds nothing yet.
	calm := 0
	e.until(t, "it waits for the rest, and nobody asks it again", func() bool {
		waits := e.count(drowsy) == 1
		e.mu.Lock()
		defer e.mu.Unlock()
		if calm++; !waits || e.wake != mostWake {
			calm = 0
		}
		return calm == 5000
	})
	c.send(t, get("/a")[len("GE"):])
	if got := c.path(t); got != "/a" {
		t.Errorf("%q, want /a", got)
	}
}

// dialer dials an address.
func dialer(t *testing.T, at string) func() net.Conn {
	return func() net.Conn {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// However long it takes from a head to its request, whoever looks reads nothing of what comes behind it: neither the
// body of a request that is served here, nor what is for net/http.
func TestNobodyReadsARequestAway(t *testing.T) {
	for head, body := range map[string]string{
		"Content-Length: 5\r\n":          "hello",
		"Transfer-Encoding: chunked\r\n": "5\r\nhello\r\n0\r\n\r\n",
		"TE: x\r\nContent-Length: 5\r\n": "hello",
	} {
		var e *Server
		began := make(chan bool, 1)
		s := quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began <- true
			echoPath(w, r)
		}))
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			for n := 0; state == http.StateActive && n < 1000; n++ {
				e.look()
				runtime.Gosched()
			}
		}
		e, at := started(t, s)
		raw := dialer(t, at)()
		defer raw.Close()
		_ = raw.SetDeadline(time.Now().Add(time.Minute))
		c := &client{raw, bufio.NewReader(raw)}
		c.send(t, "POST /a HTTP/1.1\r\nHost: a\r\n"+head+"\r\n")
		<-began
		c.send(t, body)
		if got := c.path(t); got != "/ahello" {
			t.Errorf("%q: %q, want /ahello", head, got)
		}
	}
}

// A client that waits for too long has its connection closed while it rests.
func TestRestIsBounded(t *testing.T) {
	const most = 1 << 30 // looks, of which there are fewer before it rests however late that is
	s := quiet(http.HandlerFunc(echoPath))
	s.IdleTimeout = most * scanEvery
	e, at := started(t, s)
	c := rested(t, e, dialer(t, at))
	e.tick.Add(most)
	e.until(t, "the connection ends", func() bool { return e.look() == 0 })
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("who waited for too long reads %q, %v", rest, err)
	}
}

// A client that leaves is noticed while its connection rests, and a Server that ends waits for none.
func TestRestEnds(t *testing.T) {
	e, at := started(t, quiet(http.HandlerFunc(echoPath)))
	dial := dialer(t, at)
	c := rested(t, e, dial)
	_ = c.Close()
	e.until(t, "the connection of who left ends", func() bool { return e.look() == 0 })

	c = rested(t, e, dial)
	c.send(t, get("/last"))
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := c.path(t); got != "/last" {
		t.Errorf("the answer to a request with the end behind it is %q", got)
	}
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("behind it comes %q, %v", rest, err)
	}

	c = rested(t, e, dial)
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("at the end of the Server %q comes, %v", rest, err)
	}
}

// Connections that are asked to rest all the time, between any two bytes, serve each request once and in order.
func TestRestingAtAnyMoment(t *testing.T) {
	e := New(quiet(http.HandlerFunc(echoPath)))
	e.restAfter = 0
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = e.Serve(l) }()
	defer e.Close()
	var ended atomic.Bool
	var woken atomic.Int64
	var looker sync.WaitGroup
	looker.Go(func() {
		for !ended.Load() {
			e.look()
			woken.Add(int64(e.count(resting)))
			runtime.Gosched()
		}
	})
	seed := rand.Uint64()
	var all sync.WaitGroup
	for n := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, n))
			raw, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer raw.Close()
			in := bufio.NewReader(raw)
			const requests = 200
			for sent := 0; sent < requests; {
				// The last one has the end behind it. That may be seen while it is served, and others would be lost.
				text, more := "", max(1, min(1+r.IntN(3), requests-1-sent))
				for i := range more {
					text += get(fmt.Sprint("/", sent+i))
				}
				for text != "" {
					cut := 1 + r.IntN(len(text))
					if r.IntN(4) == 0 {
						cut = len(text)
					}
					if _, err := io.WriteString(raw, text[:cut]); err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					text = text[cut:]
					runtime.Gosched()
				}
				if sent+more >= requests {
					_ = raw.(*net.TCPConn).CloseWrite()
				}
				for i := range more {
					a, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					body, _ := io.ReadAll(a.Body)
					if want := fmt.Sprint("/", sent+i); string(body) != want {
						t.Errorf("seed %d: %q, want %q", seed, body, want)
					}
				}
				sent += more
			}
			if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
				t.Errorf("seed %d: at the end comes %q, %v", seed, rest, err)
			}
		})
	}
	all.Wait()
	ended.Store(true)
	looker.Wait()
	if woken.Load() == 0 {
		t.Error("no connection ever rested")
	}
}

// What an idle connection holds, of heap and of stack, with the client's end of it.
func TestIdleConnectionsHoldLittle(t *testing.T) {
	e, at := started(t, quiet(http.HandlerFunc(echoPath)))
	const connections = 400
	held := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := held()
	buf := make([]byte, 1<<10)
	for range connections {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, get("/a")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	e.until(t, "all rest", func() bool { return e.count(resting) == connections })
	if each := (held() - before) / connections; each > 6<<10 && !race.Enabled {
		t.Errorf("an idle connection holds %d bytes, want 6 KiB at most", each)
	} else {
		t.Logf("an idle connection holds %d bytes", each)
	}
}
