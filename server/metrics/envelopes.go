package metrics

import "time"

// MaxEnvelopes bounds how many rules Options.Envelopes tells of.
const MaxEnvelopes = maxRules

// Envelope is what all replicas together admit at most from one bucket of a rule:
// in any interval Burst + Excess tokens, and what Tokens per Per give in it.
type Envelope struct {
	Rule   string // its title, of which there is one
	Scope  string
	Burst  int64
	Tokens int64
	Per    time.Duration
	Excess int64
}

var (
	descEnvelopeBurst = describe("envelope_burst_tokens", "What all gateways together admit at once from one "+
		"bucket of a rule, at most, besides what operators give to it.", "rule", "scope")
	descEnvelopeRate = describe("envelope_tokens_per_second",
		"What all gateways together admit from one bucket of a rule in the long run, at most.", "rule", "scope")
	descEnvelopeExcess = describe("envelope_excess_tokens",
		"What the scope of a rule may add to burst and rate, once in any interval.", "rule", "scope")
)

// envelopeGauges tells what rules promise over all gateways.
type envelopeGauges struct{ list func() []Envelope }

func (g *envelopeGauges) write(out series) {
	if g.list == nil {
		return
	}
	for _, e := range g.list() {
		out.gauge(descEnvelopeBurst, float64(e.Burst), e.Rule, e.Scope)
		out.gauge(descEnvelopeRate, float64(e.Tokens)/e.Per.Seconds(), e.Rule, e.Scope)
		out.gauge(descEnvelopeExcess, float64(e.Excess), e.Rule, e.Scope)
	}
}
