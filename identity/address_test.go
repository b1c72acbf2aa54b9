package identity_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// proxies are the trusted ranges of the tests here.
var proxies = prefixes("10.0.0.0/8", "fd00::/8")

func TestClient(t *testing.T) {
	for _, c := range []struct {
		peer, header, want string
		index              int
		stop               identity.Stop
	}{
		{"", "1.1.1.1", "none", 0, identity.StopNoPeer},
		{"0.0.0.0", "1.1.1.1", "none", 0, identity.StopNoPeer},
		{"::ffff:0.0.0.0", "1.1.1.1", "none", 0, identity.StopNoPeer},
		{"9.9.9.9", "1.1.1.1", "9.9.9.9", 0, identity.StopPeerUntrusted},
		{"::ffff:9.9.9.9", "", "9.9.9.9", 0, identity.StopPeerUntrusted},
		{"fe80::9%eth0", "", "fe80::9", 0, identity.StopPeerUntrusted},
		{"10.0.0.1", "-", "10.0.0.1", 0, identity.StopNoHeader},
		{"10.0.0.1", "1.1.1.1", "1.1.1.1", 1, identity.StopUntrusted},
		{"::ffff:10.0.0.1", "1.1.1.1", "1.1.1.1", 1, identity.StopUntrusted},
		{"10.0.0.1", "6.6.6.6, 1.1.1.1", "1.1.1.1", 1, identity.StopUntrusted},
		{"10.0.0.1", "6.6.6.6, 1.1.1.1, 10.0.0.2,\tfd00::1 ", "1.1.1.1", 3, identity.StopUntrusted},
		{"10.0.0.1", "6.6.6.6\n1.1.1.1\n10.0.0.2", "1.1.1.1", 2, identity.StopUntrusted},
		{"10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3", 2, identity.StopAllTrusted},
		{"10.0.0.1", "::ffff:1.1.1.1", "1.1.1.1", 1, identity.StopUntrusted},
		{"10.0.0.1", "1.1.1.1, ::ffff:10.0.0.2", "1.1.1.1", 2, identity.StopUntrusted},
		{"10.0.0.1", "1.1.1.1, [::ffff:a00:2]:80", "1.1.1.1", 2, identity.StopUntrusted},
		{"10.0.0.1", "1.1.1.1:80", "1.1.1.1", 1, identity.StopUntrusted},
		{"10.0.0.1", "2001:db8::7", "2001:db8::7", 1, identity.StopUntrusted},
		{"10.0.0.1", "[2001:DB8::7]", "2001:db8::7", 1, identity.StopUntrusted},
		{"10.0.0.1", "[2001:db8::7]:443", "2001:db8::7", 1, identity.StopUntrusted},
		{"10.0.0.1", "fe80::7%eth0", "fe80::7", 1, identity.StopUntrusted},
		{"10.0.0.1", "[fe80::7%25eth0]:443", "fe80::7", 1, identity.StopUntrusted},
		{"10.0.0.1", "64:ff9b::1.1.1.1", "64:ff9b::101:101", 1, identity.StopUntrusted},
		{"10.0.0.1", "", "10.0.0.1", 0, identity.StopEmpty},
		{"10.0.0.1", "1.1.1.1,", "10.0.0.1", 0, identity.StopEmpty},
		{"10.0.0.1", "1.1.1.1\n", "10.0.0.1", 0, identity.StopEmpty},
		{"10.0.0.1", "1.1.1.1, , 10.0.0.2", "10.0.0.2", 1, identity.StopEmpty},
		{"10.0.0.1", "1.1.1.1, unknown, 10.0.0.2", "10.0.0.2", 1, identity.StopUnknown},
		{"10.0.0.1", "1.1.1.1, Unknown", "10.0.0.1", 0, identity.StopUnknown},
		{"10.0.0.1", "1.1.1.1, 0.0.0.0", "10.0.0.1", 0, identity.StopUnknown},
		{"10.0.0.1", "1.1.1.1, ::", "10.0.0.1", 0, identity.StopUnknown},
		{"10.0.0.1", "1.1.1.1, _hidden", "10.0.0.1", 0, identity.StopObfuscated},
		{"10.0.0.1", "_", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "localhost", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "unix:", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", `"1.1.1.1"`, "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1 2.2.2.2", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "[1.1.1.1]", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "[2001:db8::7", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "[2001:db8::7]443", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1:", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1:http", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1%eth0", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "fe80::7%", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1\x00", "10.0.0.1", 0, identity.StopMalformed},

		// What inet_aton takes, and net.ParseIP or browsers once took.
		{"10.0.0.1", "0177.0.0.1", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "01.1.1.1", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "0x7f.0.0.1", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "127.1", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "2130706433", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.256", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1.1", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "1.1.1.1.", "10.0.0.1", 0, identity.StopMalformed},
		{"10.0.0.1", "１.1.1.1", "10.0.0.1", 0, identity.StopMalformed},
	} {
		h := http.Header{}
		if c.header != "-" {
			h["X-Forwarded-For"] = strings.Split(c.header, "\n")
		}
		peer, _ := netip.ParseAddr(c.peer)
		p := newResolver(t, identity.Options{TrustedProxies: proxies}).Resolve(t.Context(),
			identity.Evidence{Peer: peer, Header: h})
		if text(p.Client) != c.want || p.Hop.Index != c.index || p.Hop.Stop != c.stop {
			t.Errorf("peer %s, X-Forwarded-For: %q: client %s, hop %d, %s; want %s, hop %d, %s",
				c.peer, c.header, text(p.Client), p.Hop.Index, p.Hop.Stop, c.want, c.index, c.stop)
		}
	}
}

// TestOneHeaderIsRead: the header that the proxies do not manage is whatever
// the client wrote.
func TestOneHeaderIsRead(t *testing.T) {
	h := http.Header{
		"X-Forwarded-For": {"1.1.1.1"}, "Forwarded": {"for=2.2.2.2"},
		"X-Real-Ip": {"3.3.3.3"}, "True-Client-Ip": {"4.4.4.4"}, "X_forwarded_for": {"5.5.5.5"},
	}
	for header, want := range map[string]string{
		"":                "1.1.1.1",
		"x-forwarded-for": "1.1.1.1",
		"Forwarded":       "2.2.2.2",
		"FORWARDED":       "2.2.2.2",
	} {
		who := newResolver(t, identity.Options{TrustedProxies: proxies, ForwardedHeader: header})
		h := h.Clone()
		if p := who.Resolve(t.Context(), identity.Evidence{Peer: proxies[0].Addr().Next(), Header: h}); text(
			p.Client) != want {
			t.Errorf("ForwardedHeader %q: client is %v, want %s", header, p.Client, want)
		}
		h.Del(header)
		if header == "" {
			h.Del("X-Forwarded-For")
		}
		if p := who.Resolve(t.Context(), identity.Evidence{Peer: proxies[0].Addr().Next(),
			Header: h}); p.Hop.Stop != identity.StopNoHeader {
			t.Errorf("ForwardedHeader %q absent: %s, want the other headers unread", header, p)
		}
	}
}

func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		bits       int
		peer, want string
	}{
		{0, "1.2.3.4", "1.2.3.4/32"},
		{0, "::ffff:1.2.3.4", "1.2.3.4/32"},
		{0, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{0, "fe80::1:2%eth0", "fe80::/64"},
		{0, "64:ff9b::1.2.3.4", "64:ff9b::102:304/128"},
		{0, "64:ff9b:1::1.2.3.4", "64:ff9b:1::/64"},
		{56, "1.2.3.4", "1.2.3.4/32"},
		{56, "::ffff:1.2.3.4", "1.2.3.4/32"},
		{56, "2001:db8:1:2ff:3:4:5:6", "2001:db8:1:200::/56"},
		{1, "8000::1", "8000::/1"},
		{128, "2001:db8::1", "2001:db8::1/128"},
	} {
		p := newResolver(t, identity.Options{IPv6Bits: c.bits}).Resolve(t.Context(),
			identity.Evidence{Peer: netip.MustParseAddr(c.peer)})
		if p.Prefix.String() != c.want {
			t.Errorf("IPv6Bits %d: the prefix of %s is %v, want %s", c.bits, c.peer, p.Prefix, c.want)
		}
	}
}

// TestWorkIsBounded: 64 hops and 8 KiB from the right are looked at, whatever
// lies beyond.
func TestWorkIsBounded(t *testing.T) {
	hops := func(n int) string { return strings.TrimPrefix(strings.Repeat(",10.0.0.2", n), ",") }
	for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
		who := newResolver(t, identity.Options{TrustedProxies: proxies, ForwardedHeader: header})
		for _, c := range []struct {
			name, value string
			index       int
			stop        identity.Stop
		}{
			{"64 hops", hops(64), 64, identity.StopAllTrusted},
			{"a client behind 63", "1.1.1.1," + hops(63), 64, identity.StopUntrusted},
			{"a client behind 64", "1.1.1.1," + hops(64), 64, identity.StopTooLong},
			{"64 hops and a line", "1.1.1.1\n" + hops(64), 64, identity.StopTooLong},
			{"many", hops(100_000), 64, identity.StopTooLong},
			{"one long hop", strings.Repeat("1", 100_000), 0, identity.StopTooLong},
			{"one long hop behind a good one", strings.Repeat("1", 100_000) + ",10.0.0.2", 1, identity.StopTooLong},
			{"white space", "1.1.1.1" + strings.Repeat(" ", 100_000), 0, identity.StopTooLong},
			{"many empty lines", strings.Repeat("\n", 1000), 0, identity.StopEmpty},
			{"as long as allowed", "1.1.1.1," + strings.Repeat(" ", identity.MaxListBytes-len("for=10.0.0.2")-1) +
				"10.0.0.2", 1, identity.StopTooLong},
		} {
			lines := strings.Split(c.value, "\n")
			if header == "Forwarded" {
				for i := range lines {
					lines[i] = regexp.MustCompile(`[0-9.]+`).ReplaceAllString(lines[i], "for=$0")
				}
			}
			p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"),
				Header: http.Header{header: lines}})
			if p.Hop.Index != c.index || p.Hop.Stop != c.stop {
				t.Errorf("%s of %s: hop %d, %s; want hop %d, %s", header, c.name, p.Hop.Index, p.Hop.Stop,
					c.index, c.stop)
			}
		}
	}
}

// TestA2HeaderSpoofing: whatever an untrusted peer writes into whatever header,
// its budget is one.
func TestA2HeaderSpoofing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
		who := newResolver(t, identity.Options{
			TrustedProxies:  proxies,
			ForwardedHeader: header,
			Keys:            &identity.Keyring{},
			Digester:        newDigester(t),
			Tokens:          goodToken{},
		})
		subjects := map[string]int{}
		for i := range 1000 {
			a := netip.AddrFrom4([4]byte{byte(random.Uint32()), byte(i), byte(i >> 8), 1})
			p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"),
				Header: http.Header{
					"X-Forwarded-For": {a.String()}, "Forwarded": {"for=" + a.String()}, "X-Real-Ip": {a.String()},
					"True-Client-Ip": {a.String()}, "Cf-Connecting-Ip": {a.String()},
					"X-Api-Key": {newKey(t)},
				}})
			subjects[string(p.AppendSubject(nil))]++
		}
		if len(subjects) != 1 {
			t.Errorf("%s: 1000 spoofed requests of one peer have %d subjects, want 1", header, len(subjects))
		}
	}
}

// obviousClient is the walk again, by splitting and regular expressions.
func obviousClient(trusted []netip.Prefix, peer netip.Addr, lines []string) netip.Addr {
	isTrusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	client := peer
	if len(lines) == 0 {
		return client
	}
	elements := strings.Split(strings.Join(lines, ","), ",")
	for isTrusted(client) && len(elements) > 0 {
		last := len(elements) - 1
		next, ok := obviousNode(elements[last])
		if !ok {
			break
		}
		client, elements = next, elements[:last]
	}
	return client
}

var nodePattern = regexp.MustCompile(`^[ \t]*(?:` +
	`([0-9.]+)(?::(?:[0-9]{1,5}|_[\w.-]+))?|` + // IPv4
	`([0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*)(?:%[\w.-]+)?|` + // IPv6
	`\[([0-9A-Fa-f.]*:[0-9A-Fa-f.:]*)(?:%[\w.-]+)?\](?::(?:[0-9]{1,5}|_[\w.-]+))?` +
	`)[ \t]*$`)

func FuzzXForwardedFor(f *testing.F) {
	for _, seed := range []string{
		"", "1.1.1.1", "6.6.6.6, 1.1.1.1, 10.0.0.2", "1.1.1.1\n10.0.0.2", "unknown", "_x", "[2001:db8::7]:443, fd00::1",
		"::ffff:10.0.0.2",
		"0177.0.0.1", "fe80::1%eth0", "1.1.1.1,,10.0.0.2", "10.0.0.3,10.0.0.2", "[::ffff:1.2.3.4%x]:_p", "0.0.0.0",
		strings.Repeat("10.0.0.2,", 70),
	} {
		f.Add(seed)
	}
	addCorpus(f, func(line string) { f.Add(line) })
	who := newResolver(f, identity.Options{TrustedProxies: proxies})
	peer := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, value string) {
		lines := strings.Split(value, "\n")
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: http.Header{"X-Forwarded-For": lines}})
		checkClient(t, who, p, peer)
		if p.Hop.Stop != identity.StopTooLong {
			if want := obviousClient(proxies, peer, lines); p.Client != want {
				t.Errorf("X-Forwarded-For: %q: client is %v (%s), want %v", lines, p.Client, p.Hop, want)
			}
		}
		for _, appended := range []string{"203.0.113.99", "2001:db8::99", "[2001:db8::99]:443"} {
			last := slices.Clone(lines)
			last[len(last)-1] += ", " + appended
			for _, lines := range [][]string{last, append(lines, appended)} {
				p := who.Resolve(t.Context(), identity.Evidence{Peer: peer,
					Header: http.Header{"X-Forwarded-For": lines}})
				if p.Hop.Index != 1 || p.Hop.Stop != identity.StopUntrusted ||
					!strings.HasSuffix(text(p.Client), "99") {
					t.Errorf("X-Forwarded-For: %q: client is %v (%s), want what the proxy appended", lines,
						p.Client, p.Hop)
				}
			}
		}
	})
}

// checkClient checks what holds for every principal resolved from a trusted peer.
func checkClient(t *testing.T, who *identity.Resolver, p identity.Principal, peer netip.Addr) {
	t.Helper()
	a := p.Client
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
		t.Errorf("client %v is not canonical", a)
	}
	if !p.Prefix.Contains(a) || p.Prefix != p.Prefix.Masked() {
		t.Errorf("prefix %v of client %v", p.Prefix, a)
	}
	trusted := slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	if trusted == (p.Hop.Stop == identity.StopUntrusted) {
		t.Errorf("client %v: %s, but trusted is %v", a, p.Hop, trusted)
	}
	if p.Hop.Index == 0 && a != peer || p.Hop.Index > identity.MaxHops {
		t.Errorf("client %v: %s", a, p.Hop)
	}

	subject := p.AppendSubject(nil)
	direct := who.Resolve(t.Context(), identity.Evidence{Peer: a})
	again := who.Resolve(t.Context(), identity.Evidence{
		Peer:   peer,
		Header: http.Header{"X-Forwarded-For": {a.String()}, "Forwarded": {forNode(a)}},
	})
	for _, q := range []identity.Principal{direct, again} {
		if q.Client != a || q.Prefix != p.Prefix || string(q.AppendSubject(nil)) != string(subject) {
			t.Errorf("client %v fed back becomes %s", a, q)
		}
	}
}

// forNode writes an address as RFC 7239 wants it.
func forNode(a netip.Addr) string {
	if a.Is6() {
		return fmt.Sprintf(`for="[%s]"`, a)
	}
	return "for=" + a.String()
}

func FuzzParseIPv4(f *testing.F) {
	for _, seed := range []string{"", "1.2.3.4", "0.0.0.0", "255.255.255.255", "256.0.0.1", "01.2.3.4", "00.0.0.0",
		"1.2.3", "1.2.3.4.5", "1..2.3", ".1.2.3", "1.2.3.", "1.2.3.4 ", "::1", "1.2.3.0004"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := identity.ParseIPv4(s)
		want, err := netip.ParseAddr(s)
		if wantOK := err == nil && want.Is4(); ok != wantOK || ok && got != want {
			t.Errorf("parseIPv4(%q) = %v, %v, want %v, %v", s, got, ok, want, wantOK)
		}
	})
}

func FuzzTrusted(f *testing.F) {
	f.Add([]byte{1, 10, 0, 0, 0, 8, 1, 11, 0, 0, 0, 8}, []byte{10, 255, 255, 255})
	f.Add([]byte{0, 0xfd, 0, 0, 0, 8}, []byte{0xfd, 0, 0, 1})
	f.Add([]byte{1, 255, 255, 255, 255, 32, 1, 255, 255, 255, 254, 31, 1, 0, 0, 0, 0, 1}, []byte{255, 255, 255, 255})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 128, 0, 0xff, 0xff, 0xff, 0xff, 127}, []byte{0xff, 0xff, 0xff, 0xff})
	// Few bytes make many prefixes that touch and overlap: a family, the two
	// bytes each at both ends, and a length.
	address := func(is4 bool, b []byte) netip.Addr {
		if is4 {
			return netip.AddrFrom4([4]byte(b))
		}
		return netip.AddrFrom16([16]byte{0: b[0], 1: b[1], 7: b[0], 8: b[1], 14: b[2], 15: b[3]})
	}
	f.Fuzz(func(t *testing.T, spans, probe []byte) {
		var set []netip.Prefix
		var addrs []netip.Addr
		for ; len(spans) >= 6; spans = spans[6:] {
			a := address(spans[0]%2 == 1, spans[1:5])
			p := netip.PrefixFrom(a, 1+int(spans[5])%a.BitLen())
			set = append(set, p)
			addrs = append(addrs, a, p.Masked().Addr(), p.Masked().Addr().Prev(), a.Next(), a.Prev())
		}
		if len(probe) >= 4 {
			addrs = append(addrs, address(true, probe), address(false, probe))
		}
		for _, a := range addrs {
			if !a.IsValid() || a.IsUnspecified() || a.Is4In6() {
				continue
			}
			want := slices.ContainsFunc(set, func(p netip.Prefix) bool { return p.Contains(a) })
			if got := identity.Contains(set, a); got != want {
				t.Errorf("%v contains %v: %v, want %v", set, a, got, want)
			}
		}
	})
}
