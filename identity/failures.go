package identity

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// Whoever sends tokens with a made-up signature makes the process check it, at
// many times the price of a request without one. So the failures of each
// address group are counted, and once it has failed too often its uncached
// tokens are not looked at until its debt has drained: such a request costs
// what a request without a token costs.
//
// A counter is the time at which its debt will have drained, so it decays
// without anybody visiting it. Each group has one in either of two rows, chosen
// by hashes under a random seed, and is refused only when both are spent: a
// stranger has to share both to suffer. The memory is fixed and nothing is
// allocated.
//
// Who has an IPv6 /64 often has 65,536 of them. So IPv6 groups are counted with
// their /48 too, which may fail siteShare times as often. Groups behind NAT64
// are not: their /48 is that of the translator, with all of IPv4 in it.
//
// The debt is charged after the failure, so as many more signatures are checked
// as processors were at it when the budget ran out.

const (
	failureRow = 1 << 13 // counters in each of the two rows, 64 KiB

	defaultTokenFailures          = 32
	defaultTokenFailuresPerSecond = 4
	maxTokenFailures              = 1 << 20

	// A token refused for what stands in it costs a few µs, not tens.
	cheapFailures = 16 // of them weigh as much as one checked signature

	siteBits  = 48 // what a site is given (RFC 6177)
	siteShare = 8
)

type failures struct {
	start time.Time
	cost  time.Duration // of one checked signature
	burst time.Duration // the largest debt
	seed  maphash.Seed
	nat64 []nat64
	rows  [2][failureRow]atomic.Int64 // when the debt will have drained, after start
}

func newFailures(burst, perSecond int, nat64 []nat64, now time.Time) *failures {
	cost := time.Second / time.Duration(perSecond)
	return &failures{start: now, cost: cost, burst: cost * time.Duration(burst), seed: maphash.MakeSeed(), nat64: nat64}
}

func (f *failures) counters(group netip.Prefix) [2]*atomic.Int64 {
	// Not maphash.Comparable: its hashes of a group and of the site that begins
	// with it differ by the same bits for all groups, so strangers who share the
	// counters of a group would share those of its site too.
	var b [17]byte
	*(*[16]byte)(b[:]) = group.Addr().As16()
	b[16] = byte(group.Bits())
	h := maphash.Bytes(f.seed, b[:])
	return [2]*atomic.Int64{&f.rows[0][h%failureRow], &f.rows[1][h>>32%failureRow]}
}

// spent reports whether the group, or the site that it belongs to, has failed
// too often of late.
func (f *failures) spent(group netip.Prefix, now time.Time) bool {
	at := int64(now.Sub(f.start))
	site, within := siteOf(group, f.nat64)
	return f.over(group, at) || within && f.over(site, at)
}

// Site returns the /48 that an IPv6 group is a part of, which one customer often
// has the whole of, or else the group itself: of IPv4, of what stands for IPv4,
// and where groups are no smaller.
func (r *Resolver) Site(group netip.Prefix) netip.Prefix {
	if site, within := siteOf(group, r.nat64); within {
		return site
	}
	return group
}

// siteOf returns the /48 that an IPv6 group is a part of, but none for a group
// behind NAT64.
func siteOf(group netip.Prefix, nat64 []nat64) (site netip.Prefix, within bool) {
	if !group.Addr().Is6() || group.Bits() <= siteBits {
		return netip.Prefix{}, false
	}
	for _, n := range nat64 {
		// A group that a prefix is part of is around it, and not behind it.
		if group.Bits() > n.prefix.Bits() && n.holds(group.Addr()) {
			return netip.Prefix{}, false
		}
	}
	site, err := group.Addr().Prefix(siteBits)
	return site, err == nil
}

func (f *failures) over(group netip.Prefix, at int64) bool {
	for _, c := range f.counters(group) {
		if c.Load()-at <= int64(f.burst-f.cost) {
			return false
		}
	}
	return true
}

// charge counts a failure of the group.
func (f *failures) charge(group netip.Prefix, cheap bool, now time.Time) {
	cost := f.cost
	if cheap {
		cost /= cheapFailures
	}
	at := int64(now.Sub(f.start))
	f.add(group, cost, at)
	if site, within := siteOf(group, f.nat64); within {
		f.add(site, cost/siteShare, at)
	}
}

func (f *failures) add(group netip.Prefix, cost time.Duration, at int64) {
	for _, c := range f.counters(group) {
		for {
			old := c.Load()
			if c.CompareAndSwap(old, min(max(old, at)+int64(cost), at+int64(f.burst))) {
				break
			}
		}
	}
}
