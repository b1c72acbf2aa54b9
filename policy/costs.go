package policy

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/headgate-io/headgate/endpoint"
)

// endpointCost is an endpoint that costs more than one token.
type endpointCost struct {
	id   endpoint.ID
	cost int64
}

// readCosts checks the costs and returns those above 1, the highest first.
func (c *review) readCosts() []endpointCost {
	var costs []endpointCost
	for id, cost := range c.o.Costs {
		costs = append(costs, endpointCost{id, cost})
	}
	sort.Slice(costs, func(i, j int) bool {
		a, b := costs[i], costs[j]
		return a.cost > b.cost || a.cost == b.cost && a.id < b.id
	})
	known := 0
	if c.o.Endpoints != nil {
		known = c.o.Endpoints.Len()
	}
	if len(costs) > 0 {
		c.set.costs = slices.Repeat([]int64{1}, 1+known)
	}
	kept := costs[:0]
	for _, e := range costs {
		switch {
		case e.id == endpoint.Unknown || uint64(e.id) > uint64(known):
			c.problems.add(Problem{Code: "costs", Rule: -1, Source: c.o.Settings, Where: "costs",
				Field: "endpoint", Value: number(int64(e.id)),
				Want: fmt.Sprintf("an endpoint of the table, 1 to %d", known)})
		case e.cost < 0:
			c.problems.add(Problem{Code: "costs", Rule: -1, Source: c.o.Settings, Where: "costs",
				Field: c.set.endpointText(uint32(e.id)), Value: number(e.cost), Want: "0 or more"})
		default:
			if c.set.costs[e.id] = e.cost; e.cost > 1 {
				kept = append(kept, e)
			}
		}
	}
	return kept
}

// checkCosts reports a rule that a request could resolve to and never pass,
// because its endpoint costs more than the rule's burst. costs are in
// descending order.
func (c *review) checkCosts(i int, id RuleID, costs []endpointCost) {
	s := c.set
	r := &s.rows[id]
	burst := s.limits[r.limit].Burst
	if _, rest, ok := s.shapes[r.limit].SetAside(c.o.Free, 1); ok && r.scope == Lease && c.o.Shared {
		burst = rest.Burst()
	}
	if len(costs) == 0 || costs[0].cost <= burst || !s.live(r, c.wall) || c.problems.full("cost") {
		return
	}
	for _, e := range costs {
		if e.cost <= burst {
			return
		}
		if c.reaches(e.id, r) {
			field := "burst"
			if !s.limits[r.limit].Algorithm.Drains() {
				field = "limit"
			}
			want := fmt.Sprintf("%d or more, the cost of %s", e.cost, s.endpointText(uint32(e.id)))
			if whole := s.limits[r.limit].Burst; burst < whole {
				want = fmt.Sprintf("%d or more: %s costs %d, and %d %% are what replicas have to themselves",
					beside(c.o.Free, e.cost), s.endpointText(uint32(e.id)), e.cost, c.o.Free)
				burst = whole
			}
			c.rule(Error, i, "cost", field, number(burst), want)
			return
		}
	}
}

// checkParts reports a rule whose burst does not hold the largest of the batches that may meet it.
func (c *review) checkParts(i int, id RuleID, batches []endpoint.ID) {
	s := c.set
	r := &s.rows[id]
	_, what := r.subject.Counts()
	if what == CountsUnderWay || !s.live(r, c.wall) || c.problems.full("batch_above_burst") {
		return
	}
	burst := s.limits[r.limit].Burst
	for _, ep := range batches {
		parts, cost := c.o.Parts[ep], s.Cost(ep)
		if what == CountsRequests {
			cost = min(cost, 1)
		}
		if cost > 0 && cost <= burst && parts > burst/cost && parts <= math.MaxInt64/cost && c.reaches(ep, r) {
			field := "burst"
			if !s.limits[r.limit].Algorithm.Drains() {
				field = "limit"
			}
			c.rule(Note, i, "batch_above_burst", field, number(burst), fmt.Sprintf(
				"%d or more, what %d requests in one of %s cost; or fewer of them in one", parts*cost, parts,
				s.endpointText(uint32(ep))))
			return
		}
	}
}

// checkDearest reports a rule whose burst does not hold the dearest of the requests that may meet it, which say
// themselves what they cost.
func (c *review) checkDearest(i int, id RuleID, priced []endpoint.ID) {
	s := c.set
	r := &s.rows[id]
	if _, what := r.subject.Counts(); what != CountsTokens || !s.live(r, c.wall) ||
		c.problems.full("price_above_burst") {
		return
	}
	burst := s.limits[r.limit].Burst
	for _, ep := range priced {
		if cost := c.o.Dearest[ep]; cost > burst && c.reaches(ep, r) {
			field := "burst"
			if !s.limits[r.limit].Algorithm.Drains() {
				field = "limit"
			}
			c.rule(Note, i, "price_above_burst", field, number(burst), fmt.Sprintf(
				"%d or more, what a request to %s may cost; or less for that", cost, s.endpointText(uint32(ep))))
			return
		}
	}
}

// checkMetered reports a rule that was written for requests, and takes what those of some endpoints have in bytes,
// in tokens of a language model, or by what they ask for.
func (c *review) checkMetered(i int, id RuleID) {
	s := c.set
	r := &s.rows[id]
	_, what := r.subject.Counts()
	if r.endpoint != rowDefault && r.endpoint != rowAll || what != CountsTokens || !s.live(r, c.wall) ||
		c.problems.full("metered_by_others") {
		return
	}
	for _, ep := range c.o.Metered {
		if c.reaches(ep, r) {
			want := "one that counts requests, such as requests:" + c.written(i).Whose() + ": those of " +
				s.endpointText(uint32(ep)) + " cost what is in them"
			if r.endpoint == rowDefault {
				want += "; or a rule of its own for that endpoint"
			}
			c.rule(Note, i, "metered_by_others", "subject", text(c.written(i).SubjectText()), want)
			return
		}
	}
}

// beside is the smallest burst that leaves so many tokens beside so many percent
// of it, rounded down.
func beside(percent int, tokens int64) int64 {
	left := int64(100 - percent)
	burst := tokens/left*100 + (tokens%left*100+left-1)/left
	for burst > 1 && burst-1-(burst-1)*int64(percent)/100 >= tokens {
		burst--
	}
	return burst
}
