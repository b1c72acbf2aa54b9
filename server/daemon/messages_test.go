package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// echo is what masked says, as an API sends it.
const echo = "\x81\x02hi"

// messageAPI sends back what masked says, for as long as a client of a WebSocket says that; it answers other requests
// with nothing.
func messageAPI(t *testing.T) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		for frame := make([]byte, len(masked)); ; {
			if _, err := io.ReadFull(buffered, frame); err != nil || string(frame) != masked {
				return
			}
			_, _ = io.WriteString(conn, echo)
		}
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// sent opens a WebSocket at GET /v1/items/7 of a gateway in front of a messageAPI, with header fields as call has them,
// and returns how many messages are echoed until it is closed.
func sent(t *testing.T, gate string, header ...string) (echoed int) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/items/7 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\n")
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
	}
	fmt.Fprint(conn, "\r\n")
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake is answered with %v, %v", answer, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for frame := make([]byte, len(echo)); ; echoed++ {
		if _, err := io.WriteString(conn, masked); err != nil {
			return echoed
		}
		if _, err := io.ReadFull(in, frame); err != nil || string(frame) != echo {
			return echoed
		}
	}
}
