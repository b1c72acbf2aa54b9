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
