package identity

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxTokenLength is the longest bearer token that is given to a
// TokenVerifier, in bytes. Longer ones are refused before any work.
const MaxTokenLength = 8 << 10

// Claims is what a verified token says about its holder.
type Claims struct {
	// Subject is the stable name of the holder within Project. Required.
	Subject string
	Project string // the tenant; empty if there are none
	Tier    string // the tenant's tier; empty if the policy says

	// Other are further claims that rules count by, each once; no more than a few.
	Other []Claim

	// Key is the thumbprint of the key that the token is bound to, as its claim cnf.jkt has it (RFC 9449 section 6.1);
	// empty if it is bound to none. See Options.Proofs.
	Key string

	// Until is the time up to which this may be believed without verifying
	// the token again: no later than it expires. It may be kept for a shorter
	// time (see Options.TokenTTL). Zero means not at all.
	Until time.Time
}

// Claim is one claim of a verified token: its name, as rules write it, and its value as text.
type Claim struct{ Name, Value string }

// TokenVerifier verifies bearer tokens. It alone answers for the signature,
// the algorithm, the times, the audience and the issuer: whatever it returns
// without an error is believed. Verify must be safe for concurrent use, and
// must not keep the token. Any error means that the token is not used. The
// token failed, at the price of a signature check, unless the error is one of
// these:
//
//   - ErrTokenUnfit: it was refused for what stands in it, without a check;
//   - ErrTokenExpired: the same, because it says that its time is over;
//   - ErrUnavailable: it could not find out, say because no key was fetched.
//
// Failures are counted for each address group, those of the first two kinds at
// a sixteenth; see Options.TokenFailures.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (Claims, error)
}

// Errors that a TokenVerifier returns, possibly wrapped.
var (
	ErrTokenUnfit   = errors.New("bearer token is not for here")
	ErrTokenExpired = errors.New("bearer token has expired") // genuine or not
	ErrUnavailable  = errors.New("bearer tokens cannot be verified at present")
)

// refusal turns a verifier's error into why the token is not used.
func refusal(err error) Rejection {
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return LookupFailed
	case errors.Is(err, ErrTokenExpired):
		return TokenExpired
	case errors.Is(err, ErrTokenUnfit):
		return TokenUnfit
	}
	return TokenRefused
}

// isToken reports whether s is a b64token (RFC 6750 §2.1), so that neither
// garbage nor a list of tokens reaches a verifier.
func isToken(s string) bool {
	// One look in a table for each byte: forged tokens are as long as the
	// longest that is read.
	for s != "" && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	for i := range len(s) {
		if !b64TokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

var b64TokenByte = func() (in [256]bool) {
	for c := range in {
		in[c] = alphanumeric(byte(c))
	}
	for _, c := range "-._~+/" {
		in[c] = true
	}
	return in
}()

func checkTokens(o Options) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.TokenCache < -1 || maxTokenCache < o.TokenCache {
		fault("TokenCache is %d, want 1 to %d, 0 for %d, or -1 for none", o.TokenCache, maxTokenCache,
			defaultTokenCache)
	}
	if o.TokenTTL < 0 || maxTokenTTL < o.TokenTTL {
		fault("TokenTTL is %v, want up to %v, or 0 for %v", o.TokenTTL, maxTokenTTL, defaultTokenTTL)
	}
	if o.TokenFailures < -1 || maxTokenFailures < o.TokenFailures {
		fault("TokenFailures is %d, want 1 to %d, 0 for %d, or -1 for no bound", o.TokenFailures, maxTokenFailures,
			defaultTokenFailures)
	}
	if o.TokenFailuresPerSecond < 0 || maxTokenFailures < o.TokenFailuresPerSecond {
		fault("TokenFailuresPerSecond is %d, want 1 to %d, or 0 for %d", o.TokenFailuresPerSecond, maxTokenFailures,
			defaultTokenFailuresPerSecond)
	}
	if o.Proofs != nil && o.Tokens == nil || o.BoundOnly && o.Proofs == nil {
		fault("Tokens or Proofs is nil, want both: proofs are about tokens")
	}
	if o.CertificateName >= certificateNames {
		fault("CertificateName is %v, want one of the constants", o.CertificateName)
	}
	if o.CertificateProject >= certificateProjects {
		fault("CertificateProject is %v, want one of the constants", o.CertificateProject)
	}
	return faults
}

// prepareTokens makes what tokens, certificates and signatures need, after checkTokens.
func (r *Resolver) prepareTokens(o Options) (err error) {
	if o.CertificateName != NoCertificateName {
		r.certificates = newCertificateReader(o.CertificateName, o.CertificateProject)
	}
	now := r.now()
	counts := func(on bool) *failures {
		if !on || o.TokenFailures < 0 {
			return nil
		}
		return newFailures(orDefault(o.TokenFailures, defaultTokenFailures),
			orDefault(o.TokenFailuresPerSecond, defaultTokenFailuresPerSecond), r.nat64, now)
	}
	r.agents, r.unsigned = o.Agents, counts(o.Agents != nil)
	if o.Tokens == nil {
		return nil
	}
	r.failures, r.unproven = counts(true), counts(o.Proofs != nil)
	r.proofs, r.boundOnly = o.Proofs, o.BoundOnly
	if o.TokenCache >= 0 {
		r.cache, err = newTokenCache(orDefault(o.TokenCache, defaultTokenCache),
			orDefault(o.TokenTTL, defaultTokenTTL), now)
	}
	return err
}

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// TokenCacheStats returns the state of the cache of verified tokens. It looks
// at every place of it.
func (r *Resolver) TokenCacheStats() TokenCacheStats {
	if r.cache == nil {
		return TokenCacheStats{}
	}
	return r.cache.stats(r.now())
}

func (r *Resolver) useToken(ctx context.Context, text string, e *Evidence, p *Principal) Rejection {
	if len(text) > MaxTokenLength {
		return TokenTooLong
	}
	now := r.now()
	var sum tokenSum
	if r.cache != nil {
		var claims *Claims
		// What is not the text of a token was never put there.
		if claims, sum = r.cache.find(text, now); claims != nil {
			p.use(claims)
			if len(claims.Other) > 0 {
				p.claims = &claims.Other
			}
			return r.prove(e, text, claims, p)
		}
	}
	if !isToken(text) {
		return TokenMalformed
	}
	if r.failures != nil && r.failures.spent(p.Prefix, now) {
		return TokenFlood
	}
	claims, err := r.tokens.Verify(ctx, text)
	if err == nil && claims.Subject == "" { // as an ID it would be shared by all such tokens
		err = errNoSubject
	}
	if err != nil {
		why := refusal(err)
		if r.failures != nil && why != LookupFailed {
			r.failures.charge(p.Prefix, why != TokenRefused, now)
		}
		return why
	}
	if r.cache != nil {
		r.cache.put(sum, claims, now)
	}
	p.use(&claims)
	if len(claims.Other) > 0 {
		other := claims.Other // claims itself would be on the heap for forged tokens too
		p.claims = &other
	}
	if r.proofs == nil {
		return NotRejected
	}
	return r.prove(e, text, &Claims{Subject: claims.Subject, Project: claims.Project, Key: claims.Key}, p)
}

var errNoSubject = errors.New("bearer token without a subject")

func (p *Principal) use(c *Claims) {
	p.Kind, p.ID, p.Project, p.Tier = Token, c.Subject, c.Project, c.Tier
}
