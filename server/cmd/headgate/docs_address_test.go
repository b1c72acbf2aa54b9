package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/freeport"
)

// listen takes a port that no other page was given. All have five digits, so that
// none begins another.
func listen(t *testing.T) net.Listener {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// freeAddress returns an address where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// exampleAPI is the API that the pages stand the gateway before. It answers
// with the request line that reached it; /v1/forwarded with the forwarding
// fields that did; /v1/slow does not answer; /v1/login knows one password.
func exampleAPI(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/slow":
			<-r.Context().Done()
		case "/v1/login":
			if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte(`"password":`)) && !bytes.Contains(text, []byte(`:"right"`)) {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintln(w, "wrong password")
				return
			}
			fmt.Fprintln(w, "welcome")
		case "/v1/forwarded":
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if values := r.Header.Values(name); len(values) > 0 {
					fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, ", "))
				}
			}
		default:
			fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
		}
	}))
	server.Listener.Close()
	server.Listener = listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
