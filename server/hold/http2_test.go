package hold_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/server/attack"
	"github.com/headgate-io/headgate/server/hold"
)

func overHTTP2(s *httptest.Server) { s.EnableHTTP2 = true }

// streams connects with HTTP/2, with a window of so many bytes for each answer.
func (s *site) streams(t *testing.T, window uint32) *attack.HTTP2 {
	t.Helper()
	raw := s.dial(t, 1)
	// the server is this test's own
	conn := tls.Client(raw.Conn, &tls.Config{NextProtos: []string{"h2"}, InsecureSkipVerify: true})
	h, err := attack.NewHTTP2(conn, window)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ends reads until a stream has ended, and returns how.
func ends(t *testing.T, h *attack.HTTP2, stream uint32) attack.Frame {
	t.Helper()
	for {
		f, err := h.Next()
		if err != nil {
			t.Fatalf("stream %d did not end: %v", stream, err)
		}
		if f.Stream == stream && f.Ends() {
			return f
		}
	}
}

func http2Options() hold.Options {
	o := small()
	o.Plain = false
	return o
}

// Refused requests whose answers a client does not let come are given up, and
// there are never more of them than one address may have.
func TestZeroWindow(t *testing.T) {
	t.Parallel()
	o := http2Options()
	s := serve(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, problem.Details{Status: http.StatusNotFound})
	}), overHTTP2)
	const each = 40
	var all []*attack.HTTP2
	most := 0
	for range 5 {
		h := s.streams(t, 0)
		all = append(all, h)
		for i := range uint32(each) {
			if err := h.Request(1+2*i, "GET", "/nothing", true); err != nil {
				t.Fatal(err)
			}
			most = max(most, s.limiter.Stats().Requests)
		}
	}
	for _, h := range all {
		for open := each; open > 0; {
			f, err := h.Next()
			if err != nil {
				t.Fatalf("%d streams are still open: %v", open, err)
			}
			if f.Ends() {
				open--
			}
		}
	}
	if most > o.MaxRequestsPerAddress {
		t.Errorf("%d requests were under way, want at most %d", most, o.MaxRequestsPerAddress)
	}
	if s.count(hold.SlowAnswer) == 0 || s.count(hold.RequestsOfAddress) == 0 {
		t.Errorf("ended: %v, want some for slow answers and some for too many requests", s.limiter.Stats().Ended)
	}
	eventually(t, "no request is under way", func() bool { return s.limiter.Stats().Requests == 0 })
	// The connection is as good as before for who takes the answer.
	if err := all[0].Grant(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	const next = 1 + 2*each
	if err := errors.Join(all[0].Request(next, "GET", "/nothing", true), all[0].Grant(next, 1<<16)); err != nil {
		t.Fatal(err)
	}
	if f := ends(t, all[0], next); f.Type != attack.FrameData {
		t.Errorf("the next answer ends with frame %#x, want DATA", f.Type)
	}
}

// A long answer whose client grants no more window is given up, and the handler
// with it.
func TestWindowThatIsNotOpenedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, http2Options(), door(), overHTTP2)
	h := s.streams(t, 1000)
	if err := h.Request(1, "GET", "/large", true); err != nil {
		t.Fatal(err)
	}
	if f := ends(t, h, 1); f.Type != attack.FrameRSTStream {
		t.Errorf("the stream ends with frame %#x, want RST_STREAM", f.Type)
	}
	eventually(t, "no request is under way", func() bool { return s.limiter.Stats().Requests == 0 })
	if s.count(hold.SlowAnswer) != 1 {
		t.Errorf("ended: %v, want one slow answer", s.limiter.Stats().Ended)
	}
}

// Bodies of streams are watched one by one; one that is slow ends alone.
func TestSlowBodyOfAStream(t *testing.T) {
	t.Parallel()
	o := http2Options()
	o.Patience = 1500 * time.Millisecond
	s := serve(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, errors.Is(err, os.ErrDeadlineExceeded))
	}), overHTTP2)
	h := s.streams(t, 1<<16)
	if err := errors.Join(h.Request(1, "POST", "/", false), h.Request(3, "POST", "/", false)); err != nil {
		t.Fatal(err)
	}
	// Stream 3 goes on for twice as long as stream 1 may do nothing.
	part, said := []byte(strings.Repeat("x", 1000)), ""
	tick := time.Tick(50 * time.Millisecond)
	for i := range 60 {
		<-tick
		if err := h.Body(3, part, i == 59); err != nil {
			t.Fatal(err)
		}
	}
	for ended := map[uint32]bool{}; len(ended) < 2; {
		f, err := h.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == attack.FrameData {
			said += fmt.Sprintf("%d:%s ", f.Stream, f.Payload)
		}
		if f.Ends() {
			ended[f.Stream] = true
		}
	}
	for _, want := range []string{"1:0 true", "3:60000 false"} {
		if !strings.Contains(said, want) {
			t.Errorf("answers = %s, want %s; ended: %v", said, want, s.limiter.Stats().Ended)
		}
	}
}

// A stream that goes both ways lasts while something passes in one of them, for
// longer than a body may be late, and ends when both are silent.
func TestStreamsOfBothWays(t *testing.T) {
	t.Parallel()
	o := http2Options()
	o.StreamIdle = 3 * time.Second // Patience is 300 ms
	s := serve(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		buffer := make([]byte, 100)
		for {
			n, err := r.Body.Read(buffer)
			if err != nil {
				return
			}
			_, _ = w.Write(buffer[:n])
			_ = http.NewResponseController(w).Flush()
		}
	}), overHTTP2)
	h := s.streams(t, 1<<16)
	if err := h.Request(1, "POST", "/", false); err != nil {
		t.Fatal(err)
	}
	tick := time.Tick(500 * time.Millisecond)
	for range 4 {
		<-tick
		if err := h.Body(1, []byte("x"), false); err != nil {
			t.Fatal(err)
		}
		for {
			f, err := h.Next()
			if err != nil || f.Ends() {
				t.Fatalf("the stream ended: %v; %v", err, s.limiter.Stats().Ended)
			}
			if f.Type == attack.FrameData {
				break
			}
		}
	}
	for { // the stream ends, or its connection, which has nothing else
		if f, err := h.Next(); err != nil || f.Ends() {
			break
		}
	}
	if s.count(hold.Silent) == 0 {
		t.Errorf("ended: %v, want one for its silence", s.limiter.Stats().Ended)
	}
}

var _ net.Conn = (*attack.HTTP2)(nil)
