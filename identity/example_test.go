package identity_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/identity"
)

func Example() {
	who, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	header := http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 10.0.0.7"}}

	// From a trusted proxy the header is read, from the right.
	fmt.Println(who.Resolve(context.Background(),
		identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: header}))

	// From anyone else it is not.
	fmt.Println(who.Resolve(context.Background(),
		identity.Evidence{Peer: netip.MustParseAddr("198.51.100.1"), Header: header}))
	// Output:
	// address 203.0.113.9 in 203.0.113.9/32: hop 2 from the right of X-Forwarded-For: the first address outside the trusted proxies
	// address 198.51.100.1 in 198.51.100.1/32: the peer is not a trusted proxy, so headers are not read
}

func ExampleStrategy() {
	cdn := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	who, err := identity.New(identity.Options{
		Strategy: identity.SingleHeader, ClientHeader: "CF-Connecting-IP", TrustedProxies: cdn,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	header := http.Header{"Cf-Connecting-Ip": {"203.0.113.9"}}
	for _, peer := range []string{"198.51.100.7", "192.0.2.66"} {
		p := who.Resolve(context.Background(), identity.Evidence{Peer: netip.MustParseAddr(peer), Header: header})
		fmt.Println(p.Client, "because", p.Hop)
	}
	// Output:
	// 203.0.113.9 because Cf-Connecting-Ip: the one address that the trusted peer names
	// 192.0.2.66 because the peer is not a trusted proxy, so headers are not read
}

func ExampleNew() {
	_, err := identity.New(identity.Options{
		TrustedProxies:  []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
		ForwardedHeader: "X-Real-IP",
		IPv6Bits:        200,
	})
	fmt.Println(err)
	// Output:
	// TrustedProxies[0] is 0.0.0.0/0, want the addresses of your own proxies: if every address is trusted, clients choose theirs
	// ForwardedHeader is "X-Real-IP", want "X-Forwarded-For" or "Forwarded"
	// IPv6Bits is 200, want 1 to 128, or 0 for 64
}

func ExampleKeyring() {
	digester, err := identity.NewDigester([]byte("32 bytes or more from crypto/rand"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := identity.NewKey() // for its holder
	if err != nil {
		fmt.Println(err)
		return
	}
	var keys identity.Keyring
	err = keys.Replace([]identity.KeyRecord{
		{Digest: digester.Digest(text), Key: identity.Key{ID: "key_1", Project: "acme"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	who, err := identity.New(identity.Options{Keys: &keys, Digester: digester})
	if err != nil {
		fmt.Println(err)
		return
	}

	peer := netip.MustParseAddr("203.0.113.9")
	p := who.Resolve(context.Background(), identity.Evidence{Peer: peer,
		Header: http.Header{"Authorization": {"Bearer " + text}}})
	fmt.Println(p.Kind, p.Project, p.ID)

	p = who.Resolve(context.Background(), identity.Evidence{Peer: peer, Header: http.Header{"X-Api-Key": {"made up"}}})
	fmt.Println(p.Kind, p.Prefix, p.Rejected)
	// Output:
	// api_key acme key_1
	// address 203.0.113.9/32 the API key is malformed
}

// table stands for a finder that asks a database.
type table map[identity.Digest]identity.Key

func (t table) Find(_ context.Context, d identity.Digest) (identity.Key, error) {
	fmt.Println("asked")
	if key, ok := t[d]; ok {
		return key, nil
	}
	return identity.Key{}, identity.ErrUnknownKey
}

func ExampleCachedKeys() {
	remote := table{{1}: {ID: "key_1"}}
	// begin: cached keys
	cached, err := identity.NewCachedKeys(identity.CachedKeysOptions{
		Keys: remote, // asks a database, say
		TTL:  5 * time.Second,
	})
	// end: cached keys
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		key, err := cached.Find(context.Background(), identity.Digest{1})
		fmt.Println(key.ID, err)
	}
	// Output:
	// asked
	// key_1 <nil>
	// key_1 <nil>
	// key_1 <nil>
}

func ExampleWellFormedKey() {
	fmt.Println(identity.WellFormedKey("hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72b"))
	fmt.Println(identity.WellFormedKey("hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72c"))
	// Output:
	// true
	// false
}

// Requests are told apart by AppendSubject, whatever their principals are
// known by.
func ExamplePrincipal_AppendSubject() {
	key := identity.Principal{Kind: identity.APIKey, Project: "acme", ID: "key_1"}
	token := identity.Principal{Kind: identity.Token, Project: "acme", ID: "key_1"}
	address := identity.Principal{Prefix: netip.MustParsePrefix("2001:db8::/64")}
	for _, p := range []identity.Principal{key, token, address} {
		fmt.Printf("%q\n", p.AppendSubject(nil))
	}
	// Output:
	// "\x01\x04acme\x05key_1"
	// "\x02\x04acme\x05key_1"
	// "\x00\x10@ \x01\r\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
}

// headers is what a door without net/http passes.
type headers map[string][]string

func (h headers) Values(name string) []string { return h[name] }

func ExampleHeaders() {
	who, err := identity.New(identity.Options{
		TrustedProxies:  []netip.Prefix{netip.MustParsePrefix("::1/128")},
		ForwardedHeader: "Forwarded",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := who.Resolve(context.Background(), identity.Evidence{
		Peer:   netip.MustParseAddr("::1"),
		Header: headers{"Forwarded": {`for="[2001:db8:cafe::17]:4711";proto=https`}},
	})
	fmt.Println(p.Client, p.Prefix)
	// Output: 2001:db8:cafe::17 2001:db8:cafe::/64
}
