package conns_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/internal/conns"
)

// short is a listener of a process that has no descriptor to spare, for so many times.
type short struct {
	net.Listener
	times atomic.Int64
	err   error
}

func (l *short) Accept() (net.Conn, error) {
	if l.times.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", l.err)}
	}
	return l.Listener.Accept()
}

// TestServeOutlivesAShortage: a moment without descriptors or memory ends no server, and so no process.
func TestServeOutlivesAShortage(t *testing.T) {
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		t.Run(err.Error(), func(t *testing.T) {
			l, listened := net.Listen("tcp", "127.0.0.1:0")
			if listened != nil {
				t.Fatal(listened)
			}
			s := conns.New(conns.Options{
				Trusted: func(netip.Addr) bool { return true }, Most: 1, Refusal: func(conns.Why) []byte { return nil },
				Answer: func(c *conns.Conn) { _, _ = io.WriteString(c, "hello") },
			})
			from := &short{Listener: l, err: err}
			from.times.Store(3)
			served := make(chan error, 1)
			go func() { served <- s.Serve(from) }()
			c, dialed := net.Dial("tcp", l.Addr().String())
			if dialed != nil {
				t.Fatal(dialed)
			}
			defer c.Close()
			if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
				t.Errorf("after a shortage %q, %v is answered, want hello", got, err)
			}
			if err := s.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			_ = l.Close()
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := conns.New(conns.Options{}).Serve(l); err == nil {
		t.Error("Serve of a closed listener returns nil, want the error")
	}
}
