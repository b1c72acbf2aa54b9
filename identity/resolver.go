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
// headers, which hold credentials.
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

	// KeyHeader is the header that holds an API key, besides
	// "Authorization: Bearer". Default "X-Api-Key".
	KeyHeader string

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

	// CertificateName says which name of Evidence.Certificate is the principal,
	// and CertificateProject which one the project. By default certificates
	// are not used. A valid token or API key goes before the certificate.
	CertificateName    CertificateName
	CertificateProject CertificateProject

	Now func() time.Time // defaults to time.Now; asked only for credentials
}

const (
	defaultKeyHeader = "X-Api-Key"
	defaultIPv6Bits  = 64
	authorization    = "Authorization"
)

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
	keyHeader     string
	tokens        TokenVerifier
	cache         *tokenCache        // nil if nothing is remembered
	failures      *failures          // nil if they are not counted
	certificates  *certificateReader // nil if they are not used
	now           func() time.Time

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
		keyHeader:     canonical(o.KeyHeader, defaultKeyHeader),
		tokens:        o.Tokens,
		now:           o.Now,
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
	if err := errors.Join(slices.Concat(checkProxies(o.TrustedProxies), r.check(o), r.checkStrategy(o), checkNAT64(o.NAT64))...); err != nil {
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
	if o.Keys != nil && o.Digester == nil {
		fault("Digester is nil, want one: Keys is set")
	}
	if _, rest := cutToken(r.keyHeader); rest != "" {
		fault("KeyHeader is %q, want the name of a header", o.KeyHeader)
	}
	faults = append(faults, checkTokens(o)...)
	switch r.keyHeader {
	case authorization, xForwardedFor, forwarded:
		fault("KeyHeader is %q, want a header of its own", o.KeyHeader)
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
// Principal.Rejected and otherwise ignored, so that the request is that of its
// address.
func (r *Resolver) Resolve(ctx context.Context, e Evidence) Principal {
	var p Principal
	p.Client, p.Hop = r.client(e)
	p.Prefix = r.group(p.Client)
	if e.Header != nil && (r.keys != nil || r.tokens != nil) {
		r.reject(&p, r.authenticate(ctx, e.Header, &p))
	}
	if e.Certificate != nil && r.certificates != nil && p.Kind == Address {
		r.reject(&p, r.useCertificate(e.Certificate, &p))
	}
	return p
}

// reject counts why a credential is not used, and keeps the first reason.
func (r *Resolver) reject(p *Principal, why Rejection) {
	if why == NotRejected {
		return
	}
	r.rejected[why].Add(1)
	if p.Rejected == NotRejected {
		p.Rejected = why
	}
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

// authenticate fills in p from the credential in h, if there is a valid one.
// Otherwise it leaves p alone.
func (r *Resolver) authenticate(ctx context.Context, h Headers, p *Principal) Rejection {
	kind, text, why := r.credential(h)
	switch {
	case why != NotRejected:
		return why
	case kind == APIKey:
		return r.useKey(ctx, text, p)
	case kind == Token:
		return r.useToken(ctx, text, p)
	}
	return NotRejected
}

// credential finds the one credential in h. Its kind is Address if there is
// none. Two that differ are unusable, as is one header given twice: whoever
// sent them, another server may have read the other one.
func (r *Resolver) credential(h Headers) (kind Kind, text string, why Rejection) {
	kind, text, why = r.bearer(h)
	if why == Ambiguous || r.keys == nil {
		return kind, text, why
	}
	keys := h.Values(r.keyHeader)
	switch {
	case len(keys) == 0:
		return kind, text, why
	case len(keys) > 1, kind == Token, kind == APIKey && text != keys[0]:
		return Address, "", Ambiguous
	}
	return APIKey, keys[0], NotRejected
}

// bearer finds the credential in the Authorization header. Other schemes than
// Bearer are the application's affair.
func (r *Resolver) bearer(h Headers) (kind Kind, text string, why Rejection) {
	lines := h.Values(authorization)
	switch len(lines) {
	case 0:
		return Address, "", NotRejected
	case 1:
	default:
		return Address, "", Ambiguous
	}
	text, is := cutBearer(lines[0])
	switch {
	case !is:
		return Address, "", NotRejected
	case r.keys != nil && strings.HasPrefix(text, keyPrefix):
		return APIKey, text, NotRejected
	case r.tokens != nil:
		return Token, text, NotRejected
	}
	return Address, "", TokenUnchecked
}

// cutBearer cuts the scheme off (RFC 9110 §11.4, RFC 6750 §2.1).
func cutBearer(line string) (text string, is bool) {
	const scheme = "Bearer"
	if len(line) < len(scheme) || !strings.EqualFold(line[:len(scheme)], scheme) {
		return "", false
	}
	text = line[len(scheme):]
	if text != "" && text[0] != ' ' {
		return "", false
	}
	return strings.TrimLeft(text, " "), true
}

func (r *Resolver) useKey(ctx context.Context, text string, p *Principal) Rejection {
	digest, ok := r.digester.digest(text)
	if !ok {
		return KeyMalformed
	}
	key, err := r.keys.Find(ctx, digest)
	switch {
	case err == nil:
	case errors.Is(err, ErrUnknownKey):
		return KeyUnknown
	default:
		return LookupFailed
	}
	switch {
	case key.ID == "": // the finder's mistake; as an ID it would be shared by all such keys
		return LookupFailed
	case key.Revoked:
		return KeyRevoked
	case !key.Expires.IsZero() && !r.now().Before(key.Expires):
		return KeyExpired
	}
	p.Kind, p.ID, p.Project, p.Tier = APIKey, key.ID, key.Project, key.Tier
	return NotRejected
}
