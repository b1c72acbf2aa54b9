package identity_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// TestSpoofingCVEs replays the requests of published vulnerabilities, every
// one in testdata.
func TestSpoofingCVEs(t *testing.T) {
	untrusted, trusted := netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("10.0.0.1")
	resolver := func(header string) *identity.Resolver {
		return newResolver(t, identity.Options{TrustedProxies: proxies, ForwardedHeader: header, IPv6Bits: 56})
	}
	resolve := func(header string, peer netip.Addr, h http.Header) identity.Principal {
		return resolver(header).Resolve(t.Context(), identity.Evidence{Peer: peer, Header: h})
	}
	client := func(t *testing.T, p identity.Principal, want string) {
		t.Helper()
		if text(p.Client) != want {
			t.Errorf("client is %s, want %s", p, want)
		}
	}
	headerFromAnyPeer := func(t *testing.T) {
		client(t, resolve("", untrusted, http.Header{"X-Forwarded-For": {"1.2.3.4"}}), "203.0.113.9")
	}
	// named reads the one address from a header that proxies set.
	named := func(header string, peer netip.Addr, lines ...string) identity.Principal {
		who := newResolver(t, identity.Options{TrustedProxies: proxies, Strategy: identity.SingleHeader,
			ClientHeader: header})
		return who.Resolve(t.Context(), identity.Evidence{Peer: peer,
			Header: http.Header{http.CanonicalHeaderKey(header): lines}})
	}
	// internal is a header by which another product let clients switch checks
	// off: here it is a header like any other, whoever sends it.
	internal := func(name, value string) func(*testing.T) {
		return func(t *testing.T) {
			for _, peer := range []netip.Addr{untrusted, trusted} {
				h := http.Header{"X-Forwarded-For": {"1.1.1.1"}}
				without := resolve("", peer, h)
				h.Set(name, value)
				if with := resolve("", peer, h); with != without {
					t.Errorf("with %s: %s the request is that of %s, want %s", name, value, with, without)
				}
			}
		}
	}
	freshValues := func(t *testing.T) {
		subjects := map[string]bool{}
		for i := range 100 {
			spoof := fmt.Sprintf("198.51.100.%d", i)
			p := resolve("", untrusted, http.Header{"X-Forwarded-For": {spoof}, "X-Real-Ip": {spoof},
				"True-Client-Ip": {spoof}})
			subjects[string(p.AppendSubject(nil))] = true
		}
		if len(subjects) != 1 {
			t.Errorf("100 fresh values have %d subjects, want 1", len(subjects))
		}
	}
	replayed := map[string]func(t *testing.T){
		"CVE-2020-28483":    headerFromAnyPeer,
		"CVE-2023-50463":    headerFromAnyPeer,
		"CVE-2026-29794":    freshValues,
		"CVE-2026-46356":    freshValues,
		"GO-2026-5775/5777": freshValues,
		"CVE-2026-57210": func(t *testing.T) {
			client(t, resolve("Forwarded", trusted, http.Header{"Forwarded": {`for="a,b;c"`}}), "10.0.0.1")
			client(t, resolve("Forwarded", trusted, http.Header{"Forwarded": {`for=1.1.1.1;host="a,b;c"`}}), "1.1.1.1")
			client(t, resolve("", trusted, http.Header{"X-Forwarded-For": {"1.1.1.1, not-an-ip"}}), "10.0.0.1")
		},
		"CVE-2026-45045": func(t *testing.T) { // what the client sends stands before what the proxy adds
			client(t, resolve("", trusted, http.Header{"X-Forwarded-For": {"6.6.6.6", "1.1.1.1"},
				"X-Real-Ip": {"6.6.6.6", "1.1.1.1"}}), "1.1.1.1")
			client(t, named("X-Real-IP", trusted, "1.1.1.1"), "1.1.1.1")
			client(t, named("X-Real-IP", trusted, "6.6.6.6", "1.1.1.1"), "10.0.0.1")
			client(t, named("X-Real-IP", trusted, "6.6.6.6, 1.1.1.1"), "10.0.0.1")
		},
		"CVE-2022-32148": func(t *testing.T) { // a header set to nil is none; what the API sees is the gateway's test
			client(t, resolve("", trusted, http.Header{"X-Forwarded-For": nil}), "10.0.0.1")
			client(t, named("X-Real-IP", trusted), "10.0.0.1")
		},
		"CVE-2022-24112": func(t *testing.T) { // a client's word that it is this machine
			for _, ours := range []string{"127.0.0.1", "::1", "10.0.0.2"} {
				client(t, resolve("", untrusted, http.Header{"X-Real-Ip": {ours}, "X-Forwarded-For": {ours}}),
					"203.0.113.9")
				client(t, named("X-Real-IP", untrusted, ours), "203.0.113.9")
			}
		},
		"CVE-2025-29927": internal("X-Middleware-Subrequest", "middleware:middleware:middleware"),
		"CVE-2024-0012":  internal("X-Pan-Authcheck", "off"),
		"CVE-2026-30827": func(t *testing.T) {
			a := resolve("", netip.MustParseAddr("::ffff:198.51.100.1"), nil)
			b := resolve("", netip.MustParseAddr("::ffff:198.51.100.2"), nil)
			if a.Prefix == b.Prefix || string(a.AppendSubject(nil)) == string(b.AppendSubject(nil)) {
				t.Errorf("two IPv4 clients on a dual-stack socket share %v", a.Prefix)
			}
		},
		"CVE-2024-24790": func(t *testing.T) {
			p := resolve("", netip.MustParseAddr("::ffff:10.0.0.1"),
				http.Header{"X-Forwarded-For": {"1.1.1.1, ::ffff:10.0.0.2"}})
			client(t, p, "1.1.1.1")
		},
	}
	var corpus struct {
		Cases []struct{ ID, Product string }
	}
	readTestdata(t, "spoofing-cves.json", &corpus)
	for _, c := range corpus.Cases {
		replay, known := replayed[c.ID]
		if !known {
			t.Errorf("%s of %s is not replayed", c.ID, c.Product)
			continue
		}
		t.Run(c.ID, replay)
		delete(replayed, c.ID)
	}
	if len(replayed) != 0 {
		t.Errorf("%d replayed cases are not in the corpus", len(replayed))
	}
}

// TestAddressBugsOfOthers: what other limiters got wrong about addresses, each
// by the issue where it was reported.
func TestAddressBugsOfOthers(t *testing.T) {
	const peer, proxy = "203.0.113.9", "10.0.0.1"
	xff := func(lines ...string) http.Header { return http.Header{"X-Forwarded-For": lines} }
	named := identity.Options{TrustedProxies: proxies, Strategy: identity.SingleHeader, ClientHeader: "X-Real-IP"}
	ranges := identity.Options{TrustedProxies: proxies}
	for _, c := range []struct {
		issue  string
		o      identity.Options
		a, b   identity.Evidence
		shared bool
	}{
		{"httprate#53, tollbooth PR#99, fastapi-limiter#10: a header of any peer", ranges, from(peer, xff("1.1.1.1")),
			from(peer, xff("2.2.2.2")), true},
		{"skipper#1226: the first entry", ranges, from(proxy, xff("1.1.1.1, 3.3.3.3")),
			from(proxy, xff("2.2.2.2, 3.3.3.3")), true},
		{"skipper#1226: the first line", ranges, from(proxy, xff("1.1.1.1", "3.3.3.3")),
			from(proxy, xff("2.2.2.2", "3.3.3.3")), true},
		{"worldmonitor#3531, tollbooth: no header, no limit", named, from(proxy, nil),
			from(proxy, http.Header{}), true},
		{"nginx: an empty key is not counted", ranges, from("", nil), from("", xff("1.1.1.1")), true},
		{"express-rate-limit#502: one budget for each of a /64's addresses", ranges, from("2001:db8::1", nil),
			from("2001:db8::2", nil), true},
		{"express-rate-limit#667: the mapped form is another client", ranges, from("198.51.100.1", nil),
			from("::ffff:198.51.100.1", nil), true},
		{"express-rate-limit#667: the mapped form in hexadecimal", ranges, from(proxy, xff("198.51.100.1")),
			from(proxy, xff("::ffff:c633:6401")), true},
		{"meshmonitor#2001: all of IPv4 in one prefix", identity.Options{IPv6Bits: 56},
			from("::ffff:198.51.100.1", nil), from("::ffff:203.0.113.9", nil), false},
		{"httprate CanonicalizeIP: the port makes a client", ranges, from(proxy, xff("198.51.100.1:1")),
			from(proxy, xff("198.51.100.1:2")), true},
		{"httprate CanonicalizeIP: the zone makes a client", ranges, from("fe80::1%eth0", nil),
			from("fe80::1%eth1", nil), true},
		{"httprate CanonicalizeIP: the spelling makes a client", ranges, from(proxy, xff("2001:db8:0::1")),
			from(proxy, xff("2001:DB8::0001")), true},
		{"jellyfin-sso#194: all behind NAT64 are one", ranges, from("64:ff9b::198.51.100.1", nil),
			from("64:ff9b::198.51.100.2", nil), false},
		{"fiber: the added value stands behind the client's", named,
			from(proxy, http.Header{"X-Real-Ip": {"1.1.1.1", "3.3.3.3"}}),
			from(proxy, http.Header{"X-Real-Ip": {"2.2.2.2", "3.3.3.3"}}), true},
	} {
		who := newResolver(t, c.o)
		a, b := who.Resolve(t.Context(), c.a), who.Resolve(t.Context(), c.b)
		if shared := string(a.AppendSubject(nil)) == string(b.AppendSubject(nil)); shared != c.shared {
			t.Errorf("%s: %s and %s share a budget: %v, want %v", c.issue, a, b, shared, c.shared)
		}
	}
}

func from(peer string, h http.Header) identity.Evidence {
	a, _ := netip.ParseAddr(peer)
	e := identity.Evidence{Peer: a}
	if h != nil {
		e.Header = h
	}
	return e
}
