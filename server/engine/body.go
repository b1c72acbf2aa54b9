package engine

import (
	"io"
	"net/http"
	"sync"
)

// body is the body of one request. Others than the handler may read it, and go on when that has returned.
type body struct {
	mu   sync.Mutex
	c    *conn // nil when the request is over; guarded by mu
	left int64 // bytes that were not read; guarded by mu
}

// Read reads what came with the head, and then from the connection.
func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.left == 0:
		return 0, io.EOF
	case b.c == nil:
		return 0, http.ErrBodyReadAfterClose
	case len(p) == 0:
		return 0, nil
	}
	c := b.c
	p = p[:min(int64(len(p)), b.left)]
	if c.r < c.w {
		n = copy(p, c.buf[c.r:c.w])
		c.r += n
	} else {
		n, err = c.net.Read(p)
		if n > 0 {
			err = nil // it comes again
		}
	}
	if b.left -= int64(n); b.left == 0 {
		c.owes.Store(false)
		return n, io.EOF
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close does nothing: what was not read is seen to at the end of the request.
func (b *body) Close() error { return nil }

// finish ends the body, so that nobody reads the connection in its name, and reports whether all of it has come.
func (b *body) finish() (whole bool) {
	if b == nil {
		return true
	}
	c := b.c
	if c.owes.Load() { // somebody may be reading
		c.deadline.Store(true)
		_ = c.net.SetReadDeadline(past)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.c = nil
	if b.left > int64(c.w-c.r) {
		return false
	}
	c.r += int(b.left)
	b.left = 0
	c.owes.Store(false)
	return true
}
