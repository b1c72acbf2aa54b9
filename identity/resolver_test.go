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

// goodToken verifies the token "good"; others fail as they say.
type goodToken struct{}

func (goodToken) Verify(_ context.Context, token string) (identity.Claims, error) {
	switch token {
	case "good":
		return identity.Claims{Subject: "alice", Project: "acme", Tier: "gold"}, nil
	case "nobody":
		return identity.Claims{Project: "acme"}, nil
	case "old":
		return identity.Claims{}, fmt.Errorf("exp: %w", identity.ErrTokenExpired)
	case "down":
		return identity.Claims{}, fmt.Errorf("fetch keys: %w", identity.ErrUnavailable)
	case "slow":
		return identity.Claims{}, context.DeadlineExceeded
	}
	return identity.Claims{Subject: "mallory"}, errors.New("signature is wrong")
}

// finderFunc is a KeyFinder.
type finderFunc func(identity.Digest) (identity.Key, error)

func (f finderFunc) Find(_ context.Context, d identity.Digest) (identity.Key, error) { return f(d) }

// credentials is a resolver with one key of each sort.
type credentials struct {
	*identity.Resolver
	active, revoked, expired, expiring, unknown, broken, nameless string
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newCredentials(t *testing.T, o identity.Options) credentials {
	c := credentials{
		active: newKey(t), revoked: newKey(t), expired: newKey(t), expiring: newKey(t),
		unknown: newKey(t), broken: newKey(t), nameless: newKey(t),
	}
	digester := newDigester(t)
	keys := map[identity.Digest]identity.Key{
		digester.Digest(c.active):   {ID: "k1", Project: "acme", Tier: "gold", Name: "CI"},
		digester.Digest(c.revoked):  {ID: "k2", Project: "acme", Revoked: true},
		digester.Digest(c.expired):  {ID: "k3", Project: "acme", Expires: noon},
		digester.Digest(c.expiring): {ID: "k4", Project: "acme", Expires: noon.Add(1)},
		digester.Digest(c.nameless): {Project: "acme"},
	}
	o.Digester = digester
	o.Now = func() time.Time { return noon }
	o.Keys = finderFunc(func(d identity.Digest) (identity.Key, error) {
		if d == digester.Digest(c.broken) {
			return identity.Key{ID: "not to be used"}, errors.New("database is away")
		}
		if key, known := keys[d]; known {
			return key, nil
		}
		return identity.Key{}, fmt.Errorf("keys: %w", identity.ErrUnknownKey)
	})
	c.Resolver = newResolver(t, o)
	return c
}

func TestCredentials(t *testing.T) {
	c := newCredentials(t, identity.Options{Tokens: goodToken{}})
	const none = identity.NotRejected
	bearer := func(tokens ...string) http.Header {
		h := http.Header{}
		for _, token := range tokens {
			h.Add("Authorization", "Bearer "+token)
		}
		return h
	}
	with := func(h http.Header, keys ...string) http.Header {
		h["X-Api-Key"] = keys
		return h
	}
	for _, row := range []struct {
		name   string
		header http.Header
		kind   identity.Kind
		id     string
		why    identity.Rejection
	}{
		{"nothing", http.Header{}, identity.Address, "", none},
		{"key", with(http.Header{}, c.active), identity.APIKey, "k1", none},
		{"key as bearer", bearer(c.active), identity.APIKey, "k1", none},
		{"key twice, in two headers", with(bearer(c.active), c.active), identity.APIKey, "k1", none},
		{"key that expires in a nanosecond", with(http.Header{}, c.expiring), identity.APIKey, "k4", none},
		{"key beside another scheme", with(http.Header{"Authorization": {"Basic YTpi"}}, c.active),
			identity.APIKey, "k1", none},
		{"token", bearer("good"), identity.Token, "alice", none},
		{"token, scheme in capitals", http.Header{"Authorization": {"BEARER  good"}}, identity.Token, "alice", none},
		{"another scheme", http.Header{"Authorization": {"Basic YTpi"}}, identity.Address, "", none},
		{"no scheme", http.Header{"Authorization": {""}}, identity.Address, "", none},
		{"a scheme that begins alike", http.Header{"Authorization": {"Bearertoken good"}}, identity.Address, "", none},

		{"two keys", with(http.Header{}, c.active, c.expiring), identity.APIKey, "k1", none},
		{"the same key twice in one header", with(http.Header{}, c.active, c.active), identity.APIKey, "k1", none},
		{"two keys in two headers", with(bearer(c.expiring), c.active), identity.APIKey, "k4", none},
		{"key and token", with(bearer("good"), c.active), identity.Token, "alice", none},
		{"key and bad token", with(bearer("bad"), c.active), identity.APIKey, "k1", identity.TokenRefused},
		{"two tokens", bearer("good", "good"), identity.Token, "alice", none},
		{"two Authorization lines and a key", with(http.Header{"Authorization": {"Basic YTpi", "Basic YTpi"}},
			c.active), identity.APIKey, "k1", none},

		{"revoked", with(http.Header{}, c.revoked), identity.Address, "", identity.KeyRevoked},
		{"expired", with(http.Header{}, c.expired), identity.Address, "", identity.KeyExpired},
		{"expired as bearer", bearer(c.expired), identity.Address, "", identity.KeyExpired},
		{"unknown", with(http.Header{}, c.unknown), identity.Address, "", identity.KeyUnknown},
		{"finder fails", with(http.Header{}, c.broken), identity.Address, "", identity.LookupFailed},
		{"key without an ID", with(http.Header{}, c.nameless), identity.Address, "", identity.LookupFailed},
		{"empty key", with(http.Header{}, ""), identity.Address, "", identity.KeyMalformed},
		{"two keys in one line", with(http.Header{}, c.active+", "+c.expiring), identity.APIKey, "k1", none},
		{"long key", with(http.Header{}, strings.Repeat("x", 1<<20)), identity.Address, "", identity.KeyMalformed},
		{"token as key", with(http.Header{}, "good"), identity.Address, "", identity.KeyMalformed},
		{"broken key as bearer", bearer("hg_" + c.active[4:]), identity.Address, "", identity.KeyMalformed},

		{"forged token", bearer("bad"), identity.Address, "", identity.TokenRefused},
		{"token without a subject", bearer("nobody"), identity.Address, "", identity.TokenRefused},
		{"expired token", bearer("old"), identity.Address, "", identity.TokenExpired},
		{"verifier fails", bearer("down"), identity.Address, "", identity.LookupFailed},
		{"verifier is out of time", bearer("slow"), identity.Address, "", identity.LookupFailed},
		{"empty token", http.Header{"Authorization": {"Bearer"}}, identity.Address, "", identity.TokenMalformed},
		{"two tokens in one line", bearer("good, Bearer good"), identity.Token, "alice", none},
		{"padding alone", bearer("=="), identity.Address, "", identity.TokenMalformed},
		{"long token", bearer(strings.Repeat("x", identity.MaxTokenLength+1)), identity.Address, "",
			identity.TokenTooLong},
		{"longest token", bearer(strings.Repeat("x", identity.MaxTokenLength)), identity.Address, "",
			identity.TokenRefused},
	} {
		peer := netip.MustParseAddr("203.0.113.9")
		p := c.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: row.header})
		if p.Kind != row.kind || p.ID != row.id || p.Rejected != row.why {
			t.Errorf("%s: %s %q, %s; want %s %q, %s", row.name, p.Kind, p.ID, p.Rejected, row.kind, row.id, row.why)
		}
		if p.Client != peer {
			t.Errorf("%s: client is %v, want %v", row.name, p.Client, peer)
		}
		wantProject := ""
		if row.kind != identity.Address {
			wantProject = "acme"
		}
		if p.Project != wantProject {
			t.Errorf("%s: project is %q, want %q", row.name, p.Project, wantProject)
		}
		if row.kind == identity.Address {
			if direct := c.Resolve(t.Context(), identity.Evidence{Peer: peer}); string(
				direct.AppendSubject(nil)) != string(p.AppendSubject(nil)) {
				t.Errorf("%s: the subject is not that of the address", row.name)
			}
		}
	}
}

// Who the program has logged in settles it: whatever is shown beside is neither another principal nor a fault.
func TestUserGoesFirst(t *testing.T) {
	c := newCredentials(t, identity.Options{Tokens: goodToken{}})
	crowd := http.Header{}
	for i := range 2 * identity.MaxCredentials {
		crowd.Add("Authorization", fmt.Sprintf("Bearer %d", i))
	}
	peer := netip.MustParseAddr("203.0.113.9")
	for _, h := range []http.Header{nil, {"X-Api-Key": {c.active}}, {"X-Api-Key": {c.revoked}},
		{"Authorization": {"Bearer good"}}, crowd} {
		first := identity.Principal{Tier: "of another request"}
		others := c.ResolveAll(t.Context(),
			&identity.Evidence{Peer: peer, Header: h, User: &identity.User{ID: "7", Project: "acme"}}, &first, nil)
		want := identity.Principal{
			Kind:    identity.LoggedIn,
			ID:      "7",
			Project: "acme",
			Client:  peer,
			Prefix:  netip.PrefixFrom(peer, 32),
			Hop:     first.Hop,
		}
		if first != want || len(others) > 0 {
			t.Errorf("with %v: %v and %v, want %v", h, first, others, want)
		}
	}
	for _, nobody := range []*identity.User{nil, {}, {Project: "acme"}} {
		if p := c.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: http.Header{"X-Api-Key": {c.active}},
			User: nobody}); p.Kind != identity.APIKey {
			t.Errorf("with the user %v: %v, want the API key", nobody, p)
		}
	}
}

func TestTierComesFromTheCredential(t *testing.T) {
	c := newCredentials(t, identity.Options{Tokens: goodToken{}})
	for _, h := range []http.Header{{"X-Api-Key": {c.active}}, {"Authorization": {"Bearer good"}}} {
		if p := c.Resolve(t.Context(), identity.Evidence{Header: h}); p.Tier != "gold" {
			t.Errorf("%v: tier is %q, want gold", p, p.Tier)
		}
	}
}

func TestKeysOnly(t *testing.T) {
	c := newCredentials(t, identity.Options{KeySources: identity.KeySources{Header: "x-acme-KEY", Bearer: true}})
	for _, row := range []struct {
		header http.Header
		kind   identity.Kind
		why    identity.Rejection
	}{
		{http.Header{"X-Acme-Key": {c.active}}, identity.APIKey, identity.NotRejected},
		{http.Header{"X-Api-Key": {c.active}}, identity.Address, identity.NotRejected},
		{http.Header{"Authorization": {"Bearer good"}}, identity.Address, identity.TokenUnchecked},
		{http.Header{"Authorization": {"Bearer good"}, "X-Acme-Key": {c.active}}, identity.APIKey,
			identity.NotRejected},
		{http.Header{"Authorization": {"Bearer " + c.active}}, identity.APIKey, identity.NotRejected},
	} {
		if p := c.Resolve(t.Context(), identity.Evidence{Header: row.header}); p.Kind != row.kind ||
			p.Rejected != row.why {
			t.Errorf("%s, want %s, %s", p, row.kind, row.why)
		}
	}
}

func TestTokensOnly(t *testing.T) {
	who := newResolver(t, identity.Options{Tokens: goodToken{}})
	key := newKey(t)
	for _, row := range []struct {
		header http.Header
		kind   identity.Kind
		why    identity.Rejection
	}{
		{http.Header{"X-Api-Key": {key}}, identity.Address, identity.NotRejected},
		{http.Header{"X-Api-Key": {key}, "Authorization": {"Bearer good"}}, identity.Token, identity.NotRejected},
		{http.Header{"Authorization": {"Bearer " + key}}, identity.Address, identity.TokenRefused},
	} {
		if p := who.Resolve(t.Context(), identity.Evidence{Header: row.header}); p.Kind != row.kind ||
			p.Rejected != row.why {
			t.Errorf("%s, want %s, %s", p, row.kind, row.why)
		}
	}
}

// TestMissingIdentityIsStillLimited: requests without a peer share a subject.
func TestMissingIdentityIsStillLimited(t *testing.T) {
	who := newResolver(t, identity.Options{TrustedProxies: proxies})
	p := who.Resolve(t.Context(), identity.Evidence{})
	q := who.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Forwarded-For": {"1.1.1.1"}}})
	if a, b := p.AppendSubject(nil), q.AppendSubject(nil); len(a) == 0 || string(a) != string(b) {
		t.Errorf("subjects without a peer: %x and %x", a, b)
	}
}

func TestRejectionsAreCounted(t *testing.T) {
	c := newCredentials(t, identity.Options{})
	for range 3 {
		c.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Api-Key": {c.revoked}}})
	}
	c.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Api-Key": {"x"}}})
	c.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Api-Key": {c.active}}})
	got := map[identity.Rejection]uint64{}
	for why, n := range c.Rejections() {
		got[why] = n
	}
	if got[identity.KeyRevoked] != 3 || got[identity.KeyMalformed] != 1 || got[identity.TooManyCredentials] != 0 ||
		len(got) != int(identity.LookupFailed) {
		t.Errorf("Rejections() = %v", got)
	}
	for range c.Rejections() {
		break // may be left early
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{
			{}, netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"),
			netip.MustParsePrefix("::ffff:0.0.0.0/96"), netip.MustParsePrefix("::ffff:0.0.0.0/95"),
			netip.MustParsePrefix("::ffff:10.0.0.0/104"),
		},
		ForwardedHeader: "X-Real-IP",
		IPv6Bits:        129,
		Keys:            &identity.Keyring{},
		KeySources:      identity.KeySources{Header: "authorization"},
	})
	const tooMany = ", want the addresses of your own proxies: if every address is trusted, clients choose theirs"
	want := strings.Join([]string{
		"TrustedProxies[0] is invalid Prefix, want an address and a prefix length",
		"TrustedProxies[2] is 0.0.0.0/0" + tooMany,
		"TrustedProxies[3] is ::/0" + tooMany,
		"TrustedProxies[4] is ::ffff:0.0.0.0/96" + tooMany,
		"TrustedProxies[5] is ::ffff:0.0.0.0/95, want an IPv4 prefix such as 10.0.0.0/8, or ::ffff: with 96 bits " +
			"or more",
		`ForwardedHeader is "X-Real-IP", want "X-Forwarded-For" or "Forwarded"`,
		"IPv6Bits is 129, want 1 to 128, or 0 for 64",
		"Digester is nil, want one: Keys is set",
		`KeySources.Header is "Authorization", want a header of its own`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("New: %v\nwant %s", err, want)
	}
	for _, name := range []string{"X Api Key", "x:", "ключ", "x\n"} {
		if _, err := identity.New(identity.Options{KeySources: identity.KeySources{Header: name}}); err == nil ||
			!strings.Contains(err.Error(), "want the name of a header") {
			t.Errorf("New with KeySources.Header %q: %v", name, err)
		}
	}
}

// FuzzCredentials: whatever is presented, if it is not the one valid key or
// token, the subject is that of the address.
func FuzzCredentials(f *testing.F) {
	ring, digester := &identity.Keyring{}, newDigester(f)
	key := newKey(f)
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(key),
		Key: identity.Key{ID: "k1"}}}); err != nil {
		f.Fatal(err)
	}
	// Without a bound for failures, which would make one input answer for another.
	who := newResolver(f, identity.Options{Keys: ring, Digester: digester, Tokens: goodToken{}, TokenFailures: -1})
	f.Add("", "")
	f.Add("Bearer good", "")
	f.Add("Bearer  x", "y\nz")
	f.Add("Bearer "+key, key)
	f.Add("bearer hg_", newKey(f))
	f.Fuzz(func(t *testing.T, authorization, keyHeader string) {
		h := http.Header{}
		if authorization != "" {
			h["Authorization"] = strings.Split(authorization, "\n")
		}
		if keyHeader != "" {
			h["X-Api-Key"] = strings.Split(keyHeader, "\n")
		}
		peer := netip.MustParseAddr("203.0.113.9")
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: h})
		scheme, token, _ := strings.Cut(authorization, " ")
		token = strings.TrimLeft(token, " ")
		isBearer := strings.EqualFold(scheme, "Bearer")
		usesToken := keyHeader == "" && isBearer && token == "good"
		usesKey := keyHeader == key && (!isBearer || token == key) && !strings.Contains(authorization, "\n") ||
			keyHeader == "" && isBearer && token == key
		want := identity.Address
		switch {
		case usesToken:
			want = identity.Token
		case usesKey:
			want = identity.APIKey
		}
		if p.Kind != want {
			t.Errorf("Authorization %q, X-Api-Key %q: %s, want %s", authorization, keyHeader, p, want)
		}
		direct := who.Resolve(t.Context(), identity.Evidence{Peer: peer})
		if want == identity.Address && string(p.AppendSubject(nil)) != string(direct.AppendSubject(nil)) {
			t.Errorf("Authorization %q, X-Api-Key %q: a subject of its own", authorization, keyHeader)
		}
	})
}

func TestResolveAllocatesNothing(t *testing.T) {
	c := newCredentials(t, identity.Options{TrustedProxies: proxies, Tokens: goodToken{}})
	rfc7239 := newResolver(t, identity.Options{TrustedProxies: proxies, ForwardedHeader: "Forwarded"})
	ring, digester := &identity.Keyring{}, newDigester(t)
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(c.active),
		Key: identity.Key{ID: "k1", Expires: noon}}}); err != nil {
		t.Fatal(err)
	}
	keys := newResolver(t, identity.Options{Keys: ring, Digester: digester,
		Now: func() time.Time { return noon.Add(-1) }})

	const none, pooled = 0, 10 // with the race detector, on average
	for _, row := range []struct {
		name   string
		who    *identity.Resolver
		peer   string
		header http.Header
		raced  float64
	}{
		{"peer", c.Resolver, "203.0.113.9", http.Header{}, none},
		{"IPv6 peer with a zone", c.Resolver, "fe80::1%eth0", http.Header{}, none},
		{"spoofed", c.Resolver, "203.0.113.9", http.Header{"X-Forwarded-For": {"1.1.1.1"}}, none},
		{"three hops", c.Resolver, "10.0.0.1", http.Header{"X-Forwarded-For": {"1.1.1.1, 10.0.0.3", "fd00::1"}}, none},
		{"IPv6 hops", c.Resolver, "fd00::2", http.Header{"X-Forwarded-For": {"[2001:db8::7]:443, fd00::1%eth0"}}, none},
		{"unusable hops", c.Resolver, "10.0.0.1", http.Header{"X-Forwarded-For": {"0177.0.0.1"}}, none},
		{"garbage hops", c.Resolver, "10.0.0.1", http.Header{"X-Forwarded-For": {"[not:an:address]"}}, none},
		{"Forwarded", rfc7239, "10.0.0.1", http.Header{"Forwarded": {`for=1.1.1.1;by="_x,y", for="[fd00::1]:443"`}},
			none},
		{"malformed key", keys, "203.0.113.9", http.Header{"X-Api-Key": {"hg_nonsense"}}, none},
		{"key", keys, "203.0.113.9", http.Header{"X-Api-Key": {c.active}}, pooled},
		{"key as bearer", keys, "203.0.113.9", http.Header{"Authorization": {"Bearer " + c.active}}, pooled},
		{"unknown key", keys, "203.0.113.9", http.Header{"X-Api-Key": {c.unknown}}, pooled},
		{"token", c.Resolver, "203.0.113.9", http.Header{"Authorization": {"Bearer good"}}, none},
	} {
		allowed := 0.0
		if raceEnabled {
			allowed = row.raced
		}
		e := identity.Evidence{Peer: netip.MustParseAddr(row.peer), Header: row.header}
		subject := make([]byte, 0, 64)
		n := testing.AllocsPerRun(100, func() {
			p := row.who.Resolve(context.Background(), e)
			subject = p.AppendSubject(subject[:0])
		})
		if n > allowed {
			t.Errorf("%s: Resolve allocates %v times, want %v", row.name, n, allowed)
		}
	}
}
