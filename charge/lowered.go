package charge

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// loweredAt is by how much the rates at an endpoint were lowered of late.
func (pl *Planner) loweredAt(t *endpoint.Table, m endpoint.Match, now int64) *rate.Lowered {
	if pl.lowered == nil || t == nil || m.Status != endpoint.Known {
		return nil
	}
	return pl.lowered(t, m.ID, now)
}

// lowered is l for rules that go by it: token buckets of one endpoint that this process alone takes from. A bucket of
// all endpoints together is not one endpoint's, one that others take from drains at one rate for all, and who was told
// to wait in a queue was told by its rate.
func lowered(l *rate.Lowered, terms *policy.Terms, level policy.Level, reach bucket.Reach) *rate.Lowered {
	if l == nil || KeepsRate(terms, level, reach) != "" {
		return nil
	}
	return l
}

// KeepsRate says why the rate of a rule is not lowered where those of its endpoint are; "" if it is.
func KeepsRate(terms *policy.Terms, level policy.Level, reach bucket.Reach) string {
	switch {
	case terms.Concurrent:
		return "it limits no rate"
	case level.EveryEndpoint():
		return "its bucket is for all endpoints together"
	case terms.Shape.Algorithm != rate.TokenBucket:
		return "it is no token bucket"
	case reach.Scope() != bucket.Local && reach.Scope() != bucket.Split:
		return "its scope is " + terms.Scope.String()
	}
	return ""
}

// MetLowered reports whether a rule whose rate is lowered refused the request.
func (p *Plan) MetLowered() bool {
	if p.Lowered.Part() == rate.Whole {
		return false
	}
	for i := range p.Takes {
		if t := &p.Takes[i]; t.Lowered != nil && !t.Shadow && !p.Outs[i].Allowed && !p.Outs[i].Unknown {
			return true
		}
	}
	return false
}
