package freeport_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/freeport"
)

// What is picked can be listened on, and is no port that connections get.
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

// Nobody gets the port of a server that another test is about to start, or has stopped for a while.
func TestPickIsAnotherEachTime(t *testing.T) {
	seen := map[int]bool{}
	for range 500 {
		port, err := freeport.Pick()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("Pick = %d for the second time of %d", port, len(seen))
		}
		seen[port] = true
	}
}

// What is picked can be listened on while other tests start programs: each has, until it runs, what was open here, and
// so a port that was listened on for a moment.
func TestPickIsFreeWhileProgramsStart(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	defer starting.Wait()
	defer stop()
	for range 4 {
		starting.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		port, err := freeport.Pick()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatalf("Pick = %d, which is not free: %v", port, err)
		}
		_ = l.Close()
	}
}
