package identity

import "net/netip"

// ForwardedElements reads every element of Forwarded header lines and returns
// their addresses in the order written, invalid ones for elements without.
func ForwardedElements(lines ...string) (all []netip.Addr) {
	l := hopList{lines: lines, quotes: true, bytes: maxListBytes}
	for {
		element, stop := l.pop()
		if stop != stopNot {
			return all
		}
		a, _ := parseForwarded(element)
		all = append([]netip.Addr{a}, all...)
	}
}

// ParseIPv4 is parseIPv4.
func ParseIPv4(s string) (netip.Addr, bool) { return parseIPv4(s) }

// Contains reports whether a set compiled from prefixes contains a.
func Contains(prefixes []netip.Prefix, a netip.Addr) bool {
	r := newRanges(prefixes)
	return r.contains(plain(a))
}

const (
	MaxHops      = maxHops
	MaxListBytes = maxListBytes
)
