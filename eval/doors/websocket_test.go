//go:build unix

package doors

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate-io/headgate/eval/harness"
)

// echo is an API that sends every message back, as many times as the path says.
func echo(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			CompressionMode:      websocket.CompressionContextTakeover,
			CompressionThreshold: 1,
		})
		if err != nil {
			return
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(-1)
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			times := 1
			if strings.HasSuffix(r.URL.Path, "/twice") {
				times = 2
			}
			for range times {
				if conn.Write(r.Context(), kind, message) != nil {
					return
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func openSocket(t *testing.T, g *harness.Gateway, path string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, g.URL+path, &websocket.DialOptions{
		CompressionMode:      websocket.CompressionContextTakeover,
		CompressionThreshold: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// say sends a message and reads so many echoes of it. The error is why that ended.
func say(conn *websocket.Conn, message []byte, echoes int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageBinary, message); err != nil {
		return err
	}
	for range echoes {
		_, got, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, message) {
			return errors.New("it came back as another message")
		}
	}
	return nil
}

// closed checks why a WebSocket has ended.
func closed(t *testing.T, err error, code websocket.StatusCode, reason string) {
	t.Helper()
	var why websocket.CloseError
	if !errors.As(err, &why) || why.Code != code || !strings.HasPrefix(why.Reason, reason) {
		t.Errorf("it ended by %v, want %v, %q", err, code, reason)
	}
}

// A real client and a real API, with compression, behind a real gateway: messages count in both directions, changes of
// rules and a reload act on what is open, and a stop says so.
func TestMessagesOfWebSockets(t *testing.T) {
	dir, api := t.TempDir(), echo(t)
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/chat\nGET /v1/twice\nGET /v1/free\n")
	settings := `routes: [routes.txt]
upstream: ` + api + `
websockets:
  "GET /v1/chat": {max_message: 4MiB}
  "GET /v1/twice": {send: none, receive: messages}
`
	write(t, filepath.Join(dir, "headgate.yaml"), settings)
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	set := func(args ...string) {
		harness.Run(t, dir, append(append([]string{"policy", "set"}, args...), "--db", db)...)
	}
	set("default", "1000")
	set("WS-SEND /v1/chat", "3", "--per", "1h")
	set("WS-RECEIVE /v1/twice", "5", "--per", "1h")
	g := harness.Serve(t, dir, "--config", "headgate.yaml")

	chat, long := openSocket(t, g, "/v1/chat"), bytes.Repeat([]byte("0123456789"), 300_000)
	for _, message := range [][]byte{[]byte("a"), nil, long} {
		if err := say(chat, message, 1); err != nil {
			t.Fatalf("a message of %d bytes: %v", len(message), err)
		}
	}
	closed(t, say(chat, []byte("b"), 1), websocket.StatusPolicyViolation,
		"Limit WS-SEND /v1/chat: 3 per 1h, burst 3. Retry in ")
	// the budget is the client's
	closed(t, say(openSocket(t, g, "/v1/chat"), []byte("c"), 1), websocket.StatusPolicyViolation, "Limit WS-SEND")

	twice := openSocket(t, g, "/v1/twice")
	for range 2 {
		if err := say(twice, []byte("d"), 2); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, say(twice, []byte("e"), 2), websocket.StatusPolicyViolation, "Limit WS-RECEIVE /v1/twice")

	free := openSocket(t, g, "/v1/free") // whose messages do not count
	for range 20 {
		if err := say(free, []byte("f"), 1); err != nil {
			t.Fatal(err)
		}
	}

	// A higher limit acts on what is open, and so does a lower one.
	set("WS-SEND /v1/chat", "1000", "--per", "1s")
	talking := openSocket(t, g, "/v1/chat")
	if !harness.Eventually(time.Minute, func() bool {
		err := say(talking, []byte("g"), 1)
		if err != nil {
			talking = openSocket(t, g, "/v1/chat")
		}
		return err == nil
	}) {
		t.Fatal("the higher limit does not come into force")
	}
	set("WS-SEND /v1/chat", "1", "--per", "1h")
	var err error
	if !harness.Eventually(time.Minute, func() bool { err = say(talking, []byte("h"), 1); return err != nil }) {
		t.Fatal("the lower limit does not come into force")
	}
	closed(t, err, websocket.StatusPolicyViolation, "Limit WS-SEND /v1/chat: 1 per 1h")

	// A reload that takes an endpoint away ends its WebSockets, and leaves the others.
	set("WS-SEND /v1/chat", "1000", "--per", "1s")
	other := openSocket(t, g, "/v1/chat")
	write(t, filepath.Join(dir, "headgate.yaml"), strings.Replace(settings, `"GET /v1/chat"`, `"GET /v1/free"`, 1))
	if err := syscall.Kill(g.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if !g.Says("reloaded") {
		t.Fatal("it does not say that it reloaded")
	}
	closed(t, say(other, []byte("i"), 1), websocket.StatusGoingAway, "The endpoint has changed. Connect again.")
	if err := say(free, []byte("j"), 1); err != nil {
		t.Errorf("a WebSocket that was open before: %v", err)
	}

	// A fault keeps what was there.
	write(t, filepath.Join(dir, "headgate.yaml"),
		strings.Replace(settings, `"GET /v1/chat": {max_message`, `"GET /v1/chap": {max_message`, 1))
	if err := syscall.Kill(g.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if !g.Says(`websockets: endpoint is \"GET /v1/chap\", want one of openapi or routes, such as \"GET /v1/chat\"`) {
		t.Error("it does not say what is wrong")
	}

	// A stop is said.
	counted := openSocket(t, g, "/v1/free")
	if err := say(counted, []byte("k"), 1); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _, err = counted.Read(ctx)
	closed(t, err, websocket.StatusGoingAway, "The server is shutting down. Connect again.")
	if err := <-stopped; err != nil {
		t.Errorf("it stops with %v", err)
	}
}
