//go:build unix

package upstream

import (
	"syscall"

	"github.com/headgate-io/headgate/internal/silence"
)

// takeTurn is called by the runtime as look is, and once more when there is something to read.
func (c *conn) takeTurn(fd uintptr) bool {
	t := &c.turn
	if t.began {
		return true
	}
	if !silence.Of(fd) {
		return true
	}
	t.began = true
	n, err := syscall.Write(int(fd), t.text)
	switch err {
	case nil:
		t.sent = n
	case syscall.EAGAIN, syscall.EINTR:
	default:
		t.failed = err
	}
	return t.sent < len(t.text)
}
