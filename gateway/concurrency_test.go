package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
)

// TestPlacesOfAllAnswersComeBack: a request takes its place for as long as its answer runs, and gives it
// back however that ends: whole, broken off by the API or by the client, or as a WebSocket.
func TestPlacesOfAllAnswersComeBack(t *testing.T) {
	hang := make(chan struct{})
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			_, _ = io.Copy(conn, buffered)
		case r.URL.Path == "/slow":
			fmt.Fprint(w, strings.Repeat("begins", 1000))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		case r.URL.Path == "/abort":
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, "answer")
		}
	})
	t.Cleanup(func() { close(hang) })
	lim, err := headgate.New(headgate.Options{Rules: []string{"UNKNOWN 1 at once", "UNKNOWN 1000/s", "default 1000/s"}})
	if err != nil {
		t.Fatal(err)
	}
	server := newGateway(t, api, func(o *gateway.Options) { o.Limiter = lim })
	free := func(after string) { // at once, or when the gateway has noticed
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; {
			if lim.Reservations().Outstanding == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s no place came back", after)
			}
			time.Sleep(time.Millisecond) // a real gateway and its connections
		}
		if r := send(t, server.URL, "GET", "/a"); r.StatusCode != http.StatusOK {
			t.Fatalf("%s the next is answered %d", after, r.StatusCode)
		}
	}
	busy := func(while string) {
		t.Helper()
		r := send(t, server.URL, "GET", "/a")
		if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" ||
			!strings.Contains(r.Header.Get("RateLimit-Policy"), `"UNKNOWN at once";q=1;qu="concurrent-requests"`) ||
			!strings.Contains(r.Header.Get("RateLimit"), `"UNKNOWN at once";r=0;t=1`) {
			t.Fatalf("%s the next is answered %d with %v", while, r.StatusCode, r.Header)
		}
	}
	free("before the first")
	free("after one")

	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/slow", nil)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	busy("while an answer runs")
	cancel()
	answer.Body.Close()
	free("after the client left")

	if aborted, err := http.Get(server.URL + "/abort"); err == nil {
		_, err = io.ReadAll(aborted.Body)
		aborted.Body.Close()
		if err == nil {
			t.Error("an answer that broke off reads as whole")
		}
	}
	free("after the API broke off")

	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /chat HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	opened, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || opened.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(opened, err)
	}
	busy("while a WebSocket is open")
	conn.Close()
	free("after it was closed")
}
