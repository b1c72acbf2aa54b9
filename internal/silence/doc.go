// Package silence tells whether the other side of a socket has said anything, and reads nothing of it. It is for those
// who are called by syscall.RawConn.
package silence
