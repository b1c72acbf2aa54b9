// Package freeport finds ports for servers that tests start.
//
// A port that the system chooses is one of those that it also gives to whoever connects to
// somebody. Between the moment at which a test has learnt of it and that at which its server
// listens there, or while the server is down, a connection of another test may take it: on a busy
// machine one does. So these ports are below those. For the same reason a process hands out none of
// them twice: another test of it that picked one by chance would take that of a server which is
// about to start, or down. Nor does another process hand it out: ports come in blocks, and who
// listens on the first port of a block has the others.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// Ports are in [low, low+span), and the ones that members of a Redis cluster make of theirs in the
// next span. What Linux, macOS and Windows give to connections begins at 32768 and above.
const (
	low   = 10_000
	span  = 10_000
	block = 50
)

var (
	mu    sync.Mutex
	next  = rand.IntN(span / block) // guarded by mu; the block that is tried next
	mine  []net.Listener            // guarded by mu; on the first ports of this process's blocks, until it ends
	given int                       // guarded by mu; how many of their other ports were looked at
)

var errNone = errors.New(
	"no port of the loopback is free: want one from 10000 to 19999, and with it the one that is 10000 above")

// Pick returns a port of 127.0.0.1 on which nobody listens, nor on the one that is 10,000 above, as
// a member of a Redis cluster needs. It is another one each time, until it has been through all of
// them.
func Pick() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	for range span {
		if given == len(mine)*(block-1) && !claim() {
			if given = 0; len(mine) == 0 {
				break
			}
		}
		port := mine[given/(block-1)].Addr().(*net.TCPAddr).Port + 1 + given%(block-1)
		if given++; free(port) && free(port+span) {
			return port, nil
		}
	}
	return 0, errNone
}

// claim takes one more block, if no other process has it.
func claim() bool {
	for range span / block {
		l, err := net.Listen("tcp", address(low+next*block))
		next = (next + 1) % (span / block)
		if err == nil {
			mine = append(mine, l)
			return true
		}
	}
	return false
}

// free reports whether nobody listens on a port. It does not listen there to find out: a program that is
// started at that moment would have the port until it runs.
func free(port int) bool {
	c, err := net.DialTimeout("tcp", address(port), time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err != nil && !os.IsTimeout(err)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
