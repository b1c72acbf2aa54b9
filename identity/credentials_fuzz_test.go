package identity_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// FuzzKeyAmongCredentials puts arbitrary lines beside a valid key: whatever they hold, the
// key is among the principals, and nobody else is, unless there are too many.
func FuzzKeyAmongCredentials(f *testing.F) {
	ring, digester := &identity.Keyring{}, newDigester(f)
	const key = "hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72b"
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(key),
		Key: identity.Key{ID: "k1"}}}); err != nil {
		f.Fatal(err)
	}
	who := newResolver(f, identity.Options{
		Keys:          ring,
		Digester:      digester,
		Tokens:        forgedToken{},
		TokenFailures: -1,
		KeySources:    everywhere,
	})
	f.Add("Bearer a.b.c", "x", "api_key=y")
	f.Add("Basic YTpi, Bearer "+key, key+","+key, "api_key[]="+key+"&api_key=")
	f.Add("Bearer a b c d e f g h i j", "", "")
	f.Fuzz(func(t *testing.T, authorization, header, query string) {
		var p identity.Principal
		others := who.ResolveAll(t.Context(), &identity.Evidence{
			Peer: netip.MustParseAddr("203.0.113.9"), Target: "/?" + query,
			Header: http.Header{"Authorization": {authorization}, "X-Api-Key": {header, key}},
		}, &p, nil)
		if many := p.Rejected == identity.TooManyCredentials; many != (p.Kind == identity.Address) ||
			!many && p.ID != "k1" || len(others) > 0 {
			t.Errorf("%q, %q, %q: %v, %v", authorization, header, query, p, others)
		}
	})
}
