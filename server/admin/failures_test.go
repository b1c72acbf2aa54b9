package admin

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// TestNobodyFillsTheFailures: who guesses from all of a network keeps few others
// from guessing, and so from sending the right token.
func TestNobodyFillsTheFailures(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	v6 := func(high uint64) netip.Addr {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], high)
		b[15] = 1
		return netip.AddrFrom16(b)
	}
	for name, c := range map[string]struct {
		guesser func(i uint64) netip.Addr
		most    int // of 4000 others who are kept out, with room for chance
	}{
		"one address":       {func(uint64) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 20},
		"a network of IPv6": {func(i uint64) netip.Addr { return v6(0x20010db8_00010000 | i&0xffff) }, 40},
		"a provider's, IPv6": {func(i uint64) netip.Addr { return v6(0x20010db8_00000000 | i*0x9e3779b1&0xffffffff) },
			200},
		"a network of IPv4": {func(i uint64) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}) }, 40},
		"a provider's, IPv4": {func(i uint64) netip.Addr {
			return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFailures()
			for i := range uint64(20_000) {
				for range 11 {
					f.begin(c.guesser(i), now)
				}
			}
			// Others have a provider each: those of one are kept out together, if its
			// places are the guesser's.
			out := 0
			for i := range uint64(2000) {
				for _, other := range []netip.Addr{v6(0x2a000000_00000000 | i<<32),
					netip.AddrFrom4([4]byte{10 + byte(i>>8), byte(i), 0, 1})} {
					if f.place(other).Debt != 0 {
						out++
					}
				}
			}
			if out > c.most {
				t.Errorf("%d of 4000 others are kept out, want at most %d", out, c.most)
			}
			if wait := f.begin(c.guesser(0), now); wait == 0 {
				t.Error("the guesser may go on")
			}
		})
	}
}
