package headgate

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Envelope is what all replicas together admit at most from one bucket of a rule,
// as policy.Set.Rule reports it, and how it is shared at this moment. A rule that
// needs a shared store where there is none counts as a local one.
func (l *Limiter) Envelope(r policy.Rule) (bucket.Envelope, bucket.Sharing) {
	sharing := bucket.Sharing{Replicas: 1}
	if s, ok := l.buckets.(Sharer); ok {
		sharing = s.Sharing()
	}
	scope := bucket.Scope(r.Scope)
	if scope.Shared() && l.names == nil {
		scope = bucket.Local
	}
	limit := rate.Limit{Tokens: r.Limit, Per: max(r.Per, time.Second), Burst: r.Burst, Algorithm: rate.Algorithm(r.Algorithm)}
	return sharing.Envelope(limit, scope), sharing
}

// EnvelopeAccount is a bucket.Envelope: in any interval, all replicas together
// admit at most Burst + Excess tokens, and what Tokens per Per give in it. What
// operators give (Reset, Grant) is not counted, and comes on top.
type EnvelopeAccount struct {
	Replicas int           `json:"replicas"`
	Burst    int64         `json:"burst"`
	Tokens   int64         `json:"tokens"`
	Per      time.Duration `json:"per_ns"`
	Excess   int64         `json:"excess"`
}

// Promise is the Envelope of a rule for people, or false where this process is the
// only one and the rule says it all.
func (l *Limiter) Promise(r policy.Rule) (EnvelopeAccount, bool) {
	e, sharing := l.Envelope(r)
	if r.Scope == policy.Local && sharing.Replicas == 1 {
		return EnvelopeAccount{}, false
	}
	return EnvelopeAccount{sharing.Replicas, e.Burst, e.Tokens, e.Per, e.Excess}, true
}
