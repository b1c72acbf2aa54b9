package identity_test

import (
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// TestSite: only what is smaller than a /48 of IPv6 is a part of one, and nothing that stands for an IPv4
// address.
func TestSite(t *testing.T) {
	for _, c := range []struct {
		name       string
		o          identity.Options
		peer, want string
	}{
		{"IPv6", identity.Options{}, "2001:db8:1:2::3", "2001:db8:1::/48"},
		{"IPv6, one address each", identity.Options{IPv6Bits: 128}, "2001:db8:1:2::3", "2001:db8:1::/48"},
		{"IPv6 in groups as large", identity.Options{IPv6Bits: 48}, "2001:db8:1:2::3", "2001:db8:1::/48"},
		{"IPv6 in larger groups", identity.Options{IPv6Bits: 32}, "2001:db8:1:2::3", "2001:db8::/32"},
		{"IPv4", identity.Options{}, "192.0.2.33", "192.0.2.33/32"},
		{"mapped IPv4", identity.Options{}, "::ffff:192.0.2.33", "192.0.2.33/32"},
		{"well-known NAT64", identity.Options{}, "64:ff9b::192.0.2.33", "64:ff9b::c000:221/128"},
		{"around the well-known NAT64", identity.Options{}, "64:ff9b:0:0:0:1::1", "64:ff9b::/48"},
		{"the operator's NAT64", identity.Options{NAT64: prefixes("2001:db8:122:344::/64")},
			"2001:db8:122:344:c0:2:2100::", "2001:db8:122:344:c0:2:2100:0/104"},
		{"6to4", identity.Options{}, "2002:c000:221:1::1", "2002:c000:221::/48"},
		{"Teredo", identity.Options{}, "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::/32"},
	} {
		r := newResolver(t, c.o)
		who := r.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr(c.peer)})
		if got := r.Site(who.Prefix); got.String() != c.want {
			t.Errorf("%s: the site of %s is %v, want %s", c.name, c.peer, got, c.want)
		}
	}
	if got := newResolver(t, identity.Options{}).Site(netip.Prefix{}); got.IsValid() {
		t.Errorf("the site of no address is %v", got)
	}
}
