package policy

import (
	"fmt"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// Followed is an endpoint whose rates are lowered while the API behind is slow or fails (headgate.Options.Adaptive).
type Followed struct {
	Endpoint endpoint.ID
	Floor    int     // the least part of rates that is in force, in 1024ths
	Judged   float64 // from how many answers a second on the API can be judged
}

// KeepsRate says why the rate of a limit stays where those of others at an endpoint are lowered; "" if it does not:
// that of token buckets of one endpoint is lowered. A bucket of all endpoints together is not one endpoint's; who was
// told to wait in a queue was told by its rate; and in scope gossip replicas presume by it what others admit.
func KeepsRate(underWay, everyEndpoint, tokenBucket bool, scope rate.Scope) string {
	switch {
	case underWay:
		return "it limits no rate"
	case everyEndpoint:
		return "its bucket is for all endpoints together"
	case !tokenBucket:
		return "it is no token bucket"
	case scope == rate.Gossip:
		return "its scope is gossip"
	}
	return ""
}

// mostFollowed bounds how often it is looked whether a rule for all endpoints applies at one whose own rules keep their
// rates. What is beyond is taken to be well.
const mostFollowed = 1 << 16

// checkFollowed reports endpoints where nothing is lowered although it is asked for, and rules that at their lowest let
// through too little to see whether the API is well again.
func (c *review) checkFollowed() {
	s := c.set
	of := make(map[uint32]*Followed, len(c.o.Followed))
	for i := range c.o.Followed {
		f := &c.o.Followed[i]
		of[uint32(f.Endpoint)] = f
	}
	idle := make(map[uint32]bool, len(of)) // where nothing was found yet that is lowered
	for ep := range of {
		idle[ep] = true
	}
	for pass := range 2 { // rules of an endpoint, and then those for all
		looked := 0
		for i := range c.rows {
			if g := &c.groups[c.grouped[i]]; g.count == 0 {
				continue
			}
			id := c.placed(i)
			r := &s.rows[id]
			if len(idle) == 0 && pass == 1 || !s.live(r, c.wall) || !c.lowers(r) {
				continue
			}
			if pass == 0 {
				if f := of[r.endpoint]; f != nil {
					delete(idle, r.endpoint)
					c.checkFloor(int(c.indexes[i]), id, f)
				}
				continue
			}
			if r.endpoint != rowDefault {
				continue
			}
			for ep := range idle {
				if looked++; looked > mostFollowed || c.reaches(endpoint.ID(ep), r) {
					delete(idle, ep)
				}
			}
		}
	}
	for i := range c.o.Followed {
		f := &c.o.Followed[i]
		name := s.endpointText(uint32(f.Endpoint))
		switch {
		case f.Floor >= rate.Whole:
			c.found(Problem{Severity: Warning, Code: "unfollowed", Rule: -1, Source: c.o.Settings, Where: "adaptive",
				Field: "floor", Value: "1 of " + text(name),
				Want: "less than 1, or nothing is ever lowered there"}, name)
		case idle[uint32(f.Endpoint)]:
			c.found(Problem{Severity: Warning, Code: "unfollowed", Rule: -1, Source: c.o.Settings, Where: "adaptive",
				Field: "endpoints", Value: text(name),
				Want: "one at which a rule applies whose rate is lowered: a token bucket of one " +
					"endpoint, not in scope gossip; nothing is ever lowered there"}, name)
		}
	}
}

// lowers reports whether the rate of a row is lowered where that is asked for.
func (c *review) lowers(r *row) bool {
	_, what := r.subject.Counts()
	keeps := KeepsRate(what == CountsUnderWay, r.endpoint == rowAll, r.algorithm == TokenBucket, rate.Scope(r.scope))
	return keeps == "" && (r.mode == Enforce || r.mode == Shadow || r.mode == partly) &&
		!(c.o.OneByOne && r.scope.Shared())
}

// checkFloor reports a rule for all callers of an endpoint that at its lowest lets through too little to judge the API
// by: then rates return to what rules say although it may be as slow as it was.
func (c *review) checkFloor(i int, id RuleID, f *Followed) {
	r := &c.set.rows[id]
	subject, what := r.subject.Counts()
	cost := c.set.Cost(f.Endpoint)
	if what == CountsRequests {
		cost = min(cost, 1)
	}
	if subject != SubjectEndpoint || r.who != 0 || r.mode != Enforce || cost == 0 || c.problems.full("unjudged") {
		return
	}
	limit := c.set.limits[r.limit]
	perSecond := float64(limit.Tokens) / limit.Per.Seconds() / float64(cost)
	if least := perSecond * float64(f.Floor) / rate.Whole; least < f.Judged {
		c.rule(Note, i, "unjudged", "limit", number(limit.Tokens), fmt.Sprintf(
			"one that leaves %.3g answers a second at the floor of %s in adaptive, or a higher floor: fewer say "+
				"nothing of the API, and %.3g are left", f.Judged, c.set.endpointText(uint32(f.Endpoint)), least))
	}
}
