package daemon

import (
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/quota"
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
		next := metrics.Envelope{
			Rule:   rule.Title(),
			Scope:  rule.Scope.String(),
			Burst:  e.Burst,
			Tokens: e.Tokens,
			Per:    e.Per,
			Excess: e.Excess,
		}
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

// envelopes are those of the rules in force, and of the limits that are lent to Envoys.
func (p *parts) envelopes() (list []metrics.Envelope) {
	if set := p.rules.Set(); set != nil {
		list = envelopes(p.limiter, set, time.Now().UnixNano(), metrics.MaxEnvelopes)
	}
	if d := p.descriptors; d != nil {
		list = append(list, lentEnvelopes(d.current.Load(), d.conf.QuotaTTL, metrics.MaxEnvelopes-len(list))...)
	}
	return list
}

// lentEnvelopes is what Envoys that decide by themselves admit under limits, at most most of them. Two limits
// may have one path, since keys and domains may have slashes.
func lentEnvelopes(limits *descriptor.Limits, ttl time.Duration, most int) (list []metrics.Envelope) {
	at := map[string]int{}
	for _, l := range limits.All() {
		if l.Shape == (rate.Shape{}) || l.Shadow {
			continue
		}
		next := metrics.Envelope{
			Rule: l.Path, Scope: "quota", Burst: l.Shape.Burst(), Tokens: int64(l.Requests), Per: l.Period(),
			Excess: quota.Excess(l.Shape, ttl),
		}
		i, known := at[l.Path]
		switch {
		case known:
			list[i] = wider(list[i], next)
		case len(list) < most:
			at[l.Path] = len(list)
			list = append(list, next)
		}
	}
	return list
}
