package attack_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/server/attack"
)

// TestClientSendsEveryByte holds that nothing of a request is cleaned, that interim answers are not
// answers, and that a connection that the server closed is made anew.
func TestClientSendsEveryByte(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heads := make(chan string, 4)
	var connections atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			r := bufio.NewReader(conn)
			var head strings.Builder
			for !strings.HasSuffix(head.String(), "\r\n\r\n") {
				line, err := r.ReadString('\n')
				if err != nil {
					break
				}
				head.WriteString(line)
			}
			heads <- head.String()
			// No Connection: close: the client has to find out.
			_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 429 Too Many "+
				"Requests\r\nContent-Length: 2\r\n\r\nno")
			conn.Close()
		}
	}()
	client := attack.Client{Host: "api.example", Agent: "test", Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	}}
	defer client.Close()
	r := attack.Request{Method: "GET", Target: `//v1/./%2e%zz\x/..;/#f?`}.With(attack.Field{Name: "X-Odd",
		Value: "a,, b"}, attack.Field{Name: "X-Odd", Value: "c"})
	for range 2 {
		status, err := client.Do(t.Context(), r)
		if err != nil || status != http.StatusTooManyRequests {
			t.Fatalf("Do = %d, %v, want 429", status, err)
		}
		want := "GET //v1/./%2e%zz\\x/..;/#f? HTTP/1.1\r\nHost: api.example\r\nUser-Agent: test\r\nX-Odd: a,, b\r\n" +
			"X-Odd: c\r\n\r\n"
		if got := <-heads; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections for two requests to a server that closes each, want 2", n)
	}
	post := attack.Request{Method: "POST", Target: "/"}
	if _, err := client.Do(t.Context(), post); err != nil {
		t.Fatal(err)
	}
	if head := <-heads; !strings.Contains(head, "\r\nContent-Length: 0\r\n") {
		t.Errorf("a POST without a body is %q, want its length", head)
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Do(canceled, r); err == nil {
		t.Error("Do with a context that is done succeeded")
	}
}

// FuzzFind looks for a URL that leads past loopback without being owned, and for a look-up of a name that nobody owns.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{"http://127.0.0.1:80", "https://[::1]", "http://localhost",
		"http://127.0.0.1.example", "http://[::ffff:192.0.2.1]", "http://2130706433", "http://127.0.0.1@192.0.2.1",
		"http://0x7f.1", "http://127.1", "http://[fe80::1%25lo]:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		site, err := attack.Find(t.Context(), text, nil, func(_ context.Context, name string) ([]netip.Addr, error) {
			if !strings.EqualFold(name, "localhost") {
				t.Errorf("Find(%q) looks up %q", text, name)
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		})
		if err != nil {
			return
		}
		if len(site.Addresses) == 0 || strings.ContainsAny(site.Host, " \r\n\t/") {
			t.Errorf("Find(%q) = %+v", text, site)
		}
		for _, a := range site.Addresses {
			if !a.Addr().IsLoopback() || a.Port() == 0 {
				t.Errorf("Find(%q) leads to %v", text, a)
			}
		}
	})
}
