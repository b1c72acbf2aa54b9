package httplimit

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
)

// Whoever asks a room for more than it has takes nothing of it from others meanwhile.
func TestWhoFindsNoRoomTakesNone(t *testing.T) {
	r := newRoom(100)
	one, other := r.of(netip.MustParseAddr("192.0.2.1")), r.of(netip.MustParseAddr("192.0.2.2"))
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 20_000 {
				if other.take(101) {
					t.Error("101 bytes are taken of 100")
				}
			}
		})
	}
	for range 20_000 {
		if !one.take(50) {
			t.Fatal("there is no room for 50 of 100 bytes, of which nobody has any")
		}
		one.giveBack(50)
	}
	done.Wait()
}

// One address, however often it asks and for whatever, leaves room for others; all of it is given back.
func TestOneAddressLeavesRoomForOthers(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		r := newRoom(1000)
		one := r.of(netip.MustParseAddr("2001:db8::1"))
		if same := r.of(netip.MustParseAddr("2001:db8::ffff:1")); same.own != one.own {
			t.Fatal("addresses of one network have two shares")
		}
		var held []int64
		for range 200 {
			if bytes := 1 + random.Int64N(500); one.take(bytes) {
				held = append(held, bytes)
			}
		}
		if got := r.held.Load(); got > 500 {
			t.Fatalf("one address has %d of 1000 bytes, want half at most; seed %d", got, seed)
		}
		other := r.of(netip.MustParseAddr("192.0.2.1"))
		if other.own == one.own { // one time in 256
			continue
		}
		if !other.take(250) {
			t.Fatalf("one address has %d of 1000 bytes, another finds no room for 250; seed %d", r.held.Load(), seed)
		}
		other.giveBack(250)
		for _, bytes := range held {
			one.giveBack(bytes)
		}
		if r.held.Load() != 0 || one.own.Load() != 0 || other.own.Load() != 0 {
			t.Fatalf("%d bytes are held when all are given back; seed %d", r.held.Load(), seed)
		}
	}
}
