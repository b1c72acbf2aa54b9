package httplimit_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/httplimit"
)

const upgrade = "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// A connection that is taken over counts in both directions, also what was read of it before, until it is closed:
// whether or not the handler waits for that.
func TestConnectionsThatAreTakenOverCount(t *testing.T) {
	for _, waits := range []bool{true, false} {
		for _, budget := range []int64{10_000, 5000} {
			echo := func(conn net.Conn, rw *bufio.ReadWriter) {
				defer conn.Close()
				_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n" + upgrade)
				_ = rw.Flush()
				for {
					line, err := rw.ReadString('\n')
					if err != nil {
						return
					}
					if _, err := conn.Write([]byte(line)); err != nil {
						return
					}
				}
			}
			ended := make(chan struct{})
			s := serveBytes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				if waits {
					echo(conn, rw)
					close(ended)
					return
				}
				go func() { echo(conn, rw); close(ended) }()
			}), budget, httplimit.Bytes{}, true)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			line := strings.Repeat("x", 499) + "\n"
			_, _ = io.WriteString(conn, "GET "+file+" HTTP/1.1\r\nHost: x\r\n"+upgrade+line)
			from := bufio.NewReader(conn)
			answer, err := http.ReadResponse(from, nil)
			if err != nil || answer.StatusCode != 101 {
				t.Fatal(answer, err)
			}
			lines := 0
			for ; lines < 8; lines++ {
				if got, err := from.ReadString('\n'); err != nil || got != line {
					break
				}
				if lines < 7 {
					_, _ = io.WriteString(conn, line)
				}
			}
			_ = conn.Close()
			<-s.ended
			<-ended
			const head = 72 // bytes of that of the answer
			left, want := s.left(t, "GET"), map[int64]int{10_000: 8, 5000: 4}[budget]
			if lines != want || left < budget-int64(want)*1000-head-500 || left > budget-int64(want)*1000-head ||
				left < 0 {
				t.Errorf("waits %v: %d lines of %d came, %d tokens are left", waits, lines, want, left)
			}
			if out := s.lim.Reservations().Outstanding; out != 0 {
				t.Errorf("waits %v: %d reservations are outstanding, want none", waits, out)
			}
		}
	}
}

// What a client sends behind its upgrade without waiting is there for handlers that take what was buffered and go on
// with the connection, and counts; what its caller has no more for is not.
func TestEarlyBytesOfConnectionsTakenOver(t *testing.T) {
	const early = "0123456789"
	for _, budget := range []int64{1000, 5} {
		got := make(chan string, 1)
		s := serveBytes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			buffered, _ := rw.Reader.Peek(rw.Reader.Buffered())
			all, _ := io.ReadAll(io.MultiReader(bytes.NewReader(buffered), conn))
			got <- string(all)
		}), budget, httplimit.Bytes{}, true)
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET "+file+" HTTP/1.1\r\nHost: x\r\n\r\n"+early)
		_, _ = io.WriteString(conn, early)
		_ = conn.(*net.TCPConn).CloseWrite()
		want, left := early+early, budget-int64(2*len(early))
		if budget < int64(len(early)) {
			want, left = "", budget-1
		}
		all := <-got
		<-s.ended
		_ = conn.Close()
		if all != want || s.left(t, "GET") != left {
			t.Errorf("%q came, and %d tokens of %d are left; want %q and %d", all, s.left(t, "GET"), budget, want, left)
		}
	}
}

// Whoever copies into a connection may be about to write when it is closed, and its request settled: nothing is taken
// then that nobody would give back.
func TestNothingIsTakenOnceARequestIsOver(t *testing.T) {
	for _, cut := range []bool{true, false} {
		taken := make(chan net.Conn, 1)
		s := serveBytes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
			taken <- conn
		}), 10_000, httplimit.Bytes{}, cut)
		if _, _, _, err := s.send("GET", "", nil); err == nil {
			t.Error("there is an answer")
		}
		late := <-taken
		<-s.ended
		for range 3 {
			if n, err := late.Write(make([]byte, 1000)); n != 0 || err == nil {
				t.Errorf("cut %v: %d bytes were written, %v", cut, n, err)
			}
			if n, err := late.Read(make([]byte, 1000)); n != 0 || err == nil {
				t.Errorf("cut %v: %d bytes were read, %v", cut, n, err)
			}
		}
		if out, left := s.lim.Reservations().Outstanding, s.left(t, "GET"); out != 0 || left != 9999 {
			t.Errorf("cut %v: %d reservations are outstanding, and %d tokens left; want none, and 9999", cut, out, left)
		}
	}
}
