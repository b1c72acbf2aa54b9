package metrics

import (
	"time"

	"github.com/headgate-io/headgate/identity"
)

// TokenStatus is the state of the verification of bearer tokens.
type TokenStatus struct {
	Keys     int
	Age      time.Duration // since the keys were last known to be current
	Failures uint64        // attempts to read them that failed
	Cache    identity.TokenCacheStats
}

// AgentStatus is the state of the keys of an agent that signs its requests.
type AgentStatus struct {
	Agent    string
	Keys     int
	Age      time.Duration // since they were last known to be current
	Failures uint64        // attempts to read them that failed
}

// TLSStatus is the state of the gateway's TLS.
type TLSStatus struct {
	Ends     time.Time // of the certificate
	Failures uint64    // reloads that failed
}

var (
	descTokenKeys = describe("token_keys", "Keys that bearer tokens are verified with.")
	descTokenAge  = describe("token_keys_age_seconds",
		"Time since the keys of bearer tokens were last known to be current.")
	descTokenFailures = describe("token_key_failures_total", "Attempts to read the keys of bearer tokens that failed.")
	descCacheEntries  = describe("token_cache_entries", "Verified tokens that are remembered.")
	descCacheCapacity = describe("token_cache_capacity", "Verified tokens that can be remembered.")
	descCacheHits     = describe("token_cache_hits_total", "Tokens that were remembered.")
	descCacheMisses   = describe("token_cache_misses_total", "Tokens that were not.")
	descAgentKeys     = describe("agent_keys", "Keys that an agent's signatures are verified with.", "agent")
	descAgentAge      = describe("agent_keys_age_seconds",
		"Time since the keys of an agent were last known to be current.", "agent")
	descAgentFailures = describe("agent_key_failures_total", "Attempts to read the keys of an agent that failed.",
		"agent")
	descTLSEnds = describe("tls_certificate_ends_timestamp_seconds",
		"When the gateway's certificate ends, as Unix time.")
	descTLSFailures = describe("tls_reload_failures_total",
		"Reloads of the files of TLS that failed and left those before in force.")
)

// credentialGauges reads the state of tokens, signatures and TLS when the page is asked
// for. What is not in use has no series.
type credentialGauges struct {
	tokens func() (TokenStatus, bool)
	agents func() []AgentStatus
	tls    func() TLSStatus
}

func (g *credentialGauges) write(out series) {
	if s, on := g.tokens(); on {
		out.gauge(descTokenKeys, float64(s.Keys))
		out.gauge(descTokenAge, s.Age.Seconds())
		out.count(descTokenFailures, s.Failures)
		out.gauge(descCacheEntries, float64(s.Cache.Entries))
		out.gauge(descCacheCapacity, float64(s.Cache.Capacity))
		out.count(descCacheHits, s.Cache.Hits)
		out.count(descCacheMisses, s.Cache.Misses)
	}
	if g.agents != nil {
		for _, s := range g.agents() {
			out.gauge(descAgentKeys, float64(s.Keys), s.Agent)
			out.gauge(descAgentAge, s.Age.Seconds(), s.Agent)
			out.count(descAgentFailures, s.Failures, s.Agent)
		}
	}
	if g.tls != nil {
		s := g.tls()
		out.gauge(descTLSEnds, float64(s.Ends.Unix()))
		out.count(descTLSFailures, s.Failures)
	}
}
