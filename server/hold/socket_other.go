//go:build !linux

package hold

import "net"

// acknowledged is known on Linux alone. Elsewhere what the kernel took counts: a
// client that is slower than Pace is found out as well, one that is a little
// faster may be cut off while the kernel's buffer empties.
func acknowledged(net.Conn) (bytes uint64, ok bool) { return 0, false }

// keepLittle is for Linux: elsewhere the send buffer is the bound.
func keepLittle(net.Conn) {}
