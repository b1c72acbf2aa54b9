package hold

import (
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A flood of an address that holds its share has its idle connections given up one after the other, and not all of them
// after each sweep; newcomers that come more slowly all find room.
func TestRoomIsMadeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 100
		l := New(Options{
			MaxConnections: 1000, MaxPerAddress: share, MaxRequests: 1000, MaxRequestsPerAddress: 1000,
			Pace: Pace{Patience: 20 * time.Second}, StreamIdle: time.Minute, Log: slog.New(slog.DiscardHandler),
			Group:  func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) },
			Exempt: func(netip.Addr) bool { return false },
		})
		from := netip.MustParseAddr("192.0.2.1")
		join := func() (displaced, ok bool) {
			c := &conn{l: l, slot: -1}
			c.active.Store(l.tick.Load())
			gone, _, ok := l.join(c, from)
			return gone != nil, ok
		}
		for range share {
			if _, ok := join(); !ok {
				t.Fatal("an address has no room for its share")
			}
		}
		var each [20]int // in 50 ms
		for i := range each {
			if i%10 == 0 { // twice, as each of those that come may be given up in its turn
				l.sweep(time.Second)
			}
			for range 50 {
				for range 5 {
					if displaced, _ := join(); displaced {
						each[i]++
					}
				}
				time.Sleep(time.Millisecond)
			}
		}
		for i, n := range each {
			// 5 in 50 ms, and a sixteenth at once before
			if n > 5+share/16+1 || n < 4 {
				t.Errorf("%d connections were given up in the 50 ms from %d ms on, want 4 to 12: %v", n, 50*i, each)
			}
		}
		for i := range 3 * share {
			if i%share == 0 {
				l.sweep(time.Second)
			}
			time.Sleep(time.Second / share)
			if displaced, ok := join(); !displaced || !ok {
				t.Fatalf("newcomer %d, one in 10 ms, finds no room", i)
			}
		}
	})
}
