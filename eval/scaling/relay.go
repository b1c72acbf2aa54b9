package main

import (
	"net"
	"sync/atomic"
	"time"
)

// relay passes connections on to an address, and holds every piece of them back for a while if it is told to.
type relay struct {
	net.Listener
	to    string
	delay atomic.Int64 // nanoseconds
}

func newRelay(to string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{Listener: l, to: to}
	go r.run()
	return r, nil
}

func (r *relay) run() {
	for {
		from, err := r.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		go r.pass(to, from)
		go r.pass(from, to)
	}
}

// pass ends both connections when either ends.
func (r *relay) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if wait := time.Duration(r.delay.Load()); wait > 0 {
			time.Sleep(wait)
		}
		if _, errWrite := to.Write(piece[:n]); err != nil || errWrite != nil {
			return
		}
	}
}
