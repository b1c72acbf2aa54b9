package identity

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// ranges is a set of addresses: sorted ranges that neither touch nor overlap,
// one list per family, searched by bisection. A published proxy list has tens
// to thousands of prefixes, and every hop is looked up.
type ranges struct {
	v4 []span4
	v6 []span6
}

type span4 struct{ first, last uint32 }

type span6 struct{ first, last word128 }

type word128 struct{ hi, lo uint64 }

func (w word128) compare(x word128) int {
	return cmp.Or(cmp.Compare(w.hi, x.hi), cmp.Compare(w.lo, x.lo))
}

func (w word128) next() word128 {
	if w.lo++; w.lo == 0 {
		w.hi++
	}
	return w
}

func newRanges(prefixes []netip.Prefix) ranges {
	var r ranges
	for _, p := range prefixes {
		p = unmapPrefix(p)
		if p.Addr().Is4() {
			first := word32(p.Masked().Addr())
			r.v4 = append(r.v4, span4{first, first | uint32(1<<(32-p.Bits())-1)})
			continue
		}
		first, host := word(p.Masked().Addr()), hostMask(p.Bits())
		r.v6 = append(r.v6, span6{first, word128{first.hi | host.hi, first.lo | host.lo}})
	}
	r.v4, r.v6 = merge4(r.v4), merge6(r.v6)
	return r
}

func merge4(spans []span4) []span4 {
	slices.SortFunc(spans, func(a, b span4) int { return cmp.Compare(a.first, b.first) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && uint64(s.first) <= uint64(merged[n-1].last)+1 {
			merged[n-1].last = max(merged[n-1].last, s.last)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

func merge6(spans []span6) []span6 {
	slices.SortFunc(spans, func(a, b span6) int { return a.first.compare(b.first) })
	merged := spans[:0]
	for _, s := range spans {
		// The last address of all has no successor; nothing sorts behind it
		// but spans it already holds.
		if n := len(merged); n > 0 && (s.first.compare(merged[n-1].last) <= 0 || s.first == merged[n-1].last.next()) {
			if s.last.compare(merged[n-1].last) > 0 {
				merged[n-1].last = s.last
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// contains reports whether a, which must be unmapped, is in the set.
func (r *ranges) contains(a netip.Addr) bool {
	if a.Is4() {
		return r.contains4(word32(a))
	}
	return len(r.v6) > 0 && r.contains6(word(a))
}

func (r *ranges) contains4(w uint32) bool {
	low, high := 0, len(r.v4) // every span before low starts at or before w, none from high on does
	for low < high {
		if mid := int(uint(low+high) / 2); r.v4[mid].first <= w {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low > 0 && w <= r.v4[low-1].last
}

func (r *ranges) contains6(w word128) bool {
	low, high := 0, len(r.v6)
	for low < high {
		if mid := int(uint(low+high) / 2); r.v6[mid].first.compare(w) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low > 0 && w.compare(r.v6[low-1].last) <= 0
}

func word32(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func word(a netip.Addr) word128 {
	b := a.As16()
	return word128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// hostMask is the word whose last 128-bits bits are set. Shifting by 64 or
// more gives 0 in Go, which is what the ends need.
func hostMask(bits int) word128 {
	if bits >= 64 {
		return word128{0, 1<<(128-bits) - 1}
	}
	return word128{1<<(64-bits) - 1, 1<<64 - 1}
}

// unmapPrefix turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, because the
// addresses it is compared with are unmapped.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// checkTrusted reports what is wrong with one trusted prefix, or nil.
func checkTrusted(i int, p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fmt.Errorf("TrustedProxies[%d] is %v, want an address and a prefix length", i, p)
	case p.Addr().Is4In6() && p.Bits() < 96:
		return fmt.Errorf(
			"TrustedProxies[%d] is %v, want an IPv4 prefix such as 10.0.0.0/8, or ::ffff: with 96 bits or more", i, p)
	case unmapPrefix(p).Bits() == 0:
		return fmt.Errorf("TrustedProxies[%d] is %v, want the addresses of your own proxies: if every address is "+
			"trusted, clients choose theirs", i, p)
	}
	return nil
}
