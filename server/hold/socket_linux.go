package hold

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged returns how many bytes the other end has acknowledged since the
// connection began. It acknowledges nothing while its window is closed.
func acknowledged(c net.Conn) (bytes uint64, ok bool) {
	tcp, isTCP := c.(*net.TCPConn)
	if !isTCP {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			bytes, ok = info.Bytes_acked, true
		}
	})
	return bytes, ok && err == nil
}

// unsent is how much of an answer the kernel keeps for a client that does not
// take it, in bytes; without, it is the send buffer, up to 4 MiB for each. What is
// on its way is not counted, so quick clients are served as before.
const unsent = 128 << 10

// keepLittle bounds what c makes the kernel keep.
func keepLittle(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
			})
		}
	}
}
