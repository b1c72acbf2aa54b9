package token

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Any stands for every issuer, or every audience, a missing one included.
const Any = "*"

// Options configures a Verifier. Keys, Algorithms, Issuer and Audiences are
// required.
type Options struct {
	Keys KeySource

	// Algorithms are those that tokens may be signed with: RS256, RS384,
	// RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA; or HS256, HS384,
	// HS512, but not with one of the others, so that no public key is ever
	// taken for a secret.
	Algorithms []string

	// Issuer is what iss must be. Any accepts every one: then whoever has a
	// key of the set is believed about every subject.
	Issuer string

	// Audiences are the names of this API, one of which aud must hold. Any
	// accepts every one: then a token that the issuer made for another API is
	// good here.
	Audiences []string

	// Types are what typ may be, compared without case and without a leading
	// "application/", such as "at+jwt" (RFC 9068). Default: anything, or none.
	Types []string

	// Leeway is how far the clocks of issuer and gateway may differ, at most
	// 10 minutes. Default 0.
	Leeway time.Duration

	// WithoutExpiry accepts tokens without exp, which are good for as long as
	// their key is.
	WithoutExpiry bool

	// Subject, Project and Tier are the claims that a principal is made of. A
	// dot leads into an object ("realm.id"); a name that holds dots stands in
	// quotes (`"https://example.com/tenant"`). Default for Subject is "sub";
	// the others are empty without one. A claim that is there must be a text of
	// 1 to 256 bytes without control characters.
	Subject, Project, Tier string

	// Claims are others that rules count by, at most MaxClaims, named like these.
	// A claim that is no text like those above, whole number of up to 15 digits,
	// true or false counts as absent.
	Claims []string

	Now func() time.Time // defaults to time.Now
}

// MaxClaims is the most Options.Claims.
const MaxClaims = 8

// Limits on what a token may hold.
const (
	maxHeader = 2 << 10 // bytes of the encoded header
	maxName   = 256     // bytes of a claim that is used, and of a key's ID
	maxLeeway = 10 * time.Minute

	// withoutExpiry is for how long a token without exp is believed at once.
	withoutExpiry = time.Hour
)

// Refusal is why a token is not believed. It says nothing that stands in the
// token. It wraps one of identity's errors.
type Refusal struct {
	Check  string // which of Checks failed
	Detail string
	kind   error
}

func (r *Refusal) Error() string { return r.Check + ": " + r.Detail }
func (r *Refusal) Unwrap() error { return r.kind }

// Checks are what a token has to pass, in order.
var Checks = []string{"form", "header", "algorithm", "key", "claims", "issuer", "audience", "times",
	"subject", "signature"}

func unfit(check, detail string) *Refusal {
	return &Refusal{Check: check, Detail: detail, kind: identity.ErrTokenUnfit}
}

// All that can be wrong is made here: refusing allocates nothing.
var (
	errLong     = unfit("form", "the token is longer than 8192 bytes")
	errForm     = unfit("form", "the token is not three parts of base64url (without padding), between dots")
	errHeadLong = unfit("header", "the header is longer than 2048 bytes")
	errHead     = unfit("header", "the header "+errSyntax.Error())
	errHeadTwin = unfit("header", "the header "+errDuplicate.Error())
	errCrit     = unfit("header", "the header has crit or b64, an extension that is not understood")
	errOwnKey   = unfit("header", "the header brings a key, or says where to fetch one (jwk, jku, x5c, x5u)")
	errType     = unfit("header", "typ is not the one configured")
	errEncoded  = unfit("header", "the header has enc or zip: encrypted tokens are not accepted")
	errAlg      = unfit("algorithm", "alg is missing or not among those configured")
	errKid      = unfit("key", "kid is not a text of 1 to 256 bytes")
	errKey      = unfit("key", "no key for this kid and alg")
	errManyKeys = unfit("key", "the token has no kid, and several keys fit")
	errNoKeys   = &Refusal{Check: "key", Detail: "no keys are known at present", kind: identity.ErrUnavailable}
	errBody     = unfit("claims", "the claims are not a strict JSON object")
	errBodyTwin = unfit("claims", "the claims hold a name twice")
	errBodyMany = unfit("claims", "the claims hold more than 256 names, or are nested more than 12 deep")
	errIss      = unfit("issuer", "iss is missing or not the one configured")
	errAud      = unfit("audience", "aud is missing or holds none of those configured")
	errTimes    = unfit("times", "exp, nbf or iat is not a number of seconds")
	errNoExp    = unfit("times", "exp is missing")
	errExp      = &Refusal{Check: "times", Detail: "exp is in the past", kind: identity.ErrTokenExpired}
	errNbf      = unfit("times", "nbf is in the future")
	errIat      = unfit("times", "iat is in the future")
	errSub      = unfit("subject", "the subject is missing or not a text of 1 to 256 bytes without control characters")
	errProject  = unfit("subject", "the project is not a text of 1 to 256 bytes without control characters")
	errTier     = unfit("subject", "the tier is not a text of 1 to 256 bytes without control characters")
	errBound    = unfit("subject", "cnf.jkt is not the SHA-256 of a key in base64url")
	errForged   = &Refusal{Check: "signature", Detail: "the signature is wrong", kind: errSignature}
)

var errSignature = errors.New("bearer token is forged")

// Verifier verifies tokens. It may be used concurrently.
type Verifier struct {
	keys       KeySource
	algorithms []string
	issuer     string
	audiences  []string
	types      []string
	leeway     time.Duration
	noExpiry   bool
	now        func() time.Time

	paths   []path   // of the claims, see the constants below
	others  []string // Options.Claims
	readers sync.Pool
}

var _ identity.TokenVerifier = (*Verifier)(nil)

// Where the values of a header and of claims stand in a scanner.
const (
	headAlg = iota
	headKid
	headTyp
	headCrit
	headB64
	headEnc
	headZip
	headOwn // four of them
)

var headPaths = []path{{"alg"}, {"kid"}, {"typ"}, {"crit"}, {"b64"}, {"enc"}, {"zip"}, {"jwk"}, {"jku"},
	{"x5c"}, {"x5u"}}

const (
	claimIss = iota
	claimAud
	claimExp
	claimNbf
	claimIat
	claimSub
	claimProject
	claimTier
	claimBound // cnf.jkt
	claimOther // MaxClaims of them
)

// New returns a Verifier, or an error that names every faulty option.
func New(o Options) (*Verifier, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Keys == nil {
		fault("Keys is nil, want a source of keys")
	}
	if err := CheckAlgorithms(o.Algorithms); err != nil {
		fault("Algorithms %w", err)
	}
	if o.Issuer == "" {
		fault("Issuer is empty, want the iss of your tokens, or %q for any", Any)
	}
	if len(o.Audiences) == 0 || slices.Contains(o.Audiences, "") {
		fault("Audiences is %q, want the names of this API in aud, or %q for any", o.Audiences, Any)
	}
	if o.Leeway < 0 || maxLeeway < o.Leeway {
		fault("Leeway is %v, want 0 to %v", o.Leeway, maxLeeway)
	}
	v := &Verifier{
		keys: o.Keys, algorithms: o.Algorithms, issuer: o.Issuer, audiences: o.Audiences,
		leeway: o.Leeway, noExpiry: o.WithoutExpiry, now: o.Now,
		paths: []path{{"iss"}, {"aud"}, {"exp"}, {"nbf"}, {"iat"}},
	}
	for _, t := range o.Types {
		v.types = append(v.types, plainType(t))
	}
	if o.Subject == "" {
		o.Subject = "sub"
	}
	for _, claim := range [][2]string{{"Subject", o.Subject}, {"Project", o.Project}, {"Tier", o.Tier}} {
		p, err := parsePath(claim[1])
		if err != nil {
			fault("%s %w", claim[0], err)
		}
		v.paths = append(v.paths, p)
	}
	if err := CheckClaims(o.Claims); err != nil {
		fault("Claims %w", err)
	}
	v.paths = append(v.paths, path{"cnf", "jkt"})
	for _, claim := range o.Claims {
		p, _ := parsePath(claim)
		v.paths = append(v.paths, p)
	}
	v.others = slices.Clone(o.Claims)
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	if v.now == nil {
		v.now = time.Now
	}
	v.readers.New = func() any { return &reader{scanner: newScanner()} }
	return v, nil
}

// CheckClaims says what is wrong with a list of claims that rules count by, or nothing.
func CheckClaims(claims []string) error {
	if len(claims) > MaxClaims {
		return fmt.Errorf("are %d, want %d at most", len(claims), MaxClaims)
	}
	for i, claim := range claims {
		if _, err := parsePath(claim); err != nil {
			return err
		}
		if claim == "" || slices.Contains(claims[:i], claim) {
			return fmt.Errorf("name %q, want each claim once, and none empty", claim)
		}
		if err := new(policy.Rule).SetSubject("claim:" + claim); err != nil {
			return fmt.Errorf("name %q, which no rule can: want printable ASCII without spaces, 64 bytes at most",
				claim)
		}
	}
	return nil
}

// CheckPath says what is wrong with the name of a claim, or nothing.
func CheckPath(text string) error {
	_, err := parsePath(text)
	return err
}

// parsePath reads a.b, where a part that holds dots stands in quotes. Empty is
// the path to nothing.
func parsePath(text string) (p path, err error) {
	for rest := text; rest != ""; {
		var name string
		var more bool
		if rest[0] == '"' {
			var closed bool
			if name, rest, closed = strings.Cut(rest[1:], `"`); !closed || rest != "" && rest[0] != '.' {
				return nil, badPath(text)
			}
			more = rest != ""
			rest = strings.TrimPrefix(rest, ".")
		} else {
			name, rest, more = strings.Cut(rest, ".")
		}
		if name == "" || more && rest == "" {
			return nil, badPath(text)
		}
		p = append(p, name)
	}
	if len(p) >= maxDepth {
		return nil, badPath(text)
	}
	return p, nil
}

func badPath(text string) error {
	return fmt.Errorf(`is %q, want the name of a claim: sub, realm.id, or "https://example.com/tenant" in quotes`, text)
}

// reader is the working memory of one verification.
type reader struct {
	*scanner
	header [maxHeader]byte
	body   [identity.MaxTokenLength]byte
}

// sketch is a token that was taken apart, and not yet believed.
type sketch struct {
	alg     string
	header  []byte
	payload []byte
	keys    []*Key // that may have signed it
}

// Verify returns whose the token is. The error is a *Refusal.
func (v *Verifier) Verify(_ context.Context, token string) (identity.Claims, error) {
	r := v.readers.Get().(*reader)
	defer v.readers.Put(r)
	s, err := v.take(r, token)
	if err != nil {
		return identity.Claims{}, err
	}
	claims, err := v.claims(r, s.payload)
	if err != nil {
		return identity.Claims{}, err
	}
	if !s.signed(token) {
		return identity.Claims{}, errForged
	}
	return claims, nil
}

// take takes the token apart and finds the keys that may have signed it.
func (v *Verifier) take(r *reader, token string) (s sketch, err error) {
	if len(token) > identity.MaxTokenLength {
		return s, errLong
	}
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, three := strings.Cut(rest, ".")
	if !three || !base64url(signature) || header == "" {
		return s, errForm
	}
	if len(header) > maxHeader {
		return s, errHeadLong
	}
	var ok [2]bool
	s.header, ok[0] = decode(r.header[:0], header)
	s.payload, ok[1] = decode(r.body[:0], payload)
	if !ok[0] || !ok[1] {
		return s, errForm
	}
	kid, named, err := v.head(r, &s)
	if err != nil {
		return s, err
	}
	set := v.keys.Set()
	if set == nil {
		return s, errNoKeys
	}
	if s.keys, err = set.find(s.alg, kid, named); err != nil && named {
		v.keys.Missing()
	}
	return s, err
}

// head reads the header.
func (v *Verifier) head(r *reader, s *sketch) (kid []byte, named bool, err error) {
	switch err := r.read(s.header, headPaths); err {
	case nil:
	case errDuplicate:
		return nil, false, errHeadTwin
	default:
		return nil, false, errHead
	}
	f := &r.found
	for i := headOwn; i < len(headPaths); i++ {
		if f[i].kind != absent {
			return nil, false, errOwnKey
		}
	}
	switch {
	case f[headCrit].kind != absent, f[headB64].kind != absent:
		return nil, false, errCrit
	case f[headEnc].kind != absent, f[headZip].kind != absent:
		return nil, false, errEncoded
	case len(v.types) > 0 && !v.typed(f[headTyp]):
		return nil, false, errType
	}
	for _, alg := range v.algorithms {
		if f[headAlg].is(alg) {
			s.alg = alg
		}
	}
	if s.alg == "" {
		return nil, false, errAlg
	}
	if f[headKid].kind == absent {
		return nil, false, nil
	}
	kid = f[headKid].unescaped()
	if f[headKid].kind != text || len(kid) == 0 || len(kid) > maxName {
		return nil, false, errKid
	}
	return kid, true, nil
}

func (v *Verifier) typed(typ value) bool {
	return typ.kind == text && len(typ.raw) <= maxName && slices.Contains(v.types, plainType(string(typ.unescaped())))
}

// plainType is a typ as it is compared (RFC 7515 section 4.1.9).
func plainType(t string) string { return strings.TrimPrefix(strings.ToLower(t), "application/") }

// claims reads the claims of a token whose signature is not checked yet.
func (v *Verifier) claims(r *reader, payload []byte) (c identity.Claims, err error) {
	switch err := r.read(payload, v.paths); err {
	case nil:
	case errDuplicate:
		return c, errBodyTwin
	case errTooMany:
		return c, errBodyMany
	default:
		return c, errBody
	}
	f := &r.found
	if v.issuer != Any && !f[claimIss].is(v.issuer) {
		return c, errIss
	}
	if !slices.Contains(v.audiences, Any) && !f[claimAud].holds(v.audiences) {
		return c, errAud
	}
	if c.Until, err = v.until(f); err != nil {
		return c, err
	}
	var ok [3]bool
	c.Subject, ok[0] = name(f[claimSub])
	c.Project, ok[1] = name(f[claimProject])
	c.Tier, ok[2] = name(f[claimTier])
	switch {
	case !ok[0] || c.Subject == "":
		return c, errSub
	case !ok[1]:
		return c, errProject
	case !ok[2]:
		return c, errTier
	}
	if c.Key, ok[0] = thumbprint(f[claimBound]); !ok[0] {
		return c, errBound
	}
	for i, claim := range v.others {
		if s, ok := scalar(f[claimOther+i]); ok {
			c.Other = append(c.Other, identity.Claim{Name: claim, Value: s})
		}
	}
	return c, nil
}

// thumbprint reads the key that a token is bound to (RFC 9449 section 6.1), if it is.
func thumbprint(v value) (string, bool) {
	if v.kind == absent {
		return "", true
	}
	s, ok := name(v)
	const digits = 43 // of 32 bytes
	return s, ok && len(s) == digits && base64url(s)
}

// scalar reads a claim that rules count by, as text.
func scalar(v value) (string, bool) {
	switch v.kind {
	case text:
		s, ok := name(v)
		return s, ok && s != ""
	case number:
		const digits = 15 // all of which a double keeps, so that every issuer writes the same number
		whole := bytes.TrimPrefix(v.raw, []byte("-"))
		return string(v.raw), len(whole) <= digits && !bytes.ContainsAny(whole, ".eE") && string(v.raw) != "-0"
	case literal:
		return string(v.raw), string(v.raw) != "null"
	}
	return "", false
}

// until checks the times of a token and returns when it ends.
func (v *Verifier) until(f *[maxWanted]value) (time.Time, error) {
	now := v.now()
	var times [3]time.Time
	for i, claim := range []int{claimExp, claimNbf, claimIat} {
		if f[claim].kind == absent {
			continue
		}
		seconds, ok := f[claim].seconds()
		if !ok {
			return time.Time{}, errTimes
		}
		times[i] = time.Unix(seconds, 0)
	}
	exp, nbf, iat := times[0], times[1], times[2]
	switch soon := now.Add(v.leeway); {
	case exp.IsZero() && !v.noExpiry:
		return exp, errNoExp
	case !exp.IsZero() && !now.Add(-v.leeway).Before(exp):
		return exp, errExp
	case soon.Before(nbf):
		return exp, errNbf
	case soon.Before(iat):
		return exp, errIat
	case exp.IsZero():
		return now.Add(withoutExpiry), nil
	}
	return exp, nil
}

// name reads a claim that a principal is made of. It is empty if the claim is
// absent, and copied, so that it keeps nothing of the token alive.
func name(v value) (string, bool) {
	if v.kind == absent {
		return "", true
	}
	if v.kind != text {
		return "", false
	}
	b := v.unescaped()
	if len(b) == 0 || len(b) > maxName {
		return "", false
	}
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			return "", false
		}
	}
	return string(b), true
}

// signed reports whether one of the keys made the signature. go-jose reads the
// token anew, and must find the same payload in it.
func (s *sketch) signed(token string) bool {
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(s.alg)})
	if err != nil {
		return false
	}
	if hash, pss := pssHashes[s.alg]; pss {
		return bytes.Equal(parsed.UnsafePayloadWithoutVerification(), s.payload) &&
			s.signedPSS(hash, token, parsed.Signatures[0].Signature)
	}
	for _, key := range s.keys {
		if payload, err := parsed.Verify(key.key); err == nil && bytes.Equal(payload, s.payload) {
			return true
		}
	}
	return false
}

var pssHashes = map[string]crypto.Hash{"PS256": crypto.SHA256, "PS384": crypto.SHA384, "PS512": crypto.SHA512}

// signedPSS reports whether one of the keys made an RSASSA-PSS signature with a
// salt as long as the hash (RFC 7518 section 3.5). go-jose takes any length.
func (s *sketch) signedPSS(hash crypto.Hash, token string, signature []byte) bool {
	h := hash.New()
	_, _ = io.WriteString(h, token[:strings.LastIndexByte(token, '.')])
	digest := h.Sum(nil)
	for _, key := range s.keys {
		public, ok := key.key.(*rsa.PublicKey)
		if ok && rsa.VerifyPSS(public, hash, digest, signature,
			&rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil {
			return true
		}
	}
	return false
}

// decode appends what s stands for in base64url without padding.
func decode(dst []byte, s string) ([]byte, bool) {
	if !base64url(s) {
		return nil, false
	}
	b, err := base64.RawURLEncoding.AppendDecode(dst, []byte(s))
	return b, err == nil
}

// base64url reports whether s is the one spelling of some bytes. The decoders,
// go-jose's too, would skip line ends and ignore bits behind the last byte.
func base64url(s string) bool {
	for i := range len(s) {
		if digits[s[i]] == 0 {
			return false
		}
	}
	switch len(s) % 4 {
	case 1:
		return false
	case 2:
		return (digits[s[len(s)-1]]-1)&0b1111 == 0
	case 3:
		return (digits[s[len(s)-1]]-1)&0b11 == 0
	}
	return true
}

// digits are the values of base64url's characters, plus 1.
var digits = func() (value [256]byte) {
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		value[c] = byte(i) + 1
	}
	return value
}()
