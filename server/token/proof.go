package token

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/once"
)

// ProofOptions configures Proofs. Origins is required.
type ProofOptions struct {
	// Origins are under which URLs clients know this API, each a scheme and a
	// host, "https://api.example". What a proof says it is for has to begin with
	// one of them.
	Origins []string

	// Algorithms are those that proofs may be signed with, the public ones of
	// Options. Default ES256 and EdDSA.
	Algorithms []string

	// Window is how old a proof may be, at most an hour. Default 60 s.
	Window time.Duration

	// Leeway is how far in the future one may seem to be made, at most 10
	// minutes. Default 0.
	Leeway time.Duration

	// Shown remembers what was shown, for as long as it is given to those that replace these. Default a memory of
	// RememberedProofs.
	Shown *once.Memory

	Now func() time.Time // defaults to time.Now
}

const (
	maxProof      = 4 << 10 // bytes of a proof
	defaultWindow = time.Minute
	maxWindow     = time.Hour

	// RememberedProofs is how many proofs are remembered, in 1.7 MB. LastingProof is longer than one may be good.
	RememberedProofs = 1 << 16
	LastingProof     = maxWindow + 2*maxLeeway
)

// Proofs verifies proofs of possession, as RFC 9449 has clients send them with tokens that are bound to a key. Each is
// good once in this process. It may be used concurrently.
type Proofs struct {
	origins    []string
	algorithms []string
	window     time.Duration
	leeway     time.Duration
	now        func() time.Time
	readers    sync.Pool
	shown      *once.Memory
}

var _ identity.ProofVerifier = (*Proofs)(nil)

// Where the values of a proof stand in a scanner, besides headAlg.
const (
	proofJWK = headOwn // the first of those

	proofJTI = iota - 1 // claims
	proofHTM
	proofHTU
	proofIAT
	proofATH
)

var proofPaths = []path{{"jti"}, {"htm"}, {"htu"}, {"iat"}, {"ath"}}

// NewProofs returns Proofs, or an error that names every faulty option.
func NewProofs(o ProofOptions) (*Proofs, error) {
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{"ES256", "EdDSA"}
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Proofs{algorithms: o.Algorithms, window: o.Window, leeway: o.Leeway, now: o.Now, shown: o.Shown}
	if p.shown == nil {
		p.shown = once.New(RememberedProofs, nil)
	}
	var faults []error
	if err := CheckProofAlgorithms(o.Algorithms); err != nil {
		faults = append(faults, fmt.Errorf("Algorithms %w", err))
	}
	if o.Window < 0 || maxWindow < o.Window {
		faults = append(faults, fmt.Errorf("Window is %v, want up to %v, or 0 for %v", o.Window, maxWindow,
			defaultWindow))
	}
	if o.Leeway < 0 || maxLeeway < o.Leeway {
		faults = append(faults, fmt.Errorf("Leeway is %v, want 0 to %v", o.Leeway, maxLeeway))
	}
	if len(o.Origins) == 0 {
		faults = append(faults, errors.New("Origins is empty, want the URLs of this API, such as https://api.example"))
	}
	for _, text := range o.Origins {
		origin, err := Origin(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("Origins %w", err))
		}
		p.origins = append(p.origins, origin)
	}
	p.readers.New = func() any { return &reader{scanner: newScanner()} }
	return p, errors.Join(faults...)
}

// CheckProofAlgorithms says what is wrong with a list of algorithms for proofs, or nothing: all are public ones.
func CheckProofAlgorithms(algorithms []string) error {
	for _, alg := range algorithms {
		if !slices.Contains(publicAlgorithms, alg) {
			return fmt.Errorf("holds %q, want %s", alg, strings.Join(publicAlgorithms, ", "))
		}
	}
	return nil
}

// Origin returns the one spelling of the origin of an API (RFC 6454 section 6.2), or says what is wrong with it.
func Origin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		u.Path != "" && u.Path != "/" || strings.ContainsAny(text, "?#") {
		return "", fmt.Errorf("is %q, want https://HOST or https://HOST:PORT, and nothing else in it",
			withoutUser(text))
	}
	host, ok := originHost(u)
	if !ok {
		return "", fmt.Errorf("is %q, want one host as clients send it: no wildcards, and names beyond ASCII as xn--…",
			text)
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	port, err := strconv.ParseUint(cmp.Or(u.Port(), usual), 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("is %q, want a port of 1 to 65535, or none for %s", text, usual)
	}
	if name := strconv.FormatUint(port, 10); name != usual {
		host += ":" + name
	}
	return u.Scheme + "://" + host, nil
}

// originHost is the one spelling of the host of an origin.
func originHost(u *url.URL) (string, bool) {
	host := strings.ToLower(u.Hostname())
	if strings.HasPrefix(u.Host, "[") {
		ip, err := netip.ParseAddr(host)
		return "[" + ip.String() + "]", err == nil && ip.Zone() == ""
	}
	other := func(r rune) bool {
		return ('a' > r || r > 'z') && ('0' > r || r > '9') && r != '.' && r != '-' && r != '_'
	}
	return host, host != "" && strings.IndexFunc(host, other) < 0
}

// VerifyProof says whether a proof holds, and notes that it was shown.
func (p *Proofs) VerifyProof(proof *identity.Proof) identity.Rejection {
	r := p.readers.Get().(*reader)
	defer p.readers.Put(r)
	s, key, why := p.take(r, proof)
	if why != identity.NotRejected {
		return why
	}
	name, made, why := p.claims(r, s.payload, proof)
	if why != identity.NotRejected {
		return why
	}
	parsed, err := p.key(key, s.alg)
	if err != nil {
		return identity.ProofMalformed
	}
	if !fits(parsed, proof.Key) {
		return identity.ProofUnfit
	}
	name = proof.Key + name // IDs are unique for each key alone
	now := p.now()
	switch {
	case p.shown.Used(proof.Holder, name, made, now):
		return identity.ProofReplayed
	case proof.Spent:
		return identity.TokenFlood
	}
	s.keys = []*Key{parsed}
	switch {
	case !s.signed(proof.Text):
		return identity.ProofRefused
	case proof.Look || p.shown.Use(proof.Holder, name, made, now):
		return identity.NotRejected
	}
	return identity.ProofReplayed // by another request at the same time
}

// take takes a proof apart, and returns the key that it brings.
func (p *Proofs) take(r *reader, proof *identity.Proof) (s sketch, key []byte, why identity.Rejection) {
	if len(proof.Text) > maxProof {
		return s, nil, identity.ProofMalformed
	}
	header, rest, _ := strings.Cut(proof.Text, ".")
	payload, signature, three := strings.Cut(rest, ".")
	if !three || !base64url(signature) || len(header) > maxHeader {
		return s, nil, identity.ProofMalformed
	}
	var ok [2]bool
	s.header, ok[0] = decode(r.header[:0], header)
	s.payload, ok[1] = decode(r.body[:0], payload)
	if !ok[0] || !ok[1] || r.read(s.header, headPaths) != nil {
		return s, nil, identity.ProofMalformed
	}
	f := &r.found
	for i := range headPaths {
		if i != headAlg && i != headTyp && i != headKid && i != proofJWK && f[i].kind != absent {
			return s, nil, identity.ProofMalformed
		}
	}
	for _, alg := range p.algorithms {
		if f[headAlg].is(alg) {
			s.alg = alg
		}
	}
	if s.alg == "" || !f[headTyp].is("dpop+jwt") || f[proofJWK].kind != object {
		return s, nil, identity.ProofMalformed
	}
	return s, f[proofJWK].raw, identity.NotRejected
}

// claims reads what a proof is for, before its signature is checked.
func (p *Proofs) claims(r *reader, payload []byte, proof *identity.Proof) (name string, made time.Time,
	why identity.Rejection) {
	if r.read(payload, proofPaths) != nil {
		return "", made, identity.ProofMalformed
	}
	f := &r.found
	id, ok := proofID(f[proofJTI])
	seconds, whole := f[proofIAT].seconds()
	if !ok || !whole || f[proofHTU].kind != text {
		return "", made, identity.ProofMalformed
	}
	sum := sha256.Sum256([]byte(proof.Token))
	var ath [43]byte
	base64.RawURLEncoding.Encode(ath[:], sum[:])
	if !f[proofHTM].is(proof.Method) || !f[proofATH].is(string(ath[:])) || !p.isFor(f[proofHTU], proof) {
		return "", made, identity.ProofUnfit
	}
	now := p.now()
	if made = time.Unix(seconds, 0); now.After(made.Add(p.window)) || now.Add(p.leeway).Before(made) {
		return "", made, identity.ProofStale
	}
	return id, made, identity.NotRejected
}

// isFor reports whether a URI is that of the request, as the limiter has read it, whatever the query.
func (p *Proofs) isFor(htu value, proof *identity.Proof) bool {
	uri := string(htu.unescaped())
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return false
	}
	path := ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest, path = rest[:end], rest[end:]
	}
	if path, _, _ = strings.Cut(path, "#"); path == "" || path[0] == '?' {
		path = "/" + path // RFC 9110 section 4.2.3
	}
	origin, err := Origin(strings.ToLower(scheme) + "://" + rest)
	if err != nil || !slices.Contains(p.origins, origin) {
		return false
	}
	if proof.Reading != nil {
		return proof.Reading.Same(path, proof.Target)
	}
	path, _, _ = strings.Cut(path, "?")
	target, _, _ := strings.Cut(proof.Target, "?")
	return path == target
}

func (p *Proofs) key(raw []byte, alg string) (*Key, error) {
	var about jwk
	if err := json.Unmarshal(raw, &about); err != nil {
		return nil, err
	}
	return parseJWK(raw, about, []string{alg})
}

// fits reports whether a key has a thumbprint (RFC 7638).
func fits(key *Key, thumbprint string) bool {
	sum, err := (&jose.JSONWebKey{Key: key.key}).Thumbprint(crypto.SHA256)
	if err != nil {
		return false
	}
	want, err := base64.RawURLEncoding.Strict().DecodeString(thumbprint)
	return err == nil && bytes.Equal(sum, want)
}

// proofID is name for what is compared and never printed.
func proofID(v value) (string, bool) {
	if v.kind != text {
		return "", false
	}
	b := v.unescaped()
	return string(b), len(b) > 0 && len(b) <= maxName
}
