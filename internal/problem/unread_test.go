package problem_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/problem"
)

// patience is for a machine that is busy; nothing here takes a part of it unless
// the promise is broken.
const patience = 10 * time.Second

// refuser answers every request with 404. It tells of connections that ended.
func refuser(t *testing.T) (address string, ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{}, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, problem.Details{Status: http.StatusNotFound})
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			ended <- struct{}{}
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), ended
}

func dial(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func ask(t *testing.T, c net.Conn, answers *bufio.Reader, request string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatalf("no answer to %.60q: %v", request, err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response
}

// A client that announces a body and sends none, or little of it, has its answer
// at once, and its connection ends.
func TestAnswersDoNotWaitForABody(t *testing.T) {
	for name, request := range map[string]string{
		"no body":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
		"a small one": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123",
		"a huge one": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" +
			strings.Repeat("x", 9000),
		"chunks, none":    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"chunks, no end":  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"asks before":     "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
		"GET with a body": "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			address, ended := refuser(t)
			c, answers := dial(t, address)
			response := ask(t, c, answers, request)
			if response.StatusCode != http.StatusNotFound || !response.Close {
				t.Errorf("answer = %s, close %v; want 404 and Connection: close", response.Status, response.Close)
			}
			if rest, err := io.ReadAll(answers); len(rest) > 0 {
				t.Errorf("after the answer came %q, %v", rest, err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the server still holds the connection")
			}
		})
	}
}

// A body that is there with its head costs nobody the connection, and the next
// requests on it are answered like any other.
func TestAnswersKeepTheConnectionIfTheBodyIsThere(t *testing.T) {
	address, _ := refuser(t)
	for name, request := range map[string]string{
		"length": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"chunks": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"none":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, answers := dial(t, address)
			for i := range 50 {
				response := ask(t, c, answers, request)
				if response.StatusCode != http.StatusNotFound {
					t.Fatalf("answer %d = %s, want 404", i, response.Status)
				}
				if response.Close { // only a machine that stood still for 5 ms may do that
					c, answers = dial(t, address)
				}
			}
		})
	}
	closed := 0
	for range 20 {
		c, answers := dial(t, address)
		if ask(t, c, answers, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").Close {
			closed++
		}
	}
	if closed == 20 {
		t.Error("all of 20 connections were closed although the body was there")
	}
}

// Over HTTP/2 the answer does not wait either, and the stream is reset.
func TestAnswersDoNotWaitForABodyOverHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, problem.Details{Status: http.StatusNotFound})
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body, never := io.Pipe()
	defer never.Close()
	request, err := http.NewRequestWithContext(ctx, "POST", s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs},
	}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, want := fmt.Sprint(response.Proto, response.StatusCode), "HTTP/2.0404"; got != want {
		t.Errorf("answer = %s, want %s", got, want)
	}
}
