package identity

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// TestFailuresOfASiteAreApart: where the counter of a site is says nothing about
// where those of its groups are. Else strangers who share the counters of a group
// would share those of its site too.
func TestFailuresOfASiteAreApart(t *testing.T) {
	const groups = 4096
	f := newFailures(32, 4, nil, time.Unix(1_800_000_000, 0))
	places := [2]map[any]int{{}, {}}
	for r := range f.rows {
		for i := range f.rows[r] {
			places[r][&f.rows[r][i]] = i
		}
	}
	var distances [2]map[int]bool
	var used [2]map[int]bool
	for r := range distances {
		distances[r], used[r] = map[int]bool{}, map[int]bool{}
	}
	for i := range uint64(groups) {
		group := netip.PrefixFrom(addressOf(0x2a000000_00000000|i<<16), 64) // the first of its site
		site, within := siteOf(group, nil)
		if !within {
			t.Fatalf("%v is of no site", group)
		}
		own, its := f.counters(group), f.counters(site)
		for r := range own {
			at := places[r][own[r]]
			used[r][at] = true
			distances[r][at^places[r][its[r]]] = true
		}
	}
	// Of 8192 places, 4096 throws hit 3223 in the middle; the deviation is 22.
	const want = 3000
	for r := range distances {
		if n := len(used[r]); n < want {
			t.Errorf("row %d: %d groups are in %d places, want %d or more", r, groups, n, want)
		}
		if n := len(distances[r]); n < want {
			t.Errorf("row %d: %d groups are at %d distances from their sites, want %d or more", r, groups, n, want)
		}
	}
}

// addressOf is the address of IPv6 that begins with 64 bits.
func addressOf(high uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], high)
	return netip.AddrFrom16(b)
}
