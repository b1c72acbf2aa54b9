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
