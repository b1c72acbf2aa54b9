package identity_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

func TestTrustedCount(t *testing.T) {
	for _, c := range []struct {
		name         string
		count        int
		peer, header string
		want         string
		index        int
		stop         identity.Stop
	}{
		{"one proxy", 1, "10.0.0.1", "1.1.1.1", "1.1.1.1", 1, identity.StopCounted},
		{"one proxy, spoofed", 1, "10.0.0.1", "6.6.6.6, 1.1.1.1", "1.1.1.1", 1, identity.StopCounted},
		{"two proxies", 2, "10.0.0.1", "6.6.6.6, 1.1.1.1, 198.51.100.7", "1.1.1.1", 2, identity.StopCounted},
		{"two proxies, two lines", 2, "10.0.0.1", "6.6.6.6, 1.1.1.1\n198.51.100.7", "1.1.1.1", 2, identity.StopCounted},
		{"exactly as many", 2, "10.0.0.1", "1.1.1.1, 198.51.100.7", "1.1.1.1", 2, identity.StopCounted},
		{"a proxy that hides its own address", 2, "10.0.0.1", "1.1.1.1, unknown", "1.1.1.1", 2, identity.StopCounted},

		// Gone round the outer proxy: nothing in the header counts.
		{"fewer than proxies", 2, "10.0.0.1", "1.1.1.1", "10.0.0.1", 0, identity.StopTooFew},
		{"none", 2, "10.0.0.1", "-", "10.0.0.1", 0, identity.StopNoHeader},
		{"empty", 2, "10.0.0.1", "", "10.0.0.1", 0, identity.StopTooFew},
		{"far fewer", 64, "10.0.0.1", "1.1.1.1, 2.2.2.2", "10.0.0.1", 0, identity.StopTooFew},

		{"no address where it should be", 2, "10.0.0.1", "6.6.6.6, localhost, 198.51.100.7", "10.0.0.1", 0,
			identity.StopMalformed},
		{"empty where it should be", 2, "10.0.0.1", "6.6.6.6,, 198.51.100.7", "10.0.0.1", 0, identity.StopEmpty},
		{"unknown where it should be", 1, "10.0.0.1", "6.6.6.6, unknown", "10.0.0.1", 0, identity.StopUnknown},
		{"too long to look", 2, "10.0.0.1", "1.1.1.1," + strings.Repeat("x", identity.MaxListBytes), "10.0.0.1", 0,
			identity.StopTooLong},

		{"from a stranger", 1, "203.0.113.9", "1.1.1.1", "203.0.113.9", 0, identity.StopPeerUntrusted},
		{"from nobody", 1, "", "1.1.1.1", "none", 0, identity.StopNoPeer},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			if c.header != "-" {
				h["X-Forwarded-For"] = strings.Split(c.header, "\n")
			}
			peer, _ := netip.ParseAddr(c.peer)
			who := newResolver(t, identity.Options{Strategy: identity.TrustedCount, ProxyCount: c.count,
				TrustedProxies: proxies})
			p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: h})
			if text(p.Client) != c.want || p.Hop.Index != c.index || p.Hop.Stop != c.stop {
				t.Errorf("client %s, hop %d, %s; want %s, hop %d, %s", text(p.Client), p.Hop.Index, p.Hop.Stop, c.want,
					c.index, c.stop)
			}
		})
	}
}

// TestTrustedCountWithoutRanges: whoever connects is taken for the last proxy.
func TestTrustedCountWithoutRanges(t *testing.T) {
	who := newResolver(t, identity.Options{Strategy: identity.TrustedCount, ProxyCount: 1,
		ForwardedHeader: "Forwarded"})
	h := http.Header{"Forwarded": {`for=6.6.6.6, for="[2001:db8::7]:443"`}, "X-Forwarded-For": {"6.6.6.6"}}
	if p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"), Header: h}); text(
		p.Client) != "2001:db8::7" {
		t.Errorf("client is %v (%s), want what the peer wrote", p.Client, p.Hop)
	}
	if who.Trusts(netip.Addr{}) {
		t.Error("Trusts nobody's address, want only those that exist")
	}
	if !who.Trusts(netip.MustParseAddr("203.0.113.9")) {
		t.Error("Trusts is false, want every peer to be taken for a proxy")
	}
}

func TestSingleHeader(t *testing.T) {
	for _, c := range []struct {
		name  string
		peer  string
		lines []string
		want  string
		stop  identity.Stop
	}{
		{"IPv4", "10.0.0.1", []string{"1.1.1.1"}, "1.1.1.1", identity.StopNamed},
		{"IPv4 with port", "10.0.0.1", []string{"1.1.1.1:443"}, "1.1.1.1", identity.StopNamed},
		{"IPv6", "10.0.0.1", []string{"2001:DB8::7"}, "2001:db8::7", identity.StopNamed},
		{"IPv6 with port", "10.0.0.1", []string{" [2001:db8::7]:443\t"}, "2001:db8::7", identity.StopNamed},
		{"IPv4-mapped", "::ffff:10.0.0.1", []string{"::ffff:1.1.1.1"}, "1.1.1.1", identity.StopNamed},
		{"zone", "10.0.0.1", []string{"fe80::7%eth0"}, "fe80::7", identity.StopNamed},

		{"absent", "10.0.0.1", nil, "10.0.0.1", identity.StopNoHeader},
		{"two lines", "10.0.0.1", []string{"1.1.1.1", "2.2.2.2"}, "10.0.0.1", identity.StopRepeated},
		{"the same twice", "10.0.0.1", []string{"1.1.1.1", "1.1.1.1"}, "10.0.0.1", identity.StopRepeated},
		{"a list", "10.0.0.1", []string{"1.1.1.1, 2.2.2.2"}, "10.0.0.1", identity.StopMalformed},
		{"a list of IPv6", "10.0.0.1", []string{"2001:db8::7,2001:db8::8"}, "10.0.0.1", identity.StopMalformed},
		{"empty", "10.0.0.1", []string{""}, "10.0.0.1", identity.StopEmpty},
		{"unspecified", "10.0.0.1", []string{"0.0.0.0"}, "10.0.0.1", identity.StopUnknown},
		{"no address", "10.0.0.1", []string{"localhost"}, "10.0.0.1", identity.StopMalformed},
		{"octal", "10.0.0.1", []string{"0177.0.0.1"}, "10.0.0.1", identity.StopMalformed},
		{"long", "10.0.0.1", []string{"1.1.1.1" + strings.Repeat(" ", 1000)}, "10.0.0.1", identity.StopMalformed},
		{"from a stranger", "203.0.113.9", []string{"1.1.1.1"}, "203.0.113.9", identity.StopPeerUntrusted},
	} {
		for _, header := range []string{"CF-Connecting-IP", "true-client-ip", "X-Real-IP", "Fly-Client-IP"} {
			who := newResolver(t, identity.Options{Strategy: identity.SingleHeader, ClientHeader: header,
				TrustedProxies: proxies})
			h := http.Header{
				"X-Forwarded-For":                    {"6.6.6.6"},
				"Forwarded":                          {"for=6.6.6.6"},
				strings.ReplaceAll(header, "-", "_"): {"6.6.6.6"},
			}
			if c.lines != nil {
				h[http.CanonicalHeaderKey(header)] = c.lines
			}
			p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr(c.peer), Header: h})
			if text(p.Client) != c.want || p.Hop.Stop != c.stop {
				t.Errorf("%s in %s: client %s, %s; want %s, %s", c.name, header, text(p.Client), p.Hop.Stop,
					c.want, c.stop)
			}
		}
	}
}

func TestStrategiesThatDoNotGoTogether(t *testing.T) {
	for _, c := range []struct {
		o    identity.Options
		want string
	}{
		{identity.Options{Strategy: 7}, "Strategy is Strategy(7), want TrustedRanges"},
		{identity.Options{ProxyCount: 1}, "ProxyCount is 1, want 0: the strategy is trusted_ranges"},
		{identity.Options{Strategy: identity.TrustedCount}, "ProxyCount is 0, want 1 to 64"},
		{identity.Options{Strategy: identity.TrustedCount, ProxyCount: -1}, "ProxyCount is -1, want 1 to 64"},
		{identity.Options{Strategy: identity.TrustedCount, ProxyCount: 65}, "ProxyCount is 65, want 1 to 64"},
		{identity.Options{ClientHeader: "X-Real-IP"},
			`ClientHeader is "X-Real-IP", want none: the strategy is trusted_ranges`},
		{identity.Options{Strategy: identity.SingleHeader, ClientHeader: "X-Real-IP"},
			"TrustedProxies is empty, want the addresses that set X-Real-Ip"},
		{identity.Options{Strategy: identity.SingleHeader, TrustedProxies: proxies},
			`ClientHeader is "", want the name of a header`},
		{identity.Options{Strategy: identity.SingleHeader, TrustedProxies: proxies, ClientHeader: "X Real"},
			`ClientHeader is "X Real", want the name of a header`},
		{identity.Options{
			Strategy:       identity.SingleHeader,
			TrustedProxies: proxies,
			ClientHeader:   "X_Real_IP",
		}, "want a name without underscores"},
		{identity.Options{
			Strategy:       identity.SingleHeader,
			TrustedProxies: proxies,
			ClientHeader:   "x-forwarded-for",
		}, "want a header that holds one address"},
		{identity.Options{
			Strategy:       identity.SingleHeader,
			TrustedProxies: proxies,
			ClientHeader:   "connection",
		}, "want a header that holds one address"},
		{identity.Options{
			Strategy:       identity.SingleHeader,
			TrustedProxies: proxies,
			ClientHeader:   "x-api-key",
		}, "want another one than KeySources.Header"},
		{identity.Options{IPv4Bits: 33}, "IPv4Bits is 33, want 1 to 32"},
		{identity.Options{NAT64: prefixes("10.0.0.0/8")}, "NAT64[0] is 10.0.0.0/8, want an IPv6 prefix"},
		{identity.Options{NAT64: prefixes("2001:db8::/60")},
			"NAT64[0] is 2001:db8::/60, want 32, 40, 48, 56, 64 or 96 bits"},
		{identity.Options{NAT64: prefixes("2001:db8::1/32")}, "want no bits behind its length, as 2001:db8::/32"},
		{identity.Options{NAT64: prefixes("2001:db8:0:0:ff00::/96")}, "want zeros in its bits 64 to 71"},
		{identity.Options{NAT64: prefixes("2001:db8::/32", "2001:db8::/32")},
			"NAT64[1] is 2001:db8::/32, which stands there twice"},
		{identity.Options{NAT64: slices.Repeat(prefixes("2001:db8::/32"), 17)},
			"NAT64 has 17 prefixes, want 16 or fewer"},
	} {
		if _, err := identity.New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v) = %v, want %q", c.o, err, c.want)
		}
	}
}

func TestStrategyNames(t *testing.T) {
	for _, s := range []identity.Strategy{identity.TrustedRanges, identity.TrustedCount, identity.SingleHeader} {
		if got, err := identity.ParseStrategy(s.String()); err != nil || got != s {
			t.Errorf("ParseStrategy(%q) = %v, %v", s, got, err)
		}
	}
	if _, err := identity.ParseStrategy("leftmost"); err == nil {
		t.Error(`ParseStrategy("leftmost") succeeds, want an error`)
	}
}

// FuzzTrustedCount: the client is the peer or the hop at its place, whatever
// stands in the header.
func FuzzTrustedCount(f *testing.F) {
	f.Add("6.6.6.6, 1.1.1.1, 10.0.0.2", byte(2))
	f.Add("1.1.1.1\n10.0.0.2", byte(3))
	f.Add("unknown,, [2001:db8::7]:443, ::ffff:1.2.3.4", byte(1))
	f.Add(strings.Repeat(",", 100), byte(64))
	addCorpus(f, func(line string) { f.Add(line, byte(2)) })
	peer := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, value string, count byte) {
		n := 1 + int(count)%identity.MaxHops
		lines := strings.Split(value, "\n")
		who := newResolver(t, identity.Options{Strategy: identity.TrustedCount, ProxyCount: n, TrustedProxies: proxies})
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: http.Header{"X-Forwarded-For": lines}})
		if p.Hop.Stop == identity.StopTooLong {
			if p.Client != peer {
				t.Errorf("client is %v of a header too long to look at", p.Client)
			}
			return
		}
		elements := strings.Split(strings.Join(lines, ","), ",")
		want := peer
		if at := len(elements) - n; at >= 0 {
			if a, ok := obviousNode(elements[at]); ok {
				want = a
			}
		}
		if p.Client != want {
			t.Errorf("X-Forwarded-For: %q, %d proxies: client is %v (%s), want %v", lines, n, p.Client, p.Hop, want)
		}
		// A client that adds to the left of what n proxies wrote changes nothing.
		if len(elements) >= n {
			more := append([]string{"6.6.6.6, 7.7.7.7"}, lines...)
			if q := who.Resolve(t.Context(), identity.Evidence{Peer: peer,
				Header: http.Header{"X-Forwarded-For": more}}); q.Client != p.Client {
				t.Errorf("X-Forwarded-For: %q, %d proxies: client is %v, was %v without the first line", more, n,
					q.Client, p.Client)
			}
		}
	})
}

// FuzzSingleHeader: the client is the peer, or the address that the whole of
// one line is.
func FuzzSingleHeader(f *testing.F) {
	for _, seed := range []string{"", "1.1.1.1", "1.1.1.1\n2.2.2.2", "1.1.1.1, 2.2.2.2", "[2001:db8::7]:443",
		"fe80::1%eth0", "::ffff:1.2.3.4", "0.0.0.0", " 1.1.1.1\t", "_x", "unknown"} {
		f.Add(seed)
	}
	addCorpus(f, func(line string) { f.Add(line) })
	who := newResolver(f, identity.Options{
		Strategy:       identity.SingleHeader,
		ClientHeader:   "X-Real-IP",
		TrustedProxies: proxies,
	})
	peer, stranger := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.9")
	f.Fuzz(func(t *testing.T, value string) {
		lines := strings.Split(value, "\n")
		h := http.Header{"X-Real-Ip": lines}
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: h})
		want := peer
		if a, ok := obviousNode(lines[0]); ok && len(lines) == 1 && len(lines[0]) <= 256 {
			want = a
		}
		if p.Client != want || (p.Hop.Stop == identity.StopNamed) != (p.Hop.Index == 1) {
			t.Errorf("X-Real-IP: %q: client is %v (%s), want %v", lines, p.Client, p.Hop, want)
		}
		if p := who.Resolve(t.Context(), identity.Evidence{Peer: stranger, Header: h}); p.Client != stranger {
			t.Errorf("X-Real-IP: %q of a stranger: client is %v, want the stranger", lines, p.Client)
		}
	})
}

// obviousNode reads a hop by regular expression.
func obviousNode(s string) (netip.Addr, bool) {
	m := nodePattern.FindStringSubmatch(s)
	if m == nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(m[1] + m[2] + m[3])
	if err != nil || a.Unmap().IsUnspecified() {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

func TestStrategiesAllocateNothing(t *testing.T) {
	count := identity.Options{Strategy: identity.TrustedCount, ProxyCount: 3, TrustedProxies: proxies}
	single := identity.Options{
		Strategy:       identity.SingleHeader,
		ClientHeader:   "CF-Connecting-IP",
		TrustedProxies: proxies,
	}
	for name, c := range map[string]struct {
		o    identity.Options
		peer string
		h    http.Header
	}{
		"count": {count, "10.0.0.1",
			http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 10.20.30.40, 10.20.30.41"}}},
		"count, too few":  {count, "10.0.0.1", http.Header{"X-Forwarded-For": {"6.6.6.6"}}},
		"single":          {single, "10.0.0.1", http.Header{"Cf-Connecting-Ip": {"2001:db8::7"}}},
		"single, garbage": {single, "10.0.0.1", http.Header{"Cf-Connecting-Ip": {"garbage"}}},
		"single, twice":   {single, "10.0.0.1", http.Header{"Cf-Connecting-Ip": {"1.1.1.1", "2.2.2.2"}}},
		"6to4":            {identity.Options{}, "2002:c000:221::1", nil},
		"NAT64":           {identity.Options{NAT64: prefixes("2001:db8::/32")}, "2001:db8:c000:221::", nil},
	} {
		who := newResolver(t, c.o)
		e := identity.Evidence{Peer: netip.MustParseAddr(c.peer), Header: c.h}
		if n := testing.AllocsPerRun(100, func() { sink = who.Resolve(t.Context(), e); _ = who.IPv4(e.Peer) }); n != 0 {
			t.Errorf("%s: Resolve allocates %v times, want 0", name, n)
		}
	}
}
