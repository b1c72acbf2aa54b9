package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/token"
)

// tokens verifies bearer tokens, and keeps the keys for it fresh.
type tokens struct {
	source   *token.Source
	verifier *token.Verifier
	proofs   *token.Proofs // nil if bound tokens are as good as others
	required bool          // of every token
}

// NewVerifier returns the verifier of a configuration that has one, with its
// keys. Keys in files must be there. Those of an issuer that is away come when
// it is back; until then tokens are ignored, and the error says why.
func NewVerifier(ctx context.Context, t config.Tokens, log *slog.Logger) (_ *token.Verifier, _ *token.Source,
	away, err error) {
	source, err := token.NewSource(token.SourceOptions{
		SecretFiles: t.SecretFiles, KeyFiles: t.KeyFiles, JWKSFile: t.JWKSFile, JWKSURL: t.JWKSURL,
		Base64: t.SecretEncoding == "base64", Algorithms: t.Algorithms, AllowHTTP: t.JWKSAllowHTTP,
		Refresh: t.Refresh, MinRefetch: t.MinRefetch, MaxStale: t.MaxStale, Log: log,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("tokens: %w", err)
	}
	verifier, err := token.New(token.Options{
		Keys: source, Algorithms: t.Algorithms, Issuer: t.Issuer, Audiences: t.Audiences, Types: t.Types,
		Leeway: t.Leeway, WithoutExpiry: !t.RequireExp,
		Subject: t.SubjectClaim, Project: t.ProjectClaim, Tier: t.TierClaim, Claims: t.Claims,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("tokens: %w", err)
	}
	away = source.Start(ctx)
	if away != nil && t.JWKSURL == "" {
		return nil, nil, nil, fmt.Errorf("tokens: %w", away)
	}
	return verifier, source, away, nil
}

// startTokens makes what the configuration says of tokens, if anything. away is why the keys of an issuer could not be
// fetched.
func startTokens(ctx context.Context, c *config.Config, shown *replays, log *slog.Logger) (_ *tokens, away,
	err error) {
	if !c.Tokens.On() {
		return nil, nil, nil
	}
	verifier, source, away, err := NewVerifier(ctx, c.Tokens, log)
	if err != nil {
		return nil, nil, err
	}
	t := &tokens{source: source, verifier: verifier, required: c.Tokens.DPoP == "required"}
	if c.Tokens.DPoP == "off" {
		return t, away, nil
	}
	o := token.ProofOptions{
		Origins: c.Origins, Algorithms: c.Tokens.DPoPAlgorithms, Window: c.Tokens.DPoPWindow, Leeway: c.Tokens.Leeway,
		Shown: shown.proofs(),
	}
	if t.proofs, err = token.NewProofs(o); err != nil {
		return nil, nil, fmt.Errorf("tokens: %w", err)
	}
	return t, away, nil
}

// identify tells a resolver of tokens and certificates.
func (t *tokens) identify(who *identity.Options, c config.Config) {
	if t != nil {
		who.Tokens = t.verifier
		if t.proofs != nil {
			who.Proofs, who.BoundOnly = t.proofs, t.required
		}
		who.TokenCache, who.TokenTTL = c.Tokens.CacheSize, c.Tokens.CacheTTL
	}
	who.TokenFailures, who.TokenFailuresPerSecond = c.Tokens.Failures, c.Tokens.FailuresPerSecond
	if c.TLS.Clients() {
		who.CertificateName, who.CertificateProject = certificateNames[c.TLS.ClientName],
			certificateProjects[c.TLS.ClientProject]
	}
}

var certificateNames = map[string]identity.CertificateName{
	"public_key": identity.CertificateKey, "uri": identity.CertificateURI, "dns": identity.CertificateDNS,
	"email": identity.CertificateEmail, "common_name": identity.CertificateCommon,
}

var certificateProjects = map[string]identity.CertificateProject{
	"none": identity.NoCertificateProject, "organization": identity.CertificateOrganization,
	"organizational_unit": identity.CertificateUnit,
}

// tokenStats is where the metrics of tokens come from, false without tokens.
func (p *parts) tokenStats() (_ metrics.TokenStatus, on bool) {
	t := p.tokens.get()
	if t == nil {
		return metrics.TokenStatus{}, false
	}
	s := t.source.Status()
	return metrics.TokenStatus{Keys: s.Keys, Age: s.Age, Failures: s.Failures, Cache: p.who().TokenCacheStats()}, true
}
