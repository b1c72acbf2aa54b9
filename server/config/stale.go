package config

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// Staleness says what happens to requests while the rules cannot be relied on: nobody confirms
// them, or there is none. See docs/outages.md, "When the rules cannot be confirmed".
type Staleness struct {
	// MaxStale is how long rules may be in force that the database does not confirm. Default 1h; 0 sets no bound.
	MaxStale time.Duration `yaml:"policy_max_stale"`

	// OnStale says what happens to requests then: keep (default) the rules for as long as it takes, limit applies
	// policy_fallback in addition to them, deny refuses every request.
	OnStale string `yaml:"policy_stale"`

	// OnEmpty says what happens to requests while the database has no rule at all: limit (default)
	// applies policy_fallback, deny refuses every request, allow limits nothing.
	OnEmpty string `yaml:"policy_empty"`

	// Fallback is the limit of either, for each caller over all endpoints. Default 100 per 1s, burst 200.
	Fallback FallbackLimit `yaml:"policy_fallback"`
}

// FallbackLimit is a limit for each caller: a verified principal, or else a client address.
type FallbackLimit struct {
	// Limit is how many requests a period allows.
	Limit int64 `yaml:"limit"`

	// Per is the period, in whole seconds.
	Per time.Duration `yaml:"per"`

	// Burst is how many may come at once after a pause.
	Burst int64 `yaml:"burst"`
}

func defaultStaleness() Staleness {
	r := policy.DefaultFallback
	return Staleness{
		MaxStale: time.Hour,
		OnStale:  "keep",
		OnEmpty:  "limit",
		Fallback: FallbackLimit{Limit: r.Limit, Per: r.Per, Burst: r.Burst},
	}
}

// Rule is the fallback as a policy.Cache takes it.
func (f FallbackLimit) Rule() policy.Rule {
	return policy.Rule{Limit: f.Limit, Per: f.Per, Burst: f.Burst}
}

// Fallbacks are the words of OnStale and OnEmpty.
var Fallbacks = map[string]policy.Fallback{
	"keep":  policy.Keep,
	"allow": policy.Keep,
	"limit": policy.Limit,
	"deny":  policy.Deny,
}

func (c *checker) staleness(conf *Config) {
	s := conf.Staleness
	if s.MaxStale != 0 {
		c.duration("policy_max_stale", s.MaxStale, time.Second, 10*365*24*time.Hour)
	}
	c.oneOf("policy_stale", s.OnStale, "keep", "limit", "deny")
	c.oneOf("policy_empty", s.OnEmpty, "allow", "limit", "deny")
	if s.OnStale != "keep" && s.MaxStale != 0 && s.MaxStale < 2*conf.Refresh {
		c.wrong("policy_max_stale", s.MaxStale.String(),
			fmt.Sprintf("twice refresh, which is %v, or more: rules are confirmed no more often", conf.Refresh))
	}
	if s.OnStale != "keep" && s.MaxStale == 0 {
		c.wrong("policy_stale", s.OnStale, "keep, or policy_max_stale above 0: without a bound rules are never stale")
	}
	c.between("policy_fallback.limit", s.Fallback.Limit, 1, 1_000_000_000)
	c.between("policy_fallback.burst", s.Fallback.Burst, 1, 1_000_000_000)
	c.duration("policy_fallback.per", s.Fallback.Per, time.Second, 24*time.Hour)
	if s.Fallback.Per%time.Second != 0 {
		c.wrong("policy_fallback.per", s.Fallback.Per.String(), "whole seconds")
	}
}
