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
	descTLSEnds       = describe("tls_certificate_ends_timestamp_seconds",
		"When the gateway's certificate ends, as Unix time.")
	descTLSFailures = describe("tls_reload_failures_total",
		"Reloads of the files of TLS that failed and left those before in force.")
)

// credentialGauges reads the state of tokens and TLS when the page is asked
// for. What is not in use has no series.
type credentialGauges struct {
	tokens func() (TokenStatus, bool)
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
	if g.tls != nil {
		s := g.tls()
		out.gauge(descTLSEnds, float64(s.Ends.Unix()))
		out.count(descTLSFailures, s.Failures)
	}
}
