package daemon

import (
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/metrics"
)

// envelopes is what rules promise over all gateways, at most most of them. Rules of
// projects and tiers are not told: there may be a million, and whose they are is
// no label. Rules with one title and scope are told as one that admits what each
// of them does.
func envelopes(l *headgate.Limiter, set *policy.Set, now int64, most int) (list []metrics.Envelope) {
	type name struct{ title, scope string }
	at := map[name]int{}
	for id := range set.ForEverybody(now) {
		rule := set.Rule(id)
		e, told := inspect.EnvelopeOf(l, rule)
		if !told {
			continue
		}
		next := metrics.Envelope{Rule: rule.Title(), Scope: rule.Scope.String(), Burst: e.Burst, Tokens: e.Tokens, Per: e.Per, Excess: e.Excess}
		i, known := at[name{next.Rule, next.Scope}]
		switch {
		case known:
			list[i] = wider(list[i], next)
		case len(list) < most:
			at[name{next.Rule, next.Scope}] = len(list)
			list = append(list, next)
		}
	}
	return list
}

// wider is an envelope around both.
func wider(a, b metrics.Envelope) metrics.Envelope {
	a.Burst, a.Excess = max(a.Burst, b.Burst), max(a.Excess, b.Excess)
	if float64(b.Tokens)/b.Per.Seconds() > float64(a.Tokens)/a.Per.Seconds() {
		a.Tokens, a.Per = b.Tokens, b.Per
	}
	return a
}

// envelopes is that of the rules in force.
func (p *parts) envelopes() []metrics.Envelope {
	set := p.rules.Set()
	if set == nil {
		return nil
	}
	return envelopes(p.limiter, set, time.Now().UnixNano(), metrics.MaxEnvelopes)
}
