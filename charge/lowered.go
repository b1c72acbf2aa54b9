package charge

import (
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// loweredAt is by how much the rates at an endpoint were lowered of late.
func (pl *Planner) loweredAt(t *endpoint.Table, m endpoint.Match, now int64) (l rate.Lowerings) {
	if pl.lowered == nil || t == nil || m.Status != endpoint.Known {
		return l
	}
	return pl.lowered(t, m.ID, now)
}

// lowered is the one of l that a rule goes by; nil for rules that go by none.
func lowered(l rate.Lowerings, terms *policy.Terms, level policy.Level) *rate.Lowered {
	one := l.Own
	if terms.Concurrent {
		if one = l.AtOnce; one == nil || KeepsPlaces(terms, level) != "" {
			return nil
		}
		return one
	}
	if Agreed(terms.Scope) {
		one = l.Shared
	}
	if one == nil || KeepsRate(terms, level) != "" {
		return nil
	}
	return one
}

// Agreed says that the buckets of a rule of a scope go by what all agree on who share them. It does so where there is
// nobody else as well, for who decides a log of several again.
func Agreed(s policy.Scope) bool { return s.Shared() }

// KeepsRate says why the rate of a rule is not lowered where those of its endpoint are; "" if it is.
func KeepsRate(terms *policy.Terms, level policy.Level) string {
	return policy.KeepsRate(terms.Concurrent, level.EveryEndpoint(), terms.Shape.Algorithm == rate.TokenBucket,
		rate.Scope(terms.Scope))
}

// KeepsPlaces says why a limit on how many requests are under way is not lowered where others at its endpoint are; ""
// if it is. What several processes share would need what they agree on, and a set of places to give back.
func KeepsPlaces(terms *policy.Terms, level policy.Level) string {
	switch {
	case level.EveryEndpoint():
		return "its bucket is for all endpoints together"
	case Agreed(terms.Scope):
		return "its places are shared by several gateways"
	}
	return ""
}

// MetLowered reports whether rules refused the request whose rates are lowered, or whose number of requests under way
// is: or would be, if those who share its bucket saw what this process does.
func (p *Plan) MetLowered() (rates, atOnce bool) {
	own, shared, places := p.Lowered.Own.Part() < rate.Whole, p.Lowered.Shared.Part() < rate.Whole,
		p.Lowered.AtOnce.Part() < rate.Whole
	if !own && !shared && !places {
		return false, false
	}
	for i := range p.Takes {
		if t := &p.Takes[i]; t.Lowered != nil && !t.Shadow && !p.Outs[i].Allowed && !p.Outs[i].Unknown {
			if t.Lowered == p.Lowered.AtOnce {
				atOnce = atOnce || t.Part() < rate.Whole
			} else {
				rates = own || shared
			}
		}
	}
	return rates, atOnce
}
