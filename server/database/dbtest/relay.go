package dbtest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

// Relay is one address that leads to one server at a time, like a virtual
// address or a proxy before several.
type Relay struct {
	DSN func(database string) string

	dir    string
	listen net.Listener
	to     atomic.Pointer[Server]
	open   sync.WaitGroup
}

// NewRelay starts a relay to a server. Close it.
func NewRelay(to *Server) (*Relay, error) {
	dir, err := os.MkdirTemp("/tmp", "headgate-relay-")
	if err != nil {
		return nil, err
	}
	r := &Relay{dir: dir, DSN: func(database string) string { return to.kind.dsn(dir, database) }}
	if r.listen, err = net.Listen("unix", to.kind.socket(dir)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r.to.Store(to)
	r.open.Go(r.accept)
	return r, nil
}

// Point leads new connections to another server. Those that are open stay
// where they are.
func (r *Relay) Point(to *Server) { r.to.Store(to) }

// Close ends the relay and waits for its connections.
func (r *Relay) Close() error {
	err := r.listen.Close()
	r.open.Wait()
	return errors.Join(err, os.RemoveAll(r.dir))
}

func (r *Relay) accept() {
	for {
		from, err := r.listen.Accept()
		if err != nil {
			return
		}
		r.open.Go(func() { r.join(from) })
	}
}

// join passes bytes on until either side ends.
func (r *Relay) join(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("unix", r.to.Load().Address())
	if err != nil {
		return
	}
	defer to.Close()
	done := make(chan struct{}, 2)
	pass := func(a, b net.Conn) {
		_, _ = io.Copy(a, b)
		done <- struct{}{}
	}
	go pass(to, from)
	go pass(from, to)
	<-done
}
