package identity_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

func TestSubjectsDiffer(t *testing.T) {
	address := func(prefix string) identity.Principal {
		return identity.Principal{Prefix: netip.MustParsePrefix(prefix)}
	}
	proven := func(kind identity.Kind, project, id string) identity.Principal {
		return identity.Principal{Kind: kind, Project: project, ID: id}
	}
	principals := []identity.Principal{
		{},
		address("1.2.3.4/32"),
		address("1.2.3.5/32"),
		address("102:304::/32"),
		address("2001:db8::/64"),
		address("2001:db8::/56"),
		address("2001:db8::/128"),
		address("::/64"),
		proven(identity.APIKey, "", "a"),
		proven(identity.APIKey, "a", ""),
		proven(identity.APIKey, "a", "b"),
		proven(identity.APIKey, "", "ab"),
		proven(identity.APIKey, "ab", ""),
		proven(identity.APIKey, "", "\x01a"),
		proven(identity.Token, "", "a"),
		proven(identity.Token, "a", "b"),
		proven(identity.LoggedIn, "a", "b"),
		proven(identity.APIKey, "", strings.Repeat("a", 127)),
		proven(identity.APIKey, "", strings.Repeat("a", 128)),
	}
	for i := range principals {
		for j := range principals {
			a, b := principals[i].AppendSubject(nil), principals[j].AppendSubject(nil)
			if i != j && bytes.HasPrefix(a, b) {
				t.Errorf("the subject of %v begins with that of %v: %x, %x", principals[i], principals[j], a, b)
			}
		}
	}
}

func FuzzSubject(f *testing.F) {
	f.Add(uint8(1), "acme", "key", uint8(1), "acm", "ekey")
	f.Add(uint8(1), "a", "", uint8(2), "a", "")
	f.Fuzz(func(t *testing.T, kind1 uint8, project1, id1 string, kind2 uint8, project2, id2 string) {
		p := identity.Principal{Kind: 1 + identity.Kind(kind1%4), Project: project1, ID: id1}
		q := identity.Principal{Kind: 1 + identity.Kind(kind2%4), Project: project2, ID: id2}
		same := p == q
		a, b := p.AppendSubject(nil), q.AppendSubject([]byte("x"))[1:]
		if bytes.Equal(a, b) != same || bytes.HasPrefix(a, b) != same {
			t.Errorf("subjects of %v and %v: %x and %x", p, q, a, b)
		}
	})
}

func TestSubjectIgnoresWhatDoesNotName(t *testing.T) {
	p := identity.Principal{Kind: identity.APIKey, ID: "k", Project: "p"}
	q := p
	q.Tier, q.Client, q.Prefix = "gold", netip.MustParseAddr("1.2.3.4"), netip.MustParsePrefix("1.2.3.4/32")
	if a, b := p.AppendSubject(nil), q.AppendSubject(nil); !bytes.Equal(a, b) {
		t.Errorf("tier and address change the subject of a key: %x, %x", a, b)
	}
}

func TestAppendAddressWhateverTheKind(t *testing.T) {
	p := identity.Principal{Prefix: netip.MustParsePrefix("1.2.3.4/32")}
	want := p.AppendSubject(nil)
	p.Kind, p.ID = identity.APIKey, "k"
	if got := p.AppendAddress(nil); !bytes.Equal(got, want) {
		t.Errorf("AppendAddress = %x, want %x", got, want)
	}
}

func TestPrincipalString(t *testing.T) {
	who := newResolver(t, identity.Options{
		TrustedProxies: prefixes("10.0.0.0/8"),
		Keys:           &identity.Keyring{},
		Digester:       newDigester(t),
	})
	resolve := func(peer string, h http.Header) identity.Principal {
		a, _ := netip.ParseAddr(peer)
		return who.Resolve(t.Context(), identity.Evidence{Peer: a, Header: h})
	}
	for _, c := range []struct {
		p    identity.Principal
		want string
	}{
		{resolve("", nil), "address none: no peer address was given"},
		{resolve("203.0.113.9", nil),
			"address 203.0.113.9 in 203.0.113.9/32: the peer is not a trusted proxy, so headers are not read"},
		{resolve("10.0.0.1", http.Header{"X-Forwarded-For": {"unknown"}}),
			"address 10.0.0.1 in 10.0.0.1/32: the peer, X-Forwarded-For was read: the hop before it is unknown"},
		{
			resolve("10.0.0.1", http.Header{"X-Forwarded-For": {"2001:db8::7, 10.0.0.2"}, "X-Api-Key": {newKey(t)}}),
			"address 2001:db8::7 in 2001:db8::/64: hop 2 from the right of X-Forwarded-For: the first address " +
				"outside the trusted proxies; credential ignored: the API key is unknown",
		},
		{
			identity.Principal{
				Kind:    identity.Token,
				ID:      "sub\n",
				Project: "acme",
				Tier:    "gold",
				Client:  netip.MustParseAddr("1.2.3.4"),
				Prefix:  netip.MustParsePrefix("1.2.3.4/32"),
				Hop:     identity.Hop{Stop: identity.StopPeerUntrusted},
			},
			`token "sub\n" of project "acme" in tier "gold", client 1.2.3.4 in 1.2.3.4/32: the peer is not a trusted proxy, so headers are not read`,
		},
	} {
		if got := c.p.String(); got != c.want {
			t.Errorf("String() = %s\nwant %s", got, c.want)
		}
	}
}

func TestEveryNameIsNamed(t *testing.T) {
	for i := range 256 {
		for _, s := range []fmt.Stringer{identity.Kind(i), identity.Stop(i), identity.Rejection(i)} {
			if s.String() == "" {
				t.Errorf("%T(%d) has no name", s, i)
			}
		}
	}
	if got := identity.Rejection(200).String(); got != "Rejection(200)" {
		t.Errorf("Rejection(200) is %q", got)
	}
}
