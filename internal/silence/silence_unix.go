//go:build unix

package silence

import "syscall"

// Known says that there is a call that looks and reads nothing.
const Known = true

// Of reports whether a socket that does not block is open, and has nothing to be read.
func Of(fd uintptr) bool {
	var one [1]byte
	_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
	return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
}
