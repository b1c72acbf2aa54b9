package identity_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
)

func leaf(edit func(*x509.Certificate)) *x509.Certificate {
	at := newClock().at
	c := &x509.Certificate{
		NotBefore:               at.Add(-time.Hour),
		NotAfter:                at.Add(time.Hour),
		RawSubjectPublicKeyInfo: []byte("key"),
	}
	edit(c)
	return c
}

func uris(texts ...string) (all []*url.URL) {
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		all = append(all, u)
	}
	return all
}

func TestCertificates(t *testing.T) {
	sum := sha256.Sum256([]byte("key"))
	subject := func(n pkix.Name) func(*x509.Certificate) { return func(c *x509.Certificate) { c.Subject = n } }
	const none = identity.NotRejected
	for _, c := range []struct {
		name     string
		by       identity.CertificateName
		project  identity.CertificateProject
		edit     func(*x509.Certificate)
		id, proj string
		want     identity.Rejection
	}{
		{"public key", identity.CertificateKey, 0, subject(pkix.Name{}), hex.EncodeToString(sum[:]), "", none},
		{"URI", identity.CertificateURI, 0, func(c *x509.Certificate) { c.URIs = uris("spiffe://a.example/ns/b") },
			"spiffe://a.example/ns/b", "", none},
		{"no URI", identity.CertificateURI, 0, subject(pkix.Name{CommonName: "a"}), "", "",
			identity.CertificateUnnamed},
		{"two URIs", identity.CertificateURI, 0, func(c *x509.Certificate) { c.URIs = uris("a:b", "c:d") }, "", "",
			identity.CertificateUnnamed},
		{"DNS", identity.CertificateDNS, 0, func(c *x509.Certificate) { c.DNSNames = []string{"a.example"} },
			"a.example", "", none},
		{"two DNS names", identity.CertificateDNS, 0, func(c *x509.Certificate) {
			c.DNSNames = []string{"a.example", "b.example"}
		}, "", "", identity.CertificateUnnamed},
		{"mail", identity.CertificateEmail, 0, func(c *x509.Certificate) { c.EmailAddresses = []string{"a@b.example"} },
			"a@b.example", "", none},
		{"common name", identity.CertificateCommon, 0, subject(pkix.Name{CommonName: "billing"}), "billing", "", none},
		{"empty common name", identity.CertificateCommon, 0, subject(pkix.Name{}), "", "", identity.CertificateUnnamed},
		{"long common name", identity.CertificateCommon, 0, subject(pkix.Name{CommonName: strings.Repeat("x", 257)}),
			"", "", identity.CertificateUnnamed},
		{"NUL in the common name", identity.CertificateCommon, 0, subject(pkix.Name{CommonName: "billing\x00.evil"}),
			"", "", identity.CertificateUnnamed},
		{"no text", identity.CertificateCommon, 0, subject(pkix.Name{CommonName: "\xff"}), "", "",
			identity.CertificateUnnamed},
		{"organization", identity.CertificateCommon, identity.CertificateOrganization,
			subject(pkix.Name{CommonName: "a", Organization: []string{"acme"}}), "a", "acme", none},
		{"no organization", identity.CertificateCommon, identity.CertificateOrganization,
			subject(pkix.Name{CommonName: "a"}), "a", "", none},
		{"two organizations", identity.CertificateCommon, identity.CertificateOrganization,
			subject(pkix.Name{CommonName: "a", Organization: []string{"acme", "b"}}), "", "",
			identity.CertificateUnnamed},
		{"unit", identity.CertificateCommon, identity.CertificateUnit,
			subject(pkix.Name{CommonName: "a", OrganizationalUnit: []string{"acme"}}), "a", "acme", none},
		{"expired", identity.CertificateKey, 0, func(c *x509.Certificate) { c.NotAfter = newClock().at.Add(-1) }, "",
			"", identity.CertificateExpired},
		{"not yet valid", identity.CertificateKey, 0, func(c *x509.Certificate) { c.NotBefore = newClock().at.Add(1) },
			"", "", identity.CertificateExpired},
		{"not used", identity.NoCertificateName, 0, subject(pkix.Name{CommonName: "a"}), "", "", none},
	} {
		who := newResolver(t, identity.Options{CertificateName: c.by, CertificateProject: c.project,
			Now: newClock().now})
		p := who.Resolve(context.Background(), identity.Evidence{Peer: netip.MustParseAddr("192.0.2.1"),
			Certificate: leaf(c.edit)})
		kind := identity.Address
		if c.id != "" {
			kind = identity.Certificate
		}
		if p.Kind != kind || p.ID != c.id || p.Project != c.proj || p.Rejected != c.want ||
			p.Client.String() != "192.0.2.1" {
			t.Errorf("%s: %v", c.name, p)
		}
	}
}

// TestCertificateAmongCredentials: a credential of the request says more than
// the one of the connection, one that fails says nothing, and the certificate
// of a proxy is the proxy's.
func TestCertificateAmongCredentials(t *testing.T) {
	ring := &identity.Keyring{}
	digester, key := newDigester(t), newKey(t)
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(key),
		Key: identity.Key{ID: "key_1"}}}); err != nil {
		t.Fatal(err)
	}
	clock := newClock()
	who := newResolver(t, identity.Options{
		Keys: ring, Digester: digester, Tokens: &countingTokens{}, Now: clock.now,
		CertificateName: identity.CertificateCommon, TrustedProxies: prefixes("10.0.0.0/8"),
	})
	cert := leaf(func(c *x509.Certificate) { c.Subject.CommonName = "billing" })
	unnamed := leaf(func(*x509.Certificate) {})
	h := func(lines ...string) http.Header {
		header := http.Header{}
		for i := 0; i < len(lines); i += 2 {
			header.Add(lines[i], lines[i+1])
		}
		return header
	}
	for _, c := range []struct {
		name   string
		peer   string
		header identity.Headers
		cert   *x509.Certificate
		kind   identity.Kind
		id     string
		want   identity.Rejection
	}{
		{"alone", "192.0.2.1", nil, cert, identity.Certificate, "billing", identity.NotRejected},
		{"with a valid token", "192.0.2.1", h("Authorization", "Bearer alice.x"), cert, identity.Token, "alice",
			identity.NotRejected},
		{"with a valid key", "192.0.2.1", h("X-Api-Key", key), cert, identity.APIKey, "key_1", identity.NotRejected},
		{"with a forged token", "192.0.2.1", h("Authorization", "Bearer forged.x"), cert, identity.Certificate,
			"billing", identity.TokenRefused},
		{"with two credentials", "192.0.2.1", h("Authorization", "Bearer alice.x", "X-Api-Key", key), cert,
			identity.Token, "alice", identity.NotRejected},
		{"forged token, no name", "192.0.2.1", h("Authorization", "Bearer forged.x"), unnamed, identity.Address, "",
			identity.TokenRefused},
		{"of a proxy", "10.0.0.1", h("X-Forwarded-For", "192.0.2.7"), cert, identity.Address, "", identity.NotRejected},
		{"of a proxy that forwards nothing", "10.0.0.1", nil, cert, identity.Address, "", identity.NotRejected},
		{"no peer", "", nil, cert, identity.Certificate, "billing", identity.NotRejected},
	} {
		e := identity.Evidence{Header: c.header, Certificate: c.cert}
		if c.peer != "" {
			e.Peer = netip.MustParseAddr(c.peer)
		}
		if p := who.Resolve(context.Background(), e); p.Kind != c.kind || p.ID != c.id || p.Rejected != c.want {
			t.Errorf("%s: %v", c.name, p)
		}
	}
	counted := newResolver(t, identity.Options{
		CertificateName: identity.CertificateCommon, Now: clock.now, Strategy: identity.TrustedCount, ProxyCount: 1,
	})
	e := identity.Evidence{
		Peer:        netip.MustParseAddr("192.0.2.1"),
		Header:      h("X-Forwarded-For", "192.0.2.7"),
		Certificate: cert,
	}
	if p := counted.Resolve(context.Background(), e); p.Kind != identity.Address || p.Client.String() != "192.0.2.7" {
		t.Errorf("every peer is a proxy: %v, want the address that it names", p)
	}
	for why, n := range who.Rejections() {
		if want := map[identity.Rejection]uint64{identity.TokenRefused: 2,
			identity.CertificateUnnamed: 1}[why]; n != want {
			t.Errorf("%v is counted %d times, want %d", why, n, want)
		}
	}
}

// TestCertificateSubject: the same name by another kind of credential, or with
// a project that continues it, is another budget.
func TestCertificateSubject(t *testing.T) {
	seen := map[string]identity.Principal{}
	for _, p := range []identity.Principal{
		{Kind: identity.Certificate, ID: "a"}, {Kind: identity.Token, ID: "a"}, {Kind: identity.APIKey, ID: "a"},
		{Kind: identity.Certificate, Project: "a"}, {Kind: identity.Certificate, Project: "a", ID: "b"},
		{Kind: identity.Certificate, ID: "ab"},
		{Kind: identity.Address, ID: "a"},
	} {
		subject := string(p.AppendSubject(nil))
		if other, taken := seen[subject]; taken {
			t.Errorf("%v and %v share the subject %q", p, other, subject)
		}
		seen[subject] = p
	}
}

func TestAllocCertificate(t *testing.T) {
	if raceEnabled {
		return
	}
	clock := newClock()
	who := newResolver(t, identity.Options{CertificateName: identity.CertificateURI, Now: clock.now})
	e := identity.Evidence{
		Peer:        netip.MustParseAddr("192.0.2.1"),
		Certificate: leaf(func(c *x509.Certificate) { c.URIs = uris("spiffe://a.example/b") }),
	}
	if n := testing.AllocsPerRun(100, func() { sink = who.Resolve(context.Background(), e) }); n != 0 ||
		sink.Kind != identity.Certificate {
		t.Errorf("%v allocations, %v", n, sink)
	}
}
