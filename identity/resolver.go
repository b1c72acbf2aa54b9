package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Headers is the part of http.Header that identity reads. Values returns the
// field lines of a name, in order, without joining or splitting them.
type Headers interface{ Values(name string) []string }

// Evidence is what a request shows of its sender. It prints without its
// headers and target, which hold credentials.
type Evidence struct {
	// Peer is the address at the other end of the connection. Leave it
	// invalid where there is none; where only a trusted proxy can connect, as
	// over a Unix socket, pass a loopback address and trust that.
	Peer netip.Addr

	Header Headers // may be nil

	// Certificate is the client certificate of the connection, nil if there is
	// none: the leaf of a chain that was verified (the first certificate of
	// tls.ConnectionState.VerifiedChains[0]). Never set it from
	// PeerCertificates, which is what the client sent.
	Certificate *x509.Certificate

	// Method is the request method, and Target the raw request target, for
	// Options.KeySources.Query, Options.Proofs and Options.Agents. May be empty.
	Method, Target string

	// Reading is how targets are read, for Options.Proofs. Without, they are the
	// same only letter by letter.
	Reading Reading

	// Proven keeps what was accepted of this request, for those who ask about it
	// again; may be nil. See NeedsProven.
	Proven *Proven

	// Look says that nobody acts on the answer: what is good once can be shown
	// again.
	Look bool

	// User is who the program that asks has logged in, nil or without an ID if
	// nobody is. Then the request is that user's, and no credential is looked at:
	// the program has decided already which of them it honours.
	User *User

	// Endpoint is where the request was matched to, for keys with scopes; nil
	// if to none.
	Endpoint *Endpoint
}

// String shows the peer alone.
func (e Evidence) String() string { return "{Peer:" + e.Peer.String() + " Header:" + redacted + "}" }

// Format shows the peer alone, whatever the verb.
func (e Evidence) Format(s fmt.State, _ rune) { io.WriteString(s, e.String()) }

// LogValue shows the peer alone.
func (e Evidence) LogValue() slog.Value { return slog.StringValue(e.String()) }

// MarshalText shows the peer alone, for encoding/json and others.
func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Options configures a Resolver. Nothing is required: the zero value knows
// requests by the address of the peer and reads no header.
type Options struct {
	// TrustedProxies are the addresses of your own proxies. Only from them is
	// the forwarding header read. Too few, and all clients behind a forgotten
	// proxy share its budget; too many, and whoever has one of the addresses
	// chooses whose budget is spent. All of IPv4 or of IPv6 is refused.
	TrustedProxies []netip.Prefix

	// ForwardedHeader is the one header that the proxies append to:
	// "X-Forwarded-For" (the default) or "Forwarded" (RFC 7239). The other one
	// is never read, because proxies that do not manage it pass on what the
	// client wrote there.
	ForwardedHeader string

	// Strategy says how the client is found; see there. Default TrustedRanges.
	Strategy Strategy

	// ProxyCount is how many proxies stand in front, 1 to 64, for TrustedCount
	// alone. Too high, and clients choose their address; too low, and all
	// clients are one proxy. Headers with fewer hops count as the peer's.
	ProxyCount int

	// ClientHeader is the header that holds the client's address, for
	// SingleHeader alone, such as "CF-Connecting-IP", "True-Client-IP",
	// "X-Real-IP" or "Fly-Client-IP".
	ClientHeader string

	// IPv6Bits is the length of the prefix whose addresses share a budget,
	// 1 to 128, default 64: what one customer is given at least. With more,
	// one host has as many budgets as it likes; with less, strangers share.
	// Addresses that stand for an IPv4 address are grouped by that (translate.go).
	IPv6Bits int

	// IPv4Bits is the same for IPv4 addresses, 1 to 32, default 32: each has a
	// budget. With less, neighbours share, who are strangers more often than
	// with IPv6.
	IPv4Bits int

	// NAT64 are the prefixes besides 64:ff9b::/96 behind which your translators
	// put IPv4 addresses (RFC 6052), of 32, 40, 48, 56, 64 or 96 bits. Without,
	// all of IPv4 behind a translator is a budget or two. Name none that is not
	// yours: whoever else has it has a budget for each address he likes.
	NAT64 []netip.Prefix

	// Keys finds API keys; nil means that none are accepted.
	Keys KeyFinder

	// Digester makes of an API key what Keys is asked for. Required with Keys.
	Digester *Digester

	// KeySources are where an API key may stand. Default: the header X-Api-Key
	// and "Authorization: Bearer".
	KeySources KeySources

	// KeyFormats are the shapes that API keys may have, at most 8; a text of
	// another shape is refused without a look-up. Default: that of NewKey.
	KeyFormats []KeyFormat

	// Rotated is told of a key that was found under the previous secret of the
	// Digester. It is called on the goroutine of the request, so it must be
	// quick, and again at every request with the key until the key is stored
	// under the new one. Nil means that nobody is told.
	Rotated func(Rotation)

	// Tokens verifies bearer tokens; nil means that none are accepted.
	Tokens TokenVerifier

	// TokenCache is how many verified tokens are remembered, at most 4194304,
	// at about 250 bytes each. Default 8192; -1 means none, and every request
	// pays for a signature check.
	TokenCache int

	// TokenTTL is how long a verified token is remembered at most, and so how
	// long one is still accepted whose key was withdrawn. At most 5 minutes.
	// Default 30 s.
	TokenTTL time.Duration

	// TokenFailures is how many tokens of an address group may fail their
	// signature check before its other uncached tokens are not verified any
	// more (TokenFlood), and TokenFailuresPerSecond how fast it recovers. With
	// higher values forged tokens cost more; with lower ones, those who share an
	// address with a client that has a wrong token have theirs ignored.
	// Defaults 32 and 4; TokenFailures -1 means without end.
	TokenFailures          int
	TokenFailuresPerSecond int

	// Proofs verifies the proofs that come with tokens which are bound to a key
	// (Claims.Key): such a token counts with one alone. nil means that bound
	// tokens are good for whoever has them.
	Proofs ProofVerifier

	// BoundOnly has tokens that are bound to no key ignored. It needs Proofs.
	BoundOnly bool

	// Agents verifies what agents have signed; nil means that signatures are not looked at. Failures are counted as
	// TokenFailures says, apart from those of tokens.
	Agents AgentVerifier

	// CertificateName says which name of Evidence.Certificate is the principal,
	// and CertificateProject which one the project. By default certificates
	// are not used. A valid token or API key goes before the certificate: see
	// Credentials.
	CertificateName    CertificateName
	CertificateProject CertificateProject

	// Credentials says which of several valid credentials of a request count.
	// Default AllCredentials.
	Credentials Choice

	Now func() time.Time // defaults to time.Now; asked only for credentials
}

const (
	defaultKeyHeader = "X-Api-Key"
	defaultIPv6Bits  = 64
	authorization    = "Authorization"
	maxFormats       = 8
)

// formats returns the formats with their defaults.
func formats(given []KeyFormat) []KeyFormat {
	if len(given) == 0 {
		given = []KeyFormat{{}}
	}
	all := make([]KeyFormat, len(given))
	for i, f := range given {
		all[i] = f.withDefaults()
	}
	return all
}

// Resolver finds out who sent a request. It may be used concurrently.
type Resolver struct {
	strategy      Strategy
	trusted       ranges
	trustAll      bool   // every peer's header is read
	addressHeader string // that may name the client
	rfc7239       bool   // addressHeader is Forwarded
	proxyCount    int
	ipv4Bits      int
	ipv6Bits      int
	nat64         []nat64 // the longest first
	keys          KeyFinder
	digester      *Digester
	sources       KeySources
	formats       []KeyFormat
	rotated       func(Rotation)
	tokens        TokenVerifier
	cache         *tokenCache   // nil if nothing is remembered
	failures      *failures     // nil if they are not counted
	proofs        ProofVerifier // nil if bound tokens are as good as others
	boundOnly     bool
	unproven      *failures          // of proofs; apart, as only who has a valid token can cause them
	certificates  *certificateReader // nil if they are not used
	agents        AgentVerifier      // nil if signatures are not looked at
	unsigned      *failures          // of signatures
	now           func() time.Time
	choice        Choice
	anyScope      bool // keys are taken whatever their scopes

	// Counted apart, so that writing them does not take the fields above from
	// the caches of other processors.
	rejected *[rejections]atomic.Uint64
}

// New returns a Resolver, or an error that names every faulty option.
func New(o Options) (*Resolver, error) {
	r := &Resolver{
		strategy:      o.Strategy,
		addressHeader: canonical(o.ForwardedHeader, xForwardedFor),
		proxyCount:    o.ProxyCount,
		ipv4Bits:      o.IPv4Bits,
		ipv6Bits:      o.IPv6Bits,
		keys:          o.Keys,
		digester:      o.Digester,
		rotated:       o.Rotated,
		tokens:        o.Tokens,
		now:           o.Now,
		choice:        o.Credentials,
		rejected:      new([rejections]atomic.Uint64),
	}
	r.rfc7239 = r.addressHeader == forwarded
	r.trustAll = o.Strategy == TrustedCount && len(o.TrustedProxies) == 0
	if o.Strategy == SingleHeader {
		r.addressHeader, r.rfc7239 = canonical(o.ClientHeader, ""), false
	}
	if r.ipv4Bits == 0 {
		r.ipv4Bits = 32
	}
	if r.ipv6Bits == 0 {
		r.ipv6Bits = defaultIPv6Bits
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.keys != nil {
		r.sources = o.KeySources.withDefaults()
		r.formats = formats(o.KeyFormats)
	}
	if err := errors.Join(slices.Concat(checkProxies(o.TrustedProxies), r.check(o), r.checkStrategy(o),
		checkNAT64(o.NAT64))...); err != nil {
		return nil, err
	}
	r.trusted, r.nat64 = newRanges(o.TrustedProxies), newNAT64(o.NAT64)
	if err := r.prepareTokens(o); err != nil {
		return nil, err
	}
	return r, nil
}

func checkProxies(prefixes []netip.Prefix) (faults []error) {
	for i, p := range prefixes {
		faults = append(faults, checkTrusted(i, p))
	}
	return faults
}

func (r *Resolver) check(o Options) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if h := canonical(o.ForwardedHeader, xForwardedFor); h != xForwardedFor && h != forwarded {
		fault("ForwardedHeader is %q, want %q or %q", o.ForwardedHeader, xForwardedFor, forwarded)
	}
	if r.ipv6Bits < 1 || 128 < r.ipv6Bits {
		fault("IPv6Bits is %d, want 1 to 128, or 0 for %d", o.IPv6Bits, defaultIPv6Bits)
	}
	if r.ipv4Bits < 1 || 32 < r.ipv4Bits {
		fault("IPv4Bits is %d, want 1 to 32, or 0 for 32", o.IPv4Bits)
	}
	if o.Credentials >= choices {
		fault("Credentials is %v, want AllCredentials or FirstCredentials", o.Credentials)
	}
	if o.Keys != nil && o.Digester == nil {
		fault("Digester is nil, want one: Keys is set")
	}
	if err := o.KeySources.withDefaults().check(); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, checkTokens(o)...)
	if len(o.KeyFormats) > maxFormats {
		fault("KeyFormats has %d formats, want at most %d", len(o.KeyFormats), maxFormats)
	}
	for i, f := range formats(o.KeyFormats) {
		if err := f.Check(); err != nil {
			fault("KeyFormats[%d]: %w", i, err)
		}
		if f.Prefix == "" && r.sources.Bearer && r.tokens != nil {
			fault("KeyFormats[%d].Prefix is empty, want one, or KeySources.Bearer false: tokens are accepted too, "+
				"and nothing else tells the two apart", i)
		}
	}
	return faults
}

// canonical is name as http.Header keeps it, which finds it fastest there.
func canonical(name, ifEmpty string) string {
	if name == "" {
		return ifEmpty
	}
	b := []byte(strings.ToLower(name))
	for i := range b {
		if 'a' <= b[i] && b[i] <= 'z' && (i == 0 || b[i-1] == '-') {
			b[i] -= 'a' - 'A'
		}
	}
	return string(b)
}

// Resolve reports whose budget the request spends. It always has an answer: a
// credential that is not proven to be valid is counted, reported in
// Principal.Rejected and otherwise ignored; without a valid one the request is
// that of its address. Of several valid ones it reports the first: see ResolveAll.
func (r *Resolver) Resolve(ctx context.Context, e Evidence) Principal {
	var first Principal
	r.ResolveAll(ctx, &e, &first, nil)
	return first
}

// ResolveAll is Resolve for requests that may have several valid credentials. It writes first, whatever stands there:
// the user, if the program says one; else the subject of a token, else the holder of an API key, else that of
// the client certificate, else the agent that has signed, else the address. others are those of the remaining
// valid credentials, in the same order, MaxCredentials at most; under
// FirstCredentials only those of first's kind. They are written to room, which
// grows if it is too small.
//
// A limiter charges all of them: the API may honour any of the credentials, and
// whoever sends them chooses which they are.
func (r *Resolver) ResolveAll(ctx context.Context, e *Evidence, first *Principal,
	room []Principal) (others []Principal) {
	p := first
	*p = Principal{}
	p.Client, p.Hop = r.client(e)
	p.Prefix = r.group(p.Client)
	others = room[:0]
	if e.User != nil && e.User.ID != "" {
		p.Kind, p.ID, p.Project = LoggedIn, e.User.ID, e.User.Project
		return others
	}
	if r.keys != nil || r.tokens != nil {
		others = r.authenticate(ctx, e, p, others)
	}
	if e.Certificate != nil && r.certificates != nil && p.Rejected != TooManyCredentials {
		others = r.addCertificate(e.Certificate, p, others)
	}
	if r.agents != nil && e.Header != nil && p.Rejected != TooManyCredentials {
		others = r.addAgents(e, p, others)
	}
	if r.choice == FirstCredentials {
		if p.Kind.before(APIKey) {
			p.elsewhere = nil
		}
		for i := range others {
			if others[i].Kind != p.Kind {
				return others[:i]
			}
		}
	}
	return others
}

// addCertificate adds the holder of the certificate of the connection. Beside
// another credential it is no fault that the certificate says nothing.
func (r *Resolver) addCertificate(cert *x509.Certificate, p *Principal, others []Principal) []Principal {
	if p.Kind == Address {
		r.reject(p, r.useCertificate(cert, p))
		return others
	}
	other := Principal{Client: p.Client, Prefix: p.Prefix, Hop: p.Hop}
	if r.useCertificate(cert, &other) == NotRejected && other.Kind != Address {
		others = include(p, other, others)
	}
	return others
}

// AnyScope returns a Resolver that takes API keys wherever they are shown,
// whatever their scopes: for a door at which holders ask about their own keys.
// Principal.Scopes says where the key counts. All else is shared with r.
func (r *Resolver) AnyScope() *Resolver {
	any := *r
	any.anyScope = true
	return &any
}

// reject counts why a credential is not used, and keeps the first reason, or that one could not be verified: of
// that one alone nothing is known, whatever else was sent with it.
func (r *Resolver) reject(p *Principal, why Rejection) {
	if why == NotRejected {
		return
	}
	r.rejected[why].Add(1)
	if p.Rejected == NotRejected || why.doubt() > p.Rejected.doubt() {
		p.Rejected, why = why, p.Rejected
	}
	p.behind |= 1 << why.doubt() &^ 1 // the first bit would be no doubt
}

// Rejections yields how many credentials were ignored for each reason since
// New, including reasons that did not occur yet.
func (r *Resolver) Rejections() iter.Seq2[Rejection, uint64] {
	return func(yield func(Rejection, uint64) bool) {
		for why := NotRejected + 1; why < rejections; why++ {
			if !yield(why, r.rejected[why].Load()) {
				return
			}
		}
	}
}

func (r *Resolver) useKey(ctx context.Context, found presented, at *Endpoint, p *Principal) Rejection {
	key, why := r.findKey(ctx, found)
	switch {
	case why != NotRejected:
		return why
	case key.ID == "": // the finder's mistake; as an ID it would be shared by all such keys
		return LookupFailed
	case key.Revoked:
		return KeyRevoked
	case !key.Expires.IsZero() && !r.now().Before(key.Expires):
		return KeyExpired
	}
	p.Kind, p.ID, p.Project, p.Tier, p.Scopes = APIKey, key.ID, key.Project, key.Tier, key.Scopes
	if !r.anyScope && !key.Scopes.Allow(at) {
		return KeyOutOfScope
	}
	return NotRejected
}

// findKey finds what is known of a key. What has the shape of none is refused
// before any hash is computed.
func (r *Resolver) findKey(ctx context.Context, found presented) (Key, Rejection) {
	if !found.escaped && !r.mayBeKey(len(found.text)) {
		return Key{}, KeyMalformed
	}
	s := r.digester.secrets.Load()
	h := s.current.begin()
	defer s.current.end(h)
	if !h.read(found) || !r.mayBeKey(h.n) {
		return Key{}, KeyMalformed
	}
	tag := s.memo.tag(h.text[:h.n])
	if digest, ok := s.memo.get(tag); ok {
		// Unknown is no last word here: the key may have been stored under
		// another secret meanwhile.
		if key, err := r.keys.Find(ctx, digest); err == nil || !errors.Is(err, ErrUnknownKey) {
			return key, rejection(err)
		}
	}
	if !r.isKey(h.text[:h.n]) {
		return Key{}, KeyMalformed
	}
	digest := h.digest()
	key, err := r.keys.Find(ctx, digest)
	switch {
	case err == nil:
		s.memo.put(tag, &digest)
	case s.previous != nil && errors.Is(err, ErrUnknownKey):
		return r.findPrevious(ctx, s, h, digest)
	}
	return key, rejection(err)
}

// findPrevious looks for the key in h under the secret before.
func (r *Resolver) findPrevious(ctx context.Context, s *secrets, h *keyedHash, digest Digest) (Key, Rejection) {
	before := s.previous.begin()
	defer s.previous.end(before)
	before.n = copy(before.text[:], h.text[:h.n])
	old := before.digest()
	key, err := r.keys.Find(ctx, old)
	switch {
	case err == nil && r.rotated != nil:
		r.rotated(Rotation{Old: old, New: digest, SecretID: s.current.id})
	case errors.Is(err, ErrUnknownKey):
		// It may have been moved between the two look-ups.
		key, err = r.keys.Find(ctx, digest)
	}
	return key, rejection(err)
}

// rejection turns a finder's error into why the key is not used.
func rejection(err error) Rejection {
	switch {
	case err == nil:
		return NotRejected
	case errors.Is(err, ErrUnknownKey):
		return KeyUnknown
	}
	return LookupFailed
}

// mayBeKey reports whether some format has keys of n bytes.
func (r *Resolver) mayBeKey(n int) bool {
	for i := range r.formats {
		if r.formats[i].fits(n) {
			return true
		}
	}
	return false
}

// isKey reports whether text has the shape of some format.
func (r *Resolver) isKey(text []byte) bool {
	for i := range r.formats {
		if r.formats[i].fits(len(text)) && r.formats[i].match(text) {
			return true
		}
	}
	return false
}
