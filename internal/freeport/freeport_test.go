package freeport_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/headgate-io/headgate/internal/freeport"
)

// What is picked can be listened on, is no port that connections get, and is seldom the same twice.
func TestPick(t *testing.T) {
	const many = 20
	seen := map[int]bool{}
	for range many {
		port, err := freeport.Pick()
		if err != nil {
			t.Fatal(err)
		}
		if port < 10_000 || port >= 20_000 {
			t.Errorf("Pick = %d, want a port from 10000 to 19999", port)
		}
		seen[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Errorf("Pick = %d, which is not free: %v", port, err)
			continue
		}
		defer l.Close()
	}
	if len(seen) < many { // each is taken by this test
		t.Errorf("%d calls give %d ports, want as many: those before are taken", many, len(seen))
	}
}
