package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
)

// listen takes a port that no other page was given.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// freeAddress returns an address where nobody listens. All ports have five digits, so that none begins another.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// exampleAPI is the API that the pages stand the gateway before. It answers with the request line
// that reached it; /v1/forwarded with the forwarding fields that did; /v1/slow does not answer,
// /v1/report after half a second; /v1/login knows one password; /v1/chat/completions answers as
// OpenAI's does; a WebSocket sends back what it is sent.
func exampleAPI(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echoMessages(w, r)
			return
		}
		switch r.URL.Path {
		case "/v1/slow":
			<-r.Context().Done()
		case "/v1/report":
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second / 2):
				fmt.Fprintln(w, "a report")
			}
		case "/v1/login":
			if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte(`"password":`)) &&
				!bytes.Contains(text, []byte(`:"right"`)) {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintln(w, "wrong password")
				return
			}
			fmt.Fprintln(w, "welcome")
		case "/v1/chat/completions":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, `{"choices":[{"message":{"role":"assistant","content":"Good morning."}}],`+
				`"usage":{"prompt_tokens":12,"completion_tokens":30}}`)
		case "/v1/forwarded":
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if values := r.Header.Values(name); len(values) > 0 {
					fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, ", "))
				}
			}
		default:
			if r.Method == http.MethodPut {
				_, _ = io.Copy(io.Discard, r.Body) // an API answers once it has a file
			}
			fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
		}
	}))
	server.Listener.Close()
	server.Listener = listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// echoMessages takes over a WebSocket, and sends short messages back (RFC 6455).
func echoMessages(w http.ResponseWriter, r *http.Request) {
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(accept[:]))
	for {
		var head [6]byte // with the masking key of a client
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		message := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(in, message); err != nil {
			return
		}
		for i := range message {
			message[i] ^= head[2+i%4]
		}
		_, _ = conn.Write(append([]byte{head[0], byte(len(message))}, message...))
		if head[0]&0x0f == 8 {
			return
		}
	}
}
