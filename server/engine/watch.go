package engine

import (
	"errors"
	"net"
	"sync"
)

// watch reads on behalf of a request that takes long, so that it is noticed when the client leaves. What the client
// sends meanwhile is the next request.
type watch struct {
	mu      sync.Mutex
	running chan struct{} // guarded by mu: closed at its end; nil if there is none
	left    bool          // guarded by mu: the client has
	n       int           // guarded by mu: bytes that came
}

// begin is called while the Server looks after connections; phase is what it saw.
func (w *watch) begin(c *conn, phase int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running != nil || c.phase.Load() != phase || c.w == len(c.buf) {
		return
	}
	running := make(chan struct{})
	w.running = running
	go func() {
		defer close(running)
		n, err := c.net.Read(c.buf[c.w:])
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n += n
		var timeout net.Error
		if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
			w.left = true
			c.cancel()
		}
	}()
}

// wait waits for the end of a watch, on a connection that was closed.
func (w *watch) wait() {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	if running != nil {
		<-running
	}
}

// end ends the watch, and reports false if the client has left.
func (w *watch) end(c *conn) bool {
	w.mu.Lock()
	// From here on no watch begins: it would not be that of this phase.
	c.phase.Store(nothing)
	running := w.running
	w.mu.Unlock()
	if running == nil {
		return true
	}
	_ = c.net.SetReadDeadline(past)
	<-running
	c.deadline.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.w += w.n
	left := w.left
	w.running, w.left, w.n = nil, false, 0
	return !left
}
