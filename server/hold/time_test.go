package hold_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/hold"
)

// door reads bodies and answers with their size, gives tunnels, and answers
// /large with more than any buffer holds.
func door() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			part := make([]byte, 32<<10)
			for range 4096 {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		case "/early": // an answer before the body is read
			_, _ = io.WriteString(w, "early")
		case "/tunnel":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn,
				"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, rw)
		default:
			n, err := io.Copy(io.Discard, r.Body)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.WriteHeader(http.StatusRequestTimeout)
				return
			}
			fmt.Fprint(w, n)
		}
	})
}

// Each client here does too little, in another way; its connection ends.
func TestClientsThatDoTooLittleAreCutOff(t *testing.T) {
	for _, c := range []struct {
		name  string
		say   string
		drip  string // sent again and again
		every time.Duration
		count hold.Reason
		none  bool // nothing is counted: net/http ends it
	}{
		{name: "no head", none: true},
		{
			name:  "slow head",
			say:   "GET / HTTP/1.1\r\nHost: x\r\n",
			drip:  "a: b\r\n",
			every: 50 * time.Millisecond,
			none:  true,
		},
		{name: "no body", say: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", count: hold.SlowBody},
		{
			name:  "slow body",
			say:   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
			drip:  "x",
			every: 10 * time.Millisecond,
			count: hold.SlowBody,
		},
		{
			name:  "slow chunks",
			say:   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
			drip:  "1\r\nx\r\n",
			every: 10 * time.Millisecond,
			count: hold.SlowBody,
		},
		{name: "silent tunnel", say: "GET /tunnel HTTP/1.1\r\nHost: x\r\n\r\n", count: hold.Silent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, small(), door())
			conn := s.dial(t, 1)
			if _, err := io.WriteString(conn, c.say); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			go func() {
				for tick := time.Tick(max(c.every, time.Millisecond)); c.drip != ""; {
					select {
					case <-stop:
						return
					case <-tick:
						if _, err := io.WriteString(conn, c.drip); err != nil {
							return
						}
					}
				}
			}()
			began := time.Now()
			if !conn.ended() {
				t.Errorf("the connection is still there after %v", time.Since(began))
			}
			close(stop)
			if !c.none && s.count(c.count) != 1 {
				t.Errorf("counted %v, want one %v", s.limiter.Stats().Ended, c.count)
			}
			eventually(t, "nothing is held any more", func() bool {
				st := s.limiter.Stats()
				return st.Connections == 0 && st.Requests == 0
			})
		})
	}
}

// A client that takes nothing of a long answer is cut off.
func TestSlowReadersAreCutOff(t *testing.T) {
	t.Parallel()
	s := serve(t, small(), door())
	c := s.dial(t, 1)
	if _, err := io.WriteString(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cut off", func() bool { return s.count(hold.SlowAnswer) == 1 })
	eventually(t, "nothing is held", func() bool {
		st := s.limiter.Stats()
		return st.Connections == 0 && st.Requests == 0
	})
}

// A client that reads slowly, and yet faster than MinRate, gets all of it,
// although the kernel's buffers keep writers waiting for far longer than
// Patience.
func TestSteadyReadersAreServed(t *testing.T) {
	t.Parallel()
	o := small()
	o.Pace = hold.Pace{Patience: 2 * time.Second, MinRate: 100_000} // a machine may stand still for less
	const size = 24 << 20
	s := serve(t, o, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 32<<10)
		for range size / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	c := s.dial(t, 1)
	_ = c.SetDeadline(time.Now().Add(2 * bound))
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	var got int64
	for tick := time.Tick(10 * time.Millisecond); ; <-tick { // 6 MB/s at most
		n, err := io.CopyN(io.Discard, c, 64<<10)
		got += n
		if err != nil {
			break
		}
	}
	if got < size {
		t.Errorf("got %d bytes of %d; ended: %v", got, size, s.limiter.Stats().Ended)
	}
}

// An upload that keeps to the rate takes as long as it takes, far beyond
// Patience, and the connection is as good as before.
func TestSteadyUploadsAreServed(t *testing.T) {
	t.Parallel()
	o := small()
	o.Patience = 2 * time.Second
	s := serve(t, o, door())
	c := s.dial(t, 1)
	const parts, part = 100, 4096
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", parts*part); err != nil {
		t.Fatal(err)
	}
	tick := time.Tick(40 * time.Millisecond)
	for range parts {
		<-tick
		if _, err := io.WriteString(c, strings.Repeat("x", part)); err != nil {
			t.Fatalf("cut off: %v, %v", err, s.limiter.Stats().Ended)
		}
	}
	for range 3 {
		if got := c.status(); got != http.StatusOK {
			t.Fatalf("answer = %d, want 200; ended: %v", got, s.limiter.Stats().Ended)
		}
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
	}
}

// A handler that takes long with a body that is there is not its client's fault.
func TestSlowHandlersAreNobodysFault(t *testing.T) {
	t.Parallel()
	o := small()
	o.Patience, o.StreamIdle = 100*time.Millisecond, bound
	s := serve(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bufio.NewReader(r.Body)
		for {
			if _, err := body.ReadByte(); err != nil {
				break
			}
			<-time.After(o.Patience) // longer in all than any client may take
		}
		_, _ = io.WriteString(w, "ok")
	}))
	c := s.dial(t, 1)
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
		t.Fatal(err)
	}
	if got := c.status(); got != http.StatusOK {
		t.Errorf("answer = %d, want 200; ended: %v", got, s.limiter.Stats().Ended)
	}
}

// A tunnel in which something passes now and then lasts, whoever speaks.
func TestTunnelsThatSpeakLast(t *testing.T) {
	t.Parallel()
	o := small()
	o.StreamIdle = 2 * time.Second
	s := serve(t, o, door())
	c := s.dial(t, 1)
	if _, err := io.WriteString(c, "GET /tunnel HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if response, err := http.ReadResponse(c.answers, nil); err != nil ||
		response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response, err)
	}
	tick := time.Tick(100 * time.Millisecond)
	for range 30 {
		<-tick
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if b, err := c.answers.ReadByte(); err != nil || b != 'x' {
			t.Fatalf("echo = %q, %v; ended: %v", b, err, s.limiter.Stats().Ended)
		}
	}
}

// An answer that comes before the body does not wait for it, and the connection
// ends with it.
func TestEarlyAnswersDoNotWait(t *testing.T) {
	t.Parallel()
	o := small()
	o.Patience = bound
	s := serve(t, o, door())
	c := s.dial(t, 1)
	if _, err := io.WriteString(c, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := c.status(); got != http.StatusOK {
		t.Errorf("answer = %d, want 200", got)
	}
	if !c.ended() {
		t.Error("the connection is still there")
	}
}

// A handler that does not look at a body that is there costs its client nothing:
// the connection is used again.
func TestUnreadBodiesThatAreThere(t *testing.T) {
	t.Parallel()
	s := serve(t, small(), door())
	c, reused := s.dial(t, 1), 0
	for range 20 {
		if _, err := io.WriteString(c,
			"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(c.answers, nil)
		if err != nil {
			t.Fatalf("after %d answers: %v", reused, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		if response.Close { // only a machine that stood still may do that, and it says so
			c = s.dial(t, 1)
		} else {
			reused++
		}
	}
	if reused == 0 {
		t.Error("no connection was used again")
	}
}

// What is too long is refused before it is read further than it has to be.
func TestOversizedHeads(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	o := small()
	o.HeadTimeout = bound
	s := serve(t, o, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	long := "/" + strings.Repeat("a/../", 1000)
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"long path", "GET " + long + " HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusRequestURITooLong},
		{"long query", "GET /?" + long + " HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusRequestURITooLong},
		{"8,500 fields", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:b\r\n", 8500) + "\r\n",
			http.StatusRequestHeaderFieldsTooLarge},
		{"as many as fit into the bytes", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:b\r\n", 1500) + "\r\n",
			http.StatusRequestHeaderFieldsTooLarge},
		{"without CR", "GET / HTTP/1.1\nHost: x\n" + strings.Repeat("a:b\n", 1500) + "\n",
			http.StatusRequestHeaderFieldsTooLarge},
		{"empty lines first", "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:b\r\n", 1500) + "\r\n",
			http.StatusRequestHeaderFieldsTooLarge},
		{"one too many", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:b\r\n", 33) + "\r\n",
			http.StatusRequestHeaderFieldsTooLarge},
	} {
		conn := s.dial(t, 1)
		go func() { _, _ = io.WriteString(conn, c.text) }()
		if got := conn.status(); got != c.want {
			t.Errorf("%s = %d, want %d", c.name, got, c.want)
		}
		_ = conn.Close()
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests reached the door, want 0", n)
	}
	conn := s.dial(t, 1)
	for range 3 { // one after the other, as many fields as may be
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n"+
			strings.Repeat("a:b\r\n", 31)+"\r\n"+strings.Repeat("\n", 2000)); err != nil {
			t.Fatal(err)
		}
		if got := conn.status(); got != http.StatusOK {
			t.Errorf("as many fields as may be = %d, want 200", got)
		}
	}
}

var _ net.Conn = (*client)(nil)
