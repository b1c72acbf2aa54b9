package engine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/streams"
)

// quiet is a net/http server without a log.
func quiet(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// started serves h on a socket until the test ends.
func started(t testing.TB, s *http.Server) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := New(s)
	ended := make(chan error, 1)
	go func() { ended <- e.Serve(l) }()
	t.Cleanup(func() {
		_ = e.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Errorf("Serve ended by %v, want http.ErrServerClosed", err)
		}
	})
	return e, l.Addr().String()
}

// In the steady state a request allocates nothing.
func TestRequestsAllocateNothing(t *testing.T) {
	typed, length, ok := []string{"text/plain"}, []string{"2"}, []byte("ok")
	s := quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"], w.Header()["Content-Length"] = typed, length
		_, _ = w.Write(ok)
	}))
	e := New(s)
	c := &conn{server: e, net: streams.NewConn(nil), session: sessions.New().(*session)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.blank = new(http.Request).WithContext(c.ctx)
	text := []byte("GET /v1/books/12?a=b HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: curl/8.5.0\r\n" +
		"Accept: */*\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() {
		c.net.(*streams.Conn).In = text
		if v := c.readHead(); v != plain || !c.serveOne() {
			t.Fatalf("read as %d", v)
		}
	}); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
}

func dial(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// What is asked in one connection is answered in order, also if a request comes in pieces, and those behind a request
// that is not plain by net/http.
func TestRequestsInOneConnection(t *testing.T) {
	e, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, body, r.RemoteAddr)
	})))
	c := dial(t, at)
	in := bufio.NewReader(c)
	stream := "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" + "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" +
		"GET /3 HTTP/1.1\r\nHost: a\r\n\r\n" + "POST /4 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"2\r\nhi\r\n0\r\n\r\n" + "GET /5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	go func() {
		for i := range stream {
			_, _ = c.Write([]byte{stream[i]})
		}
	}()
	for _, want := range []string{"GET /1 ", "POST /2 hello", "GET /3 ", "POST /4 hi", "GET /5 "} {
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(a.Body)
		if want += " " + c.LocalAddr().String(); string(got) != want {
			t.Errorf("answered %q, want %q", got, want)
		}
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("behind the last answer: %v, want the end", err)
	}
	if s := e.Stats(); s != (Stats{Plain: 3, Handed: 1}) {
		t.Errorf("stats = %+v, want 3 requests served and 1 connection handed over", s)
	}
}

// A client that sends the end with its request is answered, and its connection ends.
func TestRequestAndEndAtOnce(t *testing.T) {
	_, at := started(t, quiet(http.HandlerFunc(various)))
	c := dial(t, at)
	_, _ = c.Write([]byte("GET /small HTTP/1.1\r\nHost: a\r\n\r\n"))
	_ = c.CloseWrite()
	text, err := io.ReadAll(c)
	if err != nil || !bytes.HasSuffix(text, []byte("xxxxx")) {
		t.Errorf("answered %q, %v, want it whole, and the end", text, err)
	}
}

// A client that leaves ends its request's context.
func TestClientLeaves(t *testing.T) {
	began, over := make(chan bool), make(chan error)
	e, at := started(t, quiet(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began <- true
		<-r.Context().Done()
		over <- r.Context().Err()
	})))
	for _, length := range []int{0, 100, maxHead, 3 * maxHead} { // also where what is read at once fills the buffer
		c := dial(t, at)
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", length,
			strings.Repeat("x", length))
		<-began
		_ = c.Close()
		for end := time.After(10 * time.Second); ; {
			e.look() // as time would
			select {
			case err := <-over:
				if err != context.Canceled {
					t.Errorf("the context ended by %v", err)
				}
			case <-end:
				t.Fatalf("with a body of %d bytes nobody notices that the client left", length)
			case <-time.After(time.Millisecond):
				continue
			}
			break
		}
	}
}

// What a client sends while its request takes long is its next request.
func TestNextRequestDuringALongOne(t *testing.T) {
	began, goOn := make(chan bool, 9), make(chan bool)
	e, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- true
		if r.URL.Path == "/slow" {
			<-goOn
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})))
	c := dial(t, at)
	_, _ = c.Write([]byte("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"))
	<-began
	for !watched(e) {
		e.look() // as time would
	}
	_, _ = c.Write([]byte("GET /next HTTP/1.1\r\nHost: a\r\n\r\n"))
	goOn <- true
	in := bufio.NewReader(c)
	for _, want := range []string{"/slow", "/next"} {
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(a.Body); string(got) != want {
			t.Errorf("answered %q, want %q", got, want)
		}
	}
}

func watched(e *Server) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		c.watch.mu.Lock()
		running := c.watch.running != nil
		c.watch.mu.Unlock()
		if running {
			return true
		}
	}
	return false
}

// A head that is never whole, and a connection without a next request, end when they may.
func TestWaitsEnd(t *testing.T) {
	const small = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, test := range map[string]struct {
		send       string
		head, idle time.Duration
		atLeast    int64   // looks
		waits      []int64 // for one of these
	}{
		"head":         {"GET / HTTP/1.1\r\nHost:", 2 * time.Second, time.Hour, 4, []int64{forHead}},
		"nothing":      {"", 2 * time.Second, time.Hour, 4, []int64{forHead}},
		"idle":         {small, time.Hour, 3 * time.Second, 6, []int64{forNext, drowsy, resting}},
		"second head":  {small + "GET /", 2 * time.Second, time.Hour, 4, []int64{forHead}},
		"no idle time": {small + "GET /", 2 * time.Second, 0, 4, []int64{forHead}},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet(http.HandlerFunc(various))
			s.ReadHeaderTimeout, s.IdleTimeout = test.head, test.idle
			e, at := started(t, s)
			c := dial(t, at)
			_, _ = io.WriteString(c, test.send)
			if strings.Contains(test.send, "small") {
				if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
					t.Fatal(err)
				}
			}
			since := begun(e, test.waits...)
			for range 100 {
				if p := phases(e); len(p) == 0 || p[0]&kinds == overdue {
					break
				}
				e.look()
			}
			// Who looks by the clock has perhaps looked as well.
			if looks := e.tick.Load() - since; looks < test.atLeast {
				t.Errorf("cut after %d looks, want %d at least", looks, test.atLeast)
			}
			_, _ = io.ReadAll(c) // it ends, somehow
		})
	}
}

// phases are what the connections wait for, and since when.
func phases(e *Server) (all []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		all = append(all, c.phase.Load())
	}
	return all
}

// begun waits until the one connection waits for one of these, and returns the tick at which that began.
func begun(e *Server, waits ...int64) int64 {
	for {
		if p := phases(e); len(p) == 1 && slices.Contains(waits, p[0]&kinds) {
			return p[0] >> tickBits
		}
		time.Sleep(time.Millisecond)
	}
}

// The clock may be read before a connection notes a newer time: that is no age.
func TestNewerThanTheClock(t *testing.T) {
	c := &conn{net: streams.NewConn(nil)}
	c.phase.Store(101<<tickBits | forHead)
	c.look(100, 1, 1)
	if c.phase.Load()&(1<<tickBits-1) != forHead {
		t.Error("a wait that began later than now was cut")
	}
}

// Shutdown lets requests finish, answers that the connection ends, and ends those that wait, also at net/http.
func TestShutdown(t *testing.T) {
	began, goOn := make(chan bool, 2), make(chan bool)
	e, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- true
			<-goOn
		}
		_, _ = io.WriteString(w, "done")
	})))
	idle, slow, handed := dial(t, at), dial(t, at), dial(t, at)
	_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(slow, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	_, _ = io.WriteString(handed, "GET /slow HTTP/1.1\r\nHost: a\r\nPragma: x\r\n\r\n")
	<-began
	<-began
	ended := make(chan error)
	go func() { ended <- e.Shutdown(context.Background()) }()
	if rest, err := io.ReadAll(idle); err != nil || len(rest) > 0 && !bytes.Contains(rest, []byte("done")) {
		t.Errorf("an idle connection: %q, %v, want its end", rest, err)
	}
	goOn <- true
	goOn <- true
	for name, c := range map[string]net.Conn{"slow": slow, "handed over": handed} {
		text, err := io.ReadAll(c)
		if err != nil || !bytes.HasSuffix(text, []byte("done")) {
			t.Errorf("%s: %q, %v, want the answer and the end", name, text, err)
		}
		if name == "slow" && !bytes.Contains(text, []byte("Connection: close\r\n")) {
			t.Errorf("%s: %q, want Connection: close", name, text)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := net.Dial("tcp", at); err == nil {
		t.Error("a connection was accepted after Shutdown")
	}
}

// Shutdown gives up when its context ends, and Close ends what is left.
func TestShutdownIsCutOff(t *testing.T) {
	began := make(chan bool)
	e, at := started(t, quiet(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
	})))
	c := dial(t, at)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-began
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Shutdown(ctx); err != context.Canceled {
		t.Errorf("Shutdown = %v, want that of its context", err)
	}
	_ = e.Close()
	if _, err := io.ReadAll(c); err == nil {
		return // the end, or a reset
	}
}

// A body that the handler did not read does not become the next request.
func TestUnreadBodies(t *testing.T) {
	_, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			_, _ = io.ReadFull(r.Body, make([]byte, 2))
		}
		if r.URL.Path == "/told" {
			w.Header().Set("Content-Length", "9")
		}
		_, _ = io.WriteString(w, r.Method+r.URL.Path)
	})))
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, path := range []string{"/unread", "/half", "/told"} {
		// Here: skipped.
		c := dial(t, at)
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"+
			"GET /next HTTP/1.1\r\nHost: a\r\n"+
			"Connection: close\r\n\r\n", path, len(smuggled), smuggled)
		text, _ := io.ReadAll(c)
		all := answers(t, text, nil)
		if len(all) != 2 || all[0].Body != "POST"+path || all[1].Body != "GET/next" {
			t.Errorf("%s: %q, want the answers to POST and GET", path, text)
		}
		// Not here: the connection ends.
		c = dial(t, at)
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nhi", path, 2+len(smuggled))
		in := bufio.NewReader(c)
		a, err := http.ReadResponse(in, nil)
		if err != nil || !a.Close {
			t.Fatalf("%s: %v, %v, want an answer that closes", path, a, err)
		}
		_, _ = io.ReadAll(a.Body)
		_, _ = io.WriteString(c, smuggled)
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Errorf("%s: behind the answer came %q", path, rest)
		}
	}
}

// sending is a client that sends without end, and looks at nothing.
type sending struct {
	net.Conn
	read int
}

func (s *sending) Read(p []byte) (int, error) {
	s.read += len(p)
	return len(p), nil
}
func (s *sending) CloseWrite() error               { return nil }
func (s *sending) SetReadDeadline(time.Time) error { return nil }

// Who still sends has time to look for the answer, and is read for no longer than that takes.
func TestEndsAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, began := new(sending), time.Now()
		(&conn{net: client}).closeGently()
		if waited := time.Since(began); waited != lingers || client.read > 512<<10 {
			t.Errorf("waited %v and read %d bytes, want %v and a part", waited, client.read, lingers)
		}
	})
}

// Who is refused in the middle of an upload reads why, though the Server ends meanwhile, and that waits no longer.
func TestShutdownDuringRefusedUploads(t *testing.T) {
	const uploads = 20
	began := make(chan bool)
	e, at := started(t, quiet(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- true
		w.WriteHeader(http.StatusTooManyRequests)
	})))
	said := make(chan string, uploads)
	for range uploads {
		c := dial(t, at)
		go func() { // to its end, or until the connection is gone
			_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 64<<20)
			_, _ = c.Write(make([]byte, 64<<20))
		}()
		go func() {
			a, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				said <- err.Error()
				return
			}
			said <- fmt.Sprint(a.StatusCode, a.Close)
		}()
	}
	for range uploads {
		<-began
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for range uploads {
		if got := <-said; got != "429 true" {
			t.Errorf("a client was told %q, want 429 and the end", got)
		}
	}
}

// Under TLS HTTP/1.1 is served here and HTTP/2 by net/http, which also answers who speaks no TLS.
func TestTLS(t *testing.T) {
	made := httptest.NewUnstartedServer(http.NotFoundHandler())
	made.EnableHTTP2 = true
	made.StartTLS()
	defer made.Close()
	s := quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %v", r.Proto, r.TLS != nil && r.TLS.HandshakeComplete)
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := New(s)
	go func() { _ = e.Serve(tls.NewListener(l, made.TLS)) }()
	defer e.Close()
	for _, http2 := range []bool{false, true} {
		for _, pragma := range []string{"", "x"} {
			client := made.Client()
			transport := client.Transport.(*http.Transport).Clone()
			transport.ForceAttemptHTTP2 = http2
			if !http2 {
				transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
			}
			r, _ := http.NewRequest("GET", "https://"+l.Addr().String()+"/", nil)
			if pragma != "" {
				r.Header.Set("Pragma", pragma)
			}
			a, err := (&http.Client{Transport: transport}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(a.Body)
			transport.CloseIdleConnections()
			if want := map[bool]string{false: "HTTP/1.1 true", true: "HTTP/2.0 true"}[http2]; string(got) != want {
				t.Errorf("HTTP/2 %v, Pragma %q: %q, want %q", http2, pragma, got, want)
			}
		}
	}
	if s := e.Stats(); s.Plain != 1 {
		t.Errorf("%d requests were served here, want 1", s.Plain)
	}
	c := dial(t, l.Addr().String())
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if text, _ := io.ReadAll(c); !bytes.Contains(text, []byte("HTTP request to an HTTPS server")) {
		t.Errorf("without TLS: %q", text)
	}
}

// Close may come while connections are handed over: it met one without a connection of its own.
func TestCloseWhileConnectionsAreHandedOver(t *testing.T) {
	for range 300 {
		e, l := New(quiet(http.HandlerFunc(various))), streams.NewListener()
		ended := make(chan struct{})
		go func() { _ = e.Serve(l); close(ended) }()
		c := streams.NewConn([]byte("GET /none HTTP/1.0\r\nHost: a\r\n\r\n"))
		l.Connect(c)
		_ = e.Close()
		<-ended
	}
}
