package identity

import (
	"fmt"
	"net/netip"
	"slices"
)

// IPv6 addresses that stand for an IPv4 address, and how they are grouped.
//
//	64:ff9b::/96       NAT64, RFC 6052   one budget for each IPv4 address inside
//	Options.NAT64      NAT64, RFC 6052   the same
//	64:ff9b:1::/48     NAT64, RFC 8215   like any other, unless it, or the part used, is in Options.NAT64
//	2002::/16          6to4, RFC 3056    one budget for each IPv4 address inside
//	2001::/32          Teredo, RFC 4380  one budget for all of it
//
// Grouped by /64, NAT64 would be one budget for all of IPv4. 6to4 would give
// the holder of one IPv4 address 65,536 budgets, as many as a /48 has. Teredo
// would give one host a budget for each server address it claims to use, which
// relays do not verify, and the host's own address is at the end, where no
// prefix reaches it. Nobody has used Teredo or 6to4 in earnest for years.

// nat64 is a prefix behind which IPv4 addresses stand as RFC 6052 §2.2 says:
// next to it, but around the bits 64 to 71, which are zero.
type nat64 struct {
	prefix netip.Prefix
}

var wellKnownNAT64 = nat64{netip.MustParsePrefix("64:ff9b::/96")}

var nat64Lengths = []int{32, 40, 48, 56, 64, 96}

const reservedOctet = 8 // of an IPv6 address: bits 64 to 71

// holds reports whether a is a translated IPv4 address.
func (n nat64) holds(a netip.Addr) bool {
	if !n.prefix.Contains(a) {
		return false
	}
	b := a.As16()
	return n.prefix.Bits() > 64 || b[reservedOctet] == 0
}

// bits is how long a prefix of IPv6 is as long as ipv4Bits of the IPv4 address.
func (n nat64) bits(ipv4Bits int) int {
	bits := n.prefix.Bits() + ipv4Bits
	if n.prefix.Bits() <= 64 && bits > 64 {
		bits += 8
	}
	return bits
}

// embedded is the IPv4 address inside a, which n holds.
func (n nat64) embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	var v4 [4]byte
	at := n.prefix.Bits() / 8
	for i := range v4 {
		if at == reservedOctet && n.prefix.Bits() <= 64 {
			at++
		}
		v4[i] = b[at]
		at++
	}
	return netip.AddrFrom4(v4)
}

// translation returns the prefix that holds a.
func (r *Resolver) translation(a netip.Addr) (nat64, bool) {
	for _, n := range r.nat64 {
		if n.holds(a) {
			return n, true
		}
	}
	return nat64{}, false
}

// IPv4 returns the IPv4 address that a stands for if a is IPv4-mapped or inside
// a NAT64 prefix, and a otherwise, without its zone. Where a client is, say its
// country, is where that address is.
func (r *Resolver) IPv4(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if n, ok := r.translation(a); ok {
			return n.embedded(a)
		}
	}
	return a
}

var (
	sixToFour = netip.MustParsePrefix("2002::/16")
	teredo    = netip.MustParsePrefix("2001::/32")
)

// Group returns the prefix whose addresses share a budget with a: those are one
// client, also where connections are counted. The zero Prefix is that of no
// address.
func (r *Resolver) Group(a netip.Addr) netip.Prefix { return r.group(a.Unmap().WithZone("")) }

// group is the prefix whose addresses share a budget.
func (r *Resolver) group(a netip.Addr) netip.Prefix {
	if !a.IsValid() {
		return netip.Prefix{}
	}
	p, _ := a.Prefix(r.groupBits(a)) // New has checked what it is made of
	return p
}

func (r *Resolver) groupBits(a netip.Addr) int {
	if a.Is4() {
		return r.ipv4Bits
	}
	if n, ok := r.translation(a); ok {
		return n.bits(r.ipv4Bits)
	}
	switch {
	case sixToFour.Contains(a):
		return min(r.ipv6Bits, sixToFour.Bits()+r.ipv4Bits)
	case teredo.Contains(a):
		return min(r.ipv6Bits, teredo.Bits())
	}
	return r.ipv6Bits
}

// maxNAT64 bounds how many prefixes each IPv6 address is compared with.
const maxNAT64 = 16

// newNAT64 returns the prefixes with the well-known one, the longest first, so
// that the most specific one that holds an address is found.
func newNAT64(prefixes []netip.Prefix) []nat64 {
	all := []nat64{wellKnownNAT64}
	for _, p := range prefixes {
		if p = p.Masked(); p != wellKnownNAT64.prefix {
			all = append(all, nat64{p})
		}
	}
	slices.SortStableFunc(all, func(a, b nat64) int { return b.prefix.Bits() - a.prefix.Bits() })
	return all
}

// CheckNAT64 says what a prefix in Options.NAT64 would have to be, or nil if p
// can be one.
func CheckNAT64(p netip.Prefix) error {
	switch {
	case !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6():
		return fmt.Errorf("an IPv6 prefix such as 2001:db8:64::/96")
	case !slices.Contains(nat64Lengths, p.Bits()):
		return fmt.Errorf("32, 40, 48, 56, 64 or 96 bits (RFC 6052 §2.2)")
	case p != p.Masked():
		return fmt.Errorf("no bits behind its length, as %v", p.Masked())
	case p.Bits() == 96 && p.Addr().As16()[reservedOctet] != 0:
		return fmt.Errorf("zeros in its bits 64 to 71 (RFC 6052 §2.2)")
	}
	return nil
}

func checkNAT64(prefixes []netip.Prefix) (faults []error) {
	if len(prefixes) > maxNAT64 {
		faults = append(faults, fmt.Errorf("NAT64 has %d prefixes, want %d or fewer", len(prefixes), maxNAT64))
	}
	for i, p := range prefixes {
		if err := CheckNAT64(p); err != nil {
			faults = append(faults, fmt.Errorf("NAT64[%d] is %v, want %w", i, p, err))
		}
		if slices.Contains(prefixes[:i], p) {
			faults = append(faults, fmt.Errorf("NAT64[%d] is %v, which stands there twice", i, p))
		}
	}
	return faults
}
