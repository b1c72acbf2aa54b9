//go:build unix

package upstream

import "syscall"

const looks = true // there is a call that reads nothing

// look is called by the runtime with the descriptor, which does not block.
func (c *conn) look(fd uintptr) bool {
	var one [1]byte
	_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
	c.silent = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	return true
}

// takeTurn is called by the runtime as look is, and once more when there is something to read.
func (c *conn) takeTurn(fd uintptr) bool {
	t := &c.turn
	if t.began {
		return true
	}
	if c.look(fd); !c.silent {
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
