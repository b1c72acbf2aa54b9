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
		who := newResolver(t, identity.Options{TrustedProxies: proxies, Strategy: identity.SingleHeader, ClientHeader: header})
		return who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: http.Header{http.CanonicalHeaderKey(header): lines}})
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
			p := resolve("", untrusted, http.Header{"X-Forwarded-For": {spoof}, "X-Real-Ip": {spoof}, "True-Client-Ip": {spoof}})
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
			client(t, resolve("", trusted, http.Header{"X-Forwarded-For": {"6.6.6.6", "1.1.1.1"}, "X-Real-Ip": {"6.6.6.6", "1.1.1.1"}}), "1.1.1.1")
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
				client(t, resolve("", untrusted, http.Header{"X-Real-Ip": {ours}, "X-Forwarded-For": {ours}}), "203.0.113.9")
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
			p := resolve("", netip.MustParseAddr("::ffff:10.0.0.1"), http.Header{"X-Forwarded-For": {"1.1.1.1, ::ffff:10.0.0.2"}})
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
