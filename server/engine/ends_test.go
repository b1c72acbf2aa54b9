package engine

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEndingAtAnyMoment: a Server ends while connections rest at any moment, come in pieces, go to net/http, are taken
// over, have deadlines, and have handlers that panic. Each answer is whole and that of its request, or there is none
// since the Server ends; and nothing is left.
func TestEndingAtAnyMoment(t *testing.T) {
	seed := rand.Uint64()
	for round := range uint64(3) {
		var served atomic.Int64
		e := New(quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { echoAnyHow(t, w, r) })))
		e.restAfter = 0
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = e.Serve(l) }()
		var ending, ended atomic.Bool
		var looker, clients sync.WaitGroup
		looker.Go(func() {
			for !ended.Load() {
				e.look()
				runtime.Gosched()
			}
		})
		for n := range uint64(16) {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(seed, round<<8|n))
				for !ending.Load() {
					if err := converse(l.Addr().String(), r, &served); err != nil && !ending.Load() {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
				}
			})
		}
		for served.Load() < 300 && !t.Failed() {
			runtime.Gosched()
		}
		ending.Store(true)
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		clients.Wait()
		ended.Store(true)
		looker.Wait()
		// One that came with the end ends its socket, and then leaves.
		e.until(t, fmt.Sprintf("with seed %d: no connection is left", seed), func() bool { return e.look() == 0 })
	}
}

// echoAnyHow is echoPath, with deadlines, for connections that become others too.
func echoAnyHow(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/panic" {
		panic(http.ErrAbortHandler)
	}
	control := http.NewResponseController(w)
	switch rand.IntN(4) {
	case 0: // a deadline that is noted and may be over, and one in its place
		_ = control.SetWriteDeadline(time.Now().Add(scanEvery))
		runtime.Gosched()
		_ = control.SetWriteDeadline(time.Now().Add(time.Hour))
	case 1:
		_ = control.SetReadDeadline(time.Now().Add(time.Hour))
	}
	if r.Header.Get("Upgrade") == "" {
		echoPath(w, r)
		return
	}
	conn, rw, err := control.Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	line, _ := rw.ReadString('\n')
	_, _ = io.WriteString(conn, line)
}

// converse sends some requests, in pieces, and reads their answers. It returns what is wrong; what ends between two
// answers is for the caller to judge.
func converse(at string, r *rand.Rand, served *atomic.Int64) error {
	raw, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer raw.Close()
	in := bufio.NewReader(raw)
	for i := range 10 {
		path := fmt.Sprint("/", r.IntN(1000))
		text, want := get(path), path
		switch kind := r.IntN(10); {
		case kind == 0:
			text = "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
			want += "hello"
		case kind == 1 && i > 5: // for net/http
			text = "GET " + path + " HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n"
		case kind == 2 && i > 5:
			text, want = get("/panic"), ""
		case kind == 3 && i > 5:
			text = "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
			want = "line\n"
		}
		for text != "" {
			cut := len(text)
			if r.IntN(3) == 0 {
				cut = 1 + r.IntN(cut)
			}
			if _, err := io.WriteString(raw, text[:cut]); err != nil {
				return err
			}
			text = text[cut:]
			runtime.Gosched()
		}
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			if want == "" {
				return nil
			}
			return err
		}
		if a.StatusCode == http.StatusSwitchingProtocols {
			_, _ = io.WriteString(raw, want)
			if line, err := in.ReadString('\n'); line != want {
				return fmt.Errorf("a connection that was taken over reads %q, %w", line, err)
			}
			return nil
		}
		var body strings.Builder
		if _, err := io.Copy(&body, a.Body); err != nil || body.String() != want {
			panic(fmt.Sprintf("an answer is %q, %v, want %q", &body, err, want)) // whether or not the Server ends
		}
		served.Add(1)
		if a.Close {
			return nil
		}
	}
	return nil
}
