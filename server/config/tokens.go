package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/server/token"
)

// Tokens says which bearer tokens (JSON Web Tokens) are believed; see
// docs/tokens.md. None are, unless one of the first four is given, which say
// where the keys come from.
type Tokens struct {
	// JWKSURL is where the issuer publishes its keys, JWKSFile a file with
	// them. KeyFiles are PEM files with public keys or certificates.
	JWKSURL  string   `yaml:"jwks_url"`
	JWKSFile string   `yaml:"jwks_file"`
	KeyFiles []string `yaml:"key_files"`

	// SecretFiles hold secrets for HS256, HS384 and HS512, as they are (raw,
	// the default of SecretEncoding) or in base64.
	SecretFiles    []string `yaml:"secret_files"`
	SecretEncoding string   `yaml:"secret_encoding"`

	// Algorithms are those that tokens may be signed with. Required.
	Algorithms []string `yaml:"algorithms"`

	// Issuer is what iss must be, Audiences are what aud must hold one of.
	// Required; "*" stands for any.
	Issuer    string   `yaml:"issuer"`
	Audiences []string `yaml:"audiences"`

	// Types are what typ may be. Default any, or none.
	Types []string `yaml:"types"`

	// Leeway is how far the issuer's clock may be off. Default 30s.
	Leeway time.Duration `yaml:"leeway"`

	// RequireExp refuses tokens without exp. Default true.
	RequireExp bool `yaml:"require_exp"`

	// The claims a principal is made of: sub by default, the others none.
	SubjectClaim string `yaml:"subject_claim"`
	ProjectClaim string `yaml:"project_claim"`
	TierClaim    string `yaml:"tier_claim"`

	// Claims are further claims that rules may count by (subject: claim:org), at
	// most 8. Default none.
	Claims []string `yaml:"claims"`

	// DPoP says what becomes of tokens that are bound to a key (RFC 9449): off (default), they are good for whoever
	// has them; bound, they count with a proof of the key alone; required, and others do not count.
	DPoP string `yaml:"dpop"`

	// DPoPAlgorithms are those that proofs may be signed with. Default ES256 and EdDSA. DPoPWindow is how old a
	// proof may be. Default 60s.
	DPoPAlgorithms []string      `yaml:"dpop_algorithms"`
	DPoPWindow     time.Duration `yaml:"dpop_window"`

	// JWKSAllowHTTP lets jwks_url be http:// beyond this machine.
	JWKSAllowHTTP bool `yaml:"jwks_allow_http"`

	// Refresh is how often jwks_url is asked. Default 5m. MinRefetch is the
	// shortest time between two fetches, however many tokens name keys that
	// are not known. Default 30s. MaxStale is how long the last good keys stay
	// in force when they cannot be had. Default 24h.
	Refresh    time.Duration `yaml:"refresh"`
	MinRefetch time.Duration `yaml:"min_refetch"`
	MaxStale   time.Duration `yaml:"max_stale"`

	// CacheSize is how many verified tokens are remembered, -1 for none.
	// Default 8192. CacheTTL is for how long at most. Default 30s.
	CacheSize int           `yaml:"cache_size"`
	CacheTTL  time.Duration `yaml:"cache_ttl"`

	// Failures is how many tokens of an address may fail their signature
	// check before its others are not checked, -1 for no bound. Default 32.
	// FailuresPerSecond is how fast that recovers. Default 4.
	Failures          int `yaml:"failures"`
	FailuresPerSecond int `yaml:"failures_per_second"`
}

// On reports whether tokens are believed.
func (t *Tokens) On() bool {
	return t.JWKSURL != "" || t.JWKSFile != "" || len(t.KeyFiles) > 0 || len(t.SecretFiles) > 0
}

func defaultTokens() Tokens {
	return Tokens{
		SecretEncoding: "raw", Leeway: 30 * time.Second, RequireExp: true, SubjectClaim: "sub",
		Refresh: 5 * time.Minute, MinRefetch: 30 * time.Second, MaxStale: 24 * time.Hour,
		CacheSize: 8192, CacheTTL: 30 * time.Second, Failures: 32, FailuresPerSecond: 4,
		DPoP: "off", DPoPWindow: time.Minute,
	}
}

func (c *checker) tokens(t Tokens) {
	c.oneOf("tokens.dpop", t.DPoP, "off", "bound", "required")
	c.duration("tokens.dpop_window", t.DPoPWindow, time.Second, time.Hour)
	if err := token.CheckProofAlgorithms(t.DPoPAlgorithms); err != nil {
		c.errs = append(c.errs, fmt.Errorf("tokens.dpop_algorithms %w", err))
	}
	if t.Failures != -1 && (t.Failures < 1 || t.Failures > 1<<20) { // of signatures of agents as well
		c.wrong("tokens.failures", fmt.Sprint(t.Failures), fmt.Sprintf("1 to %d, or -1 for no bound", 1<<20))
	}
	c.between("tokens.failures_per_second", int64(t.FailuresPerSecond), 1, 1<<20)
	if !t.On() {
		if t.DPoP != "off" {
			c.wrong("tokens.dpop", t.DPoP, "off, or where the keys of tokens come from: tokens.jwks_url, "+
				"jwks_file, key_files or secret_files")
		}
		if len(t.Algorithms) > 0 || t.Issuer != "" || len(t.Audiences) > 0 {
			c.wrong("tokens", "", "where the keys come from: tokens.jwks_url, jwks_file, key_files or secret_files")
		}
		return
	}
	kinds := 0
	for _, given := range []bool{t.JWKSURL != "", t.JWKSFile != "", len(t.KeyFiles) > 0, len(t.SecretFiles) > 0} {
		if given {
			kinds++
		}
	}
	if kinds > 1 {
		c.wrong("tokens", fmt.Sprint(kinds, " sources of keys"),
			"one of jwks_url, jwks_file, key_files and secret_files")
	}
	fault := func(field string, err error) {
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("tokens.%s %w", field, err))
		}
	}
	if t.JWKSURL != "" {
		if err := token.CheckURL(t.JWKSURL, t.JWKSAllowHTTP); err != nil {
			fault("jwks_url", err)
		}
	}
	c.oneOf("tokens.secret_encoding", t.SecretEncoding, "raw", "base64")
	fault("algorithms", token.CheckAlgorithms(t.Algorithms))
	c.text("tokens.issuer", t.Issuer, `the iss of your tokens, or "*" for any`)
	if len(t.Audiences) == 0 {
		c.wrong("tokens.audiences", "", `the names of this API in aud, or "*" for any`)
	}
	for _, audience := range t.Audiences {
		c.text("tokens.audiences", audience, `names, none of them empty, or "*" for any`)
	}
	c.text("tokens.subject_claim", t.SubjectClaim, "the name of a claim, such as sub")
	fault("subject_claim", token.CheckPath(t.SubjectClaim))
	fault("project_claim", token.CheckPath(t.ProjectClaim))
	fault("tier_claim", token.CheckPath(t.TierClaim))
	fault("claims", token.CheckClaims(t.Claims))
	c.duration("tokens.leeway", t.Leeway, 0, 10*time.Minute)
	c.duration("tokens.refresh", t.Refresh, time.Second, 24*time.Hour)
	c.duration("tokens.min_refetch", t.MinRefetch, time.Second, time.Hour)
	c.duration("tokens.max_stale", t.MaxStale, time.Minute, 30*24*time.Hour)
	c.duration("tokens.cache_ttl", t.CacheTTL, time.Millisecond, 5*time.Minute)
	if t.CacheSize != -1 && (t.CacheSize < 1 || t.CacheSize > 1<<22) {
		c.wrong("tokens.cache_size", fmt.Sprint(t.CacheSize), fmt.Sprintf("1 to %d, or -1 for none", 1<<22))
	}
}

// maxOrigins bounds what a signature may be tried for.
const maxOrigins = 8

func (c *checker) origins(conf *Config) {
	for i, origin := range conf.Origins {
		if _, err := token.Origin(origin); err != nil {
			c.errs = append(c.errs, fmt.Errorf("origins[%d] %w", i, err))
		}
	}
	if len(conf.Origins) > maxOrigins {
		c.wrong("origins", fmt.Sprint(len(conf.Origins), " of them"), fmt.Sprint("at most ", maxOrigins))
	}
	if len(conf.Origins) > 0 {
		return
	}
	const want = "the URLs under which clients know this API, such as https://api.example: "
	if conf.Tokens.DPoP != "off" {
		c.wrong("origins", "", want+"proofs say which one they are for (tokens.dpop)")
	}
	if conf.SignedAgents.On() {
		c.wrong("origins", "", want+"signatures say which one they are for (signed_agents)")
	}
}

// Check names what is wrong with the settings of tokens, a line each. It is a
// part of Config.Complete, for those who need no more of the configuration.
func (t Tokens) Check() error {
	check := checker{}
	check.tokens(t)
	return errors.Join(check.errs...)
}
