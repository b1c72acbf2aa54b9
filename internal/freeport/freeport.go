// Package freeport finds ports for servers that tests start.
//
// A port that the system chooses is one of those that it also gives to whoever connects to
// somebody. Between the moment at which a test has learnt of it and that at which its server
// listens there, or while the server is down, a connection of another test may take it: on a busy
// machine one does. So these ports are below those. For the same reason a process hands out none of
// them twice: another test of it that picked one by chance would take that of a server which is
// about to start, or down.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// Ports are in [low, low+span), and the ones that members of a Redis cluster make of theirs in the
// next span. What Linux, macOS and Windows give to connections begins at 32768 and above.
const (
	low  = 10_000
	span = 10_000
)

// Processes begin anywhere, so that those which run at the same time seldom meet.
var (
	first = rand.Uint32N(span)
	tried atomic.Uint32
)

var errNone = errors.New(
	"no port of the loopback is free: want one from 10000 to 19999, and with it the one that is 10000 above")

// Pick returns a port of 127.0.0.1 on which nobody listens, nor on the one that is 10,000 above, as
// a member of a Redis cluster needs. It is another one each time, until it has been through all of
// them.
func Pick() (int, error) {
	for range span {
		if port := low + int((first+tried.Add(1))%span); free(port) && free(port+span) {
			return port, nil
		}
	}
	return 0, errNone
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
