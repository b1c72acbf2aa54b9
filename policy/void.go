package policy

import (
	"fmt"
	"math/bits"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// reaches reports whether a request to an endpoint can resolve to a rule.
func (c *review) reaches(ep endpoint.ID, r *row) bool {
	s := c.set
	lasting := func(n uint32, w who) bool {
		id, ok := s.of(s.group(n, w), r.subject)
		return ok && s.extras[s.rows[id].extra].expires == 0 && s.rows[id].mode == Enforce
	}
	own := uint32(ep)
	switch r.endpoint {
	case rowAll:
		return true
	case rowUnknown:
		return !lasting(own, 0) && !lasting(rowDefault, 0)
	case rowDefault:
		if lasting(own, 0) || r.who != 0 && lasting(own, r.who) {
			return false
		}
		if r.who == 0 || r.who.isTier() {
			return true
		}
		tier := s.byProject[r.who.number()].tier
		return tier == 0 || !lasting(own, ofTier(tier))
	}
	return r.endpoint == own
}

// checkVoid reports a rule that can never be the one that denies, because
// every request it counts is counted against a tighter rule as well.
func (c *review) checkVoid(i int, id RuleID, all overrides) {
	s := c.set
	r := &s.rows[id]
	if r.endpoint == rowAll || r.endpoint == rowUnknown || !s.live(r, c.wall) {
		return
	}
	if terms := s.PriorityOf(id); terms != nil && terms.Class != Unclassed {
		return // it says of which class requests are
	}
	also := c.alsoCount(id, all)
	for _, other := range also {
		q := &s.rows[other]
		if c.voids(q, r) {
			if c.full("void") {
				return
			}
			rule := s.Rule(other)
			c.rule(Warning, i, "void", "limit", limitText(s.limits[r.limit]),
				fmt.Sprintf("less than the %s of (%s), which makes this rule void", limitText(s.limits[q.limit]),
					describe(&rule)))
			return
		}
	}
	if r.who != 0 {
		c.checkGuard(i, r, also)
	}
}

// checkGuard reports a rule of a project or tier that a tighter one holds back:
// after the guard's burst is spent, the guard's rate is all there is.
func (c *review) checkGuard(i int, r *row, also []RuleID) {
	s := c.set
	for _, other := range also {
		q := &s.rows[other]
		if q.mode == Enforce && r.mode == Enforce && s.extras[q.extra].expires == 0 &&
			faster(s.limits[r.limit], s.limits[q.limit]) {
			if c.full("above_guard") {
				return
			}
			rule := s.Rule(other)
			c.rule(Warning, i, "above_guard", "limit", limitText(s.limits[r.limit]),
				fmt.Sprintf("no faster than the %s of (%s), which counts the same requests",
					limitText(s.limits[q.limit]), describe(&rule)))
			return
		}
	}
}

// alsoCount lists rules that count every request that a rule counts, in buckets at
// least as wide. Where that depends on the tenant, it leaves them out, and so
// where a temporary rule stands in their place.
func (c *review) alsoCount(of RuleID, all overrides) []RuleID {
	s, wall := c.set, c.wall
	r := &s.rows[of]
	var found []RuleID
	add := func(g group, subject Subject) bool {
		id, ok := s.of(g, subject)
		if ok && s.isInForce(id, wall) && s.countsAll(&s.rows[id], r) {
			found = append(found, id)
		}
		return ok
	}
	for _, subject := range wider[r.subject] {
		bit := subjectSet(1) << subject
		if r.who == 0 && (all.projects|all.tiers)&bit != 0 || r.who.isTier() && all.projects&bit != 0 {
			continue
		}
		if r.who != 0 && add(s.group(rowAll, r.who), subject) {
			continue
		}
		if all.tiers&bit == 0 {
			add(s.fallback.all, subject)
		}
	}
	if r.endpoint == rowDefault {
		return found // an endpoint may have rules of its own
	}
	own, group := s.byEndpoint[r.endpoint], s.groupOf(of)
	for _, subject := range wider[r.subject] {
		bit := subjectSet(1) << subject
		if r.who == 0 && (own.projects|own.tiers)&bit != 0 || r.who.isTier() && own.projects&bit != 0 {
			continue
		}
		if subject != r.subject {
			add(group, subject)
		}
	}
	return found
}

// countsAll reports whether q counts every answer that r counts.
func (s *Set) countsAll(q, r *row) bool {
	own := s.extras[q.extra].answers
	return own == 0 || own == s.extras[r.extra].answers
}

// wider lists, by subject, the subjects whose buckets count every request that
// its bucket counts. Projects and regions are not among them: a request may
// have none.
var wider = [dimensions][]Subject{
	SubjectPrincipal:    {SubjectPrincipal, SubjectEndpoint},
	SubjectIP:           {SubjectIP, SubjectSite, SubjectEndpoint},
	SubjectPrincipalIP:  {SubjectPrincipalIP, SubjectPrincipal, SubjectIP, SubjectSite, SubjectEndpoint},
	SubjectProject:      {SubjectProject, SubjectEndpoint},
	SubjectRegion:       {SubjectRegion, SubjectEndpoint},
	SubjectEndpoint:     {SubjectEndpoint},
	SubjectIdentifier:   {SubjectIdentifier, SubjectEndpoint},
	SubjectIdentifierIP: {SubjectIdentifierIP, SubjectIdentifier, SubjectIP, SubjectSite, SubjectEndpoint},
	SubjectSite:         {SubjectSite, SubjectEndpoint},
	SubjectPath:         {SubjectEndpoint}, // two rules may name two parameters
	SubjectClaim:        {SubjectEndpoint},
}

func init() { // the same of those that count requests, among themselves
	for subject, others := range wider[:subjects] {
		for _, other := range others {
			own := &wider[Subject(subject).Counting(CountsRequests)]
			*own = append(*own, other.Counting(CountsRequests))
		}
	}
}

// voids reports whether a bucket that counts at least the same requests under
// rule q is never fuller than the one under rule r.
func (c *review) voids(q, r *row) bool {
	s := c.set
	a, b := s.limits[q.limit], s.limits[r.limit]
	if !a.Algorithm.Drains() || b.Algorithm != rate.TokenBucket {
		return false // windows end at times of their own, and a queue does more than deny
	}
	return q.mode == Enforce && s.extras[q.extra].expires == 0 && a.Burst <= b.Burst && !faster(a, b)
}

// faster reports whether a gives more tokens per time than b.
func faster(a, b rate.Limit) bool {
	ahi, alo := bits.Mul64(uint64(a.Tokens), uint64(b.Per))
	bhi, blo := bits.Mul64(uint64(b.Tokens), uint64(a.Per))
	return ahi > bhi || ahi == bhi && alo > blo
}
