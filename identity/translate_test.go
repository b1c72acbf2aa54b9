package identity_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// TestGroups: addresses that stand for an IPv4 address share its budget, or at
// least never make many of it.
func TestGroups(t *testing.T) {
	operators := prefixes("2001:db8::/32", "2001:db8:100::/40", "2001:db8:122::/48", "2001:db8:122:300::/56",
		"2001:db8:122:344::/64", "2001:db8:122:344::/96")
	for _, c := range []struct {
		name       string
		o          identity.Options
		peer, want string
	}{
		{"IPv4", identity.Options{}, "192.0.2.33", "192.0.2.33/32"},
		{"IPv4 by network", identity.Options{IPv4Bits: 24}, "192.0.2.33", "192.0.2.0/24"},
		{"mapped IPv4 by network", identity.Options{IPv4Bits: 24}, "::ffff:192.0.2.33", "192.0.2.0/24"},
		{"well-known NAT64", identity.Options{}, "64:ff9b::192.0.2.33", "64:ff9b::c000:221/128"},
		{"well-known NAT64 by network", identity.Options{IPv4Bits: 24}, "64:ff9b::192.0.2.33", "64:ff9b::c000:200/120"},
		{"not quite NAT64", identity.Options{}, "64:ff9b:0:0:0:1:192.0.2.33", "64:ff9b::/64"},

		// The examples of RFC 6052 §2.4: 192.0.2.33 under each length.
		{"NAT64 /32", identity.Options{NAT64: operators}, "2001:db8:c000:221::", "2001:db8:c000:221::/64"},
		{"NAT64 /40", identity.Options{NAT64: operators}, "2001:db8:1c0:2:21::", "2001:db8:1c0:2:21::/80"},
		{"NAT64 /48", identity.Options{NAT64: operators}, "2001:db8:122:c000:2:2100::",
			"2001:db8:122:c000:2:2100::/88"},
		{"NAT64 /56", identity.Options{NAT64: operators}, "2001:db8:122:3c0:0:221::", "2001:db8:122:3c0:0:221::/96"},
		{"NAT64 /64", identity.Options{NAT64: operators}, "2001:db8:122:344:c0:2:2100::",
			"2001:db8:122:344:c0:2:2100:0/104"},
		{"NAT64 /96", identity.Options{NAT64: operators}, "2001:db8:122:344::192.0.2.33",
			"2001:db8:122:344::c000:221/128"},

		// The suffix is anybody's choice, and makes no other budget.
		{"NAT64 /64 with suffix", identity.Options{NAT64: operators}, "2001:db8:122:344:c0:2:21ff:ffff",
			"2001:db8:122:344:c0:2:2100:0/104"},
		// With something in bits 64 to 71 it is no translated address.
		{"NAT64 /64 but not", identity.Options{NAT64: prefixes("2001:db8:122:344::/64")},
			"2001:db8:122:344:1c0:2:2100::", "2001:db8:122:344::/64"},
		{"NAT64 /40 by network", identity.Options{NAT64: operators, IPv4Bits: 24}, "2001:db8:1c0:2:21::",
			"2001:db8:1c0:2::/64"},
		{"NAT64 /48 by network", identity.Options{NAT64: operators, IPv4Bits: 24}, "2001:db8:122:c000:2:2100::",
			"2001:db8:122:c000:2::/80"},

		// RFC 8215: where the operator's prefix is inside is not known.
		{"local NAT64, not named", identity.Options{}, "64:ff9b:1::192.0.2.33", "64:ff9b:1::/64"},
		{"local NAT64", identity.Options{NAT64: prefixes("64:ff9b:1::/48")}, "64:ff9b:1:c000:2:2100::",
			"64:ff9b:1:c000:2:2100::/88"},
		{"local NAT64, a part", identity.Options{NAT64: prefixes("64:ff9b:1:fffe::/96")}, "64:ff9b:1:fffe::192.0.2.33",
			"64:ff9b:1:fffe::c000:221/128"},

		{"6to4", identity.Options{}, "2002:c000:221:1::1", "2002:c000:221::/48"},
		{"6to4 by network", identity.Options{IPv4Bits: 24}, "2002:c000:221:1::1", "2002:c000:200::/40"},
		{"6to4 in larger groups", identity.Options{IPv6Bits: 32}, "2002:c000:221:1::1", "2002:c000::/32"},
		{"Teredo", identity.Options{}, "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::/32"},
		{"Teredo in larger groups", identity.Options{IPv6Bits: 16},
			"2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::/16"},
		{"beside Teredo", identity.Options{}, "2001:1:4136:e378::1", "2001:1:4136:e378::/64"},
	} {
		p := newResolver(t, c.o).Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr(c.peer)})
		if p.Prefix.String() != c.want {
			t.Errorf("%s: the prefix of %s is %v, want %s", c.name, c.peer, p.Prefix, c.want)
		}
		if p.Client != netip.MustParseAddr(c.peer).Unmap() {
			t.Errorf("%s: client is %v, want %s as it came", c.name, p.Client, c.peer)
		}
	}
}

// TestTransitionAddressesMakeNoBudgets: all that one host can choose of an
// address that embeds its IPv4 address is one budget.
func TestTransitionAddressesMakeNoBudgets(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	who := newResolver(t, identity.Options{NAT64: prefixes("2001:db8:122:344::/64")})
	for name, choose := range map[string]func() string{
		"6to4": func() string {
			return fmt.Sprintf("2002:c000:221:%x::%x", uint16(random.Uint32()), uint16(random.Uint32()))
		},
		"Teredo servers": func() string {
			return fmt.Sprintf("2001:0:%x:%x:8000:%x:3fff:fdd2", uint16(random.Uint32()), uint16(random.Uint32()),
				uint16(random.Uint32()))
		},
		"NAT64 suffixes": func() string {
			return fmt.Sprintf("2001:db8:122:344:c0:2:21%02x:%x", uint8(random.Uint32()), uint16(random.Uint32()))
		},
	} {
		subjects := map[string]bool{}
		for range 1000 {
			p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr(choose())})
			subjects[string(p.AppendSubject(nil))] = true
		}
		if len(subjects) != 1 {
			t.Errorf("%s: 1000 addresses of one host have %d subjects, want 1", name, len(subjects))
		}
	}
}

func TestIPv4(t *testing.T) {
	who := newResolver(t, identity.Options{NAT64: prefixes("2001:db8:100::/40", "64:ff9b:1::/48")})
	for in, want := range map[string]string{
		"192.0.2.33":              "192.0.2.33",
		"::ffff:192.0.2.33":       "192.0.2.33",
		"64:ff9b::192.0.2.33":     "192.0.2.33",
		"2001:db8:1c0:2:21::":     "192.0.2.33",
		"2001:db8:1c0:2:21::9":    "192.0.2.33",
		"64:ff9b:1:c000:2:2100::": "192.0.2.33",
		"2001:db8:1c0:2:ff21::":   "2001:db8:1c0:2:ff21::",
		"2002:c000:221::1":        "2002:c000:221::1",
		"fe80::1%eth0":            "fe80::1",
		"2001:db8:200::":          "2001:db8:200::",
	} {
		if got := who.IPv4(netip.MustParseAddr(in)); got.String() != want {
			t.Errorf("IPv4(%s) = %v, want %s", in, got, want)
		}
	}
	if got := who.IPv4(netip.Addr{}); got.IsValid() {
		t.Errorf("IPv4 of nothing = %v, want nothing", got)
	}
}

// FuzzNAT64: what is put behind a prefix as RFC 6052 §2.2 says is found there,
// and its group holds it and, with a budget for each, nobody else.
func FuzzNAT64(f *testing.F) {
	f.Add(byte(0), uint32(0xc0000221), byte(32), uint64(0))
	f.Add(byte(4), uint32(0x7f000001), byte(24), uint64(1))
	f.Add(byte(5), uint32(0xffffffff), byte(1), uint64(9))
	f.Fuzz(func(t *testing.T, which byte, v4 uint32, bits byte, suffix uint64) {
		length := []int{32, 40, 48, 56, 64, 96}[which%6]
		ipv4Bits := 1 + int(bits)%32
		who := newResolver(t, identity.Options{
			NAT64:    []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("2001:db8::"), length)},
			IPv4Bits: ipv4Bits,
		})
		// The 128 bits as a text of zeros and ones, which is slow and obvious.
		text := fmt.Sprintf("%032b%032b%032b", 0x20010db8, 0, 0)[:length] + fmt.Sprintf("%032b", v4)
		if length <= 64 {
			text = text[:64] + "00000000" + text[64:]
		}
		text = (text + fmt.Sprintf("%064b", suffix))
		for len(text) < 128 {
			text += "0"
		}
		var b [16]byte
		for i := range 128 {
			b[i/8] = b[i/8]<<1 | text[i]&1
		}
		a, want := netip.AddrFrom16(b), netip.AddrFrom4([4]byte{byte(v4 >> 24), byte(v4 >> 16),
			byte(v4 >> 8), byte(v4)})
		if got := who.IPv4(a); got != want {
			t.Fatalf("/%d: IPv4(%v) = %v, want %v", length, a, got, want)
		}
		p := who.Resolve(t.Context(), identity.Evidence{Peer: a})
		if !p.Prefix.Contains(a) || p.Prefix != p.Prefix.Masked() {
			t.Errorf("/%d: the group of %v is %v", length, a, p.Prefix)
		}
		group, _ := want.Prefix(ipv4Bits)
		for _, neighbour := range []netip.Addr{group.Addr(), want.Next(), want.Prev()} {
			if !neighbour.IsValid() {
				continue
			}
			v := neighbour.As4()
			n := b
			at := length / 8
			for i := range v {
				if at == 8 && length <= 64 {
					at++
				}
				n[at], at = v[i], at+1
			}
			if got := p.Prefix.Contains(netip.AddrFrom16(n)); got != group.Contains(neighbour) {
				t.Errorf("/%d: the group %v of %v holds that of %v: %v, want %v", length, p.Prefix, want,
					neighbour, got, !got)
			}
		}
	})
}
