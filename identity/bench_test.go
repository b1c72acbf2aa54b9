package identity_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
)

var sink identity.Principal

func BenchmarkResolvePeer(b *testing.B) {
	who := newResolver(b, identity.Options{TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8")})
	header := http.Header{"X-Forwarded-For": {"6.6.6.6"}}
	for name, peer := range map[string]string{"IPv4": "203.0.113.9", "IPv6": "2001:db8::7"} {
		b.Run(name, func(b *testing.B) {
			benchmarkResolve(b, who, identity.Evidence{Peer: netip.MustParseAddr(peer), Header: header})
		})
	}
}

func BenchmarkResolveXForwardedFor3(b *testing.B) {
	who := newResolver(b, identity.Options{TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8")})
	header := http.Header{"X-Forwarded-For": {"203.0.113.9, 10.20.30.40, 10.20.30.41"}}
	benchmarkResolve(b, who, identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: header})
}

func BenchmarkResolveForwarded3(b *testing.B) {
	who := newResolver(b, identity.Options{TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8"),
		ForwardedHeader: "Forwarded"})
	header := http.Header{"Forwarded": {`for=203.0.113.9;proto=https, for="10.20.30.40:8080", for=10.20.30.41`}}
	benchmarkResolve(b, who, identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: header})
}

func BenchmarkResolveTrustedCount3(b *testing.B) {
	who := newResolver(b, identity.Options{
		TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8"),
		Strategy:       identity.TrustedCount,
		ProxyCount:     3,
	})
	header := http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 10.20.30.40, 10.20.30.41"}}
	benchmarkResolve(b, who, identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: header})
}

func BenchmarkResolveSingleHeader(b *testing.B) {
	who := newResolver(b, identity.Options{
		TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8"),
		Strategy:       identity.SingleHeader,
		ClientHeader:   "CF-Connecting-IP",
	})
	header := http.Header{"Cf-Connecting-Ip": {"203.0.113.9"}}
	benchmarkResolve(b, who, identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: header})
}

// BenchmarkResolveKey resolves keys in turn, out of a ring of 100,000: a
// thousand of them, as a gateway sees, and all. The header is at hand, as it is
// when a request was just read; the ring is not.
func BenchmarkResolveKey(b *testing.B) {
	who, keys := keyBench(b)
	for _, n := range []int{1000, len(keys)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			value := make([]string, 1)
			e := identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"), Header: http.Header{"X-Api-Key": value}}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i++; i == n {
					i = 0
				}
				value[0] = keys[i]
				sink = who.Resolve(context.Background(), e)
			}
			if sink.Kind != identity.APIKey {
				b.Fatal(sink)
			}
		})
	}
}

func BenchmarkResolveKeyParallel(b *testing.B) {
	who, keys := keyBench(b)
	e := identity.Evidence{Peer: netip.MustParseAddr("203.0.113.9"), Header: http.Header{"X-Api-Key": keys[:1]}}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			who.Resolve(context.Background(), e)
		}
	})
}

// BenchmarkResolveMadeUpKey is what an attacker's random strings cost.
func BenchmarkResolveMadeUpKey(b *testing.B) {
	who, keys := keyBench(b)
	wrong := keys[0][:identity.KeyLength-1] + "!"
	benchmarkResolve(b, who, identity.Evidence{
		Peer:   netip.MustParseAddr("203.0.113.9"),
		Header: http.Header{"X-Api-Key": {wrong}},
	})
}

func BenchmarkWellFormedKey(b *testing.B) {
	text := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		identity.WellFormedKey(text)
	}
}

func BenchmarkDigest(b *testing.B) {
	digester, text := newDigester(b), newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		digester.Digest(text)
	}
}

func BenchmarkAppendSubject(b *testing.B) {
	p := identity.Principal{Kind: identity.APIKey, Project: "acme", ID: "key_4711"}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = p.AppendSubject(dst[:0])
	}
}

func benchmarkResolve(b *testing.B, who *identity.Resolver, e identity.Evidence) {
	b.ReportAllocs()
	for b.Loop() {
		sink = who.Resolve(context.Background(), e)
	}
}

func keyBench(b *testing.B) (*identity.Resolver, []string) {
	digester := newDigester(b)
	keys := make([]string, 100_000)
	records := make([]identity.KeyRecord, len(keys))
	for i := range keys {
		keys[i] = newKey(b)
		records[i] = identity.KeyRecord{
			Digest: digester.Digest(keys[i]),
			Key:    identity.Key{ID: fmt.Sprint("key_", i), Project: "acme"},
		}
	}
	all := strings.Join(keys, "") // in one piece, as far from cold as a request's bytes
	for i := range keys {
		keys[i] = all[i*identity.KeyLength:][:identity.KeyLength]
	}
	var ring identity.Keyring
	if err := ring.Replace(records); err != nil {
		b.Fatal(err)
	}
	return newResolver(b, identity.Options{Keys: &ring, Digester: digester}), keys
}

// knownToken verifies every token, at no cost.
type knownToken struct{}

func (knownToken) Verify(context.Context, string) (identity.Claims, error) {
	return identity.Claims{Subject: "alice", Project: "acme", Until: time.Now().Add(time.Hour)}, nil
}

// BenchmarkResolveToken resolves a cached token of 600 bytes.
func BenchmarkResolveToken(b *testing.B) {
	who := newResolver(b, identity.Options{Tokens: knownToken{}})
	e := tokenEvidence(strings.Repeat("eyJhbGciOi", 60))
	benchmarkResolve(b, who, e)
	if s := who.TokenCacheStats(); s.Misses != 1 {
		b.Fatalf("%+v, want one miss", s)
	}
}

func BenchmarkResolveTokenParallel(b *testing.B) {
	who := newResolver(b, identity.Options{Tokens: knownToken{}})
	e := tokenEvidence(strings.Repeat("eyJhbGciOi", 60))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			who.Resolve(context.Background(), e)
		}
	})
}

// forgedToken refuses every token, at no cost.
type forgedToken struct{}

var errForged = errors.New("forged")

func (forgedToken) Verify(context.Context, string) (identity.Claims, error) {
	return identity.Claims{}, errForged
}

// BenchmarkResolveForgedToken is what tokens of an address cost that has sent
// too many.
func BenchmarkResolveForgedToken(b *testing.B) {
	for _, size := range []int{600, identity.MaxTokenLength} {
		b.Run(fmt.Sprint(size, "bytes"), func(b *testing.B) {
			who := newResolver(b, identity.Options{Tokens: forgedToken{}})
			e := tokenEvidence(strings.Repeat("x", size))
			for range 100 {
				who.Resolve(context.Background(), e)
			}
			benchmarkResolve(b, who, e)
			if sink.Rejected != identity.TokenFlood {
				b.Fatal(sink)
			}
		})
	}
}

func tokenEvidence(token string) identity.Evidence {
	return identity.Evidence{
		Peer:   netip.MustParseAddr("203.0.113.9"),
		Header: http.Header{"Authorization": {"Bearer " + token}},
	}
}
