package policy

import (
	"math/bits"
	"slices"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// A caller whose key or token names its tier may name another with its next
// request, and both in turn while two tokens are valid. Nobody knows of a moment
// at which it moved. So its buckets are a ladder: a request in one tier is
// counted by the rule of that tier, and has to have room as well in the buckets
// of all tiers whose rule is larger, in rate and in burst.
//
//	free: 1 per second, burst 10     gold: 10 per second, burst 30
//
//	tier  takes  bucket of free   bucket of gold
//	free     10  10 of 10 owed    10 of 30 owed
//	gold     20  10 of 10         30 of 30         the larger burst, and not both
//	free      0  10 of 10         30 of 30         though free's own fills
//
// Whatever is named in whatever order, the bucket of the largest counts all of
// it, so all tiers together grant what the largest of them does. Who stays in
// one tier notices nothing: what its own bucket admits fits in a larger one.

// LargerTiers appends the guards of the rules that apply to a request of a caller
// whose credential says its tier. Rules have none
//
//   - whose bucket is not one caller's or project's alone;
//   - that hold for the project in every tier;
//   - that do not count by token bucket, or whose larger rules do not, or count
//     elsewhere (Terms.Scope).
//
// Of more than eight tiers with rules, the eight with the most count.
func (s *Set) LargerTiers(dst []Guard, now int64, m endpoint.Match, project string, applied []Applied,
	chooser Chooser) []Guard {
	if len(s.namedTiers) == 0 || m.Status != endpoint.Known {
		return dst
	}
	p := s.projects.find(project)
	for i, a := range applied {
		r := &s.rows[a.Rule]
		if a.Shadow || a.Level == LevelFallback || !ofOneProject(r.subject) || a.Level == LevelEndpointProject ||
			a.Level == LevelAllProject {
			continue
		}
		for _, tier := range s.namedTiers {
			for after := 0; ; after++ {
				id, ok := s.ruling(now, m, p, tier, r.subject, a.Level.EveryEndpoint(), chooser, after)
				if !ok {
					break
				}
				q := &s.rows[id]
				if q.id != r.id && s.above(q, r) && !guarded(dst, i, q.id) {
					more := &s.extras[q.extra]
					dst = append(dst, Guard{
						Of:     i,
						ID:     q.id,
						Rule:   id,
						Shape:  s.shapes[q.limit],
						Since:  more.since,
						Before: more.before,
						Larger: true,
					})
				}
				if chooser != nil || q.mode == Enforce { // otherwise it may be the next one, for who is not chosen
					break
				}
			}
		}
	}
	return dst
}

// guarded reports whether one of the guards of what applies is the bucket of a
// rule. They are too large to be copied for that.
func guarded(by []Guard, of int, rule uint64) bool {
	for i := range by {
		if by[i].Of == of && by[i].ID == rule {
			return true
		}
	}
	return false
}

// above reports whether whatever r admits fits in a bucket of q.
func (s *Set) above(q, r *row) bool {
	a, b := &s.shapes[q.limit], &s.shapes[r.limit]
	return a.Algorithm == rate.TokenBucket && b.Algorithm == rate.TokenBucket && q.scope == r.scope &&
		s.limits[q.limit].Burst >= s.limits[r.limit].Burst && !slower(a, b)
}

// slower compares two rates, without a division.
func slower(a, b *rate.Shape) bool {
	// a.Drain/(a.Unit*a.Tick) < b.Drain/(b.Unit*b.Tick). Drains are below 2^33,
	// ticks below 2^20, and units below 2^63: products of three need 116 bits.
	hi, lo := bits.Mul64(uint64(a.Drain)*uint64(b.Tick), uint64(b.Unit))
	hi2, lo2 := bits.Mul64(uint64(b.Drain)*uint64(a.Tick), uint64(a.Unit))
	return hi < hi2 || hi == hi2 && lo < lo2
}

// readNamedTiers finds the tiers that callers may name: none (0), and those with
// rules.
func (c *compiler) readNamedTiers() {
	rules := make([]uint32, len(c.set.byTier))
	for i := range c.set.rows {
		if w := c.set.rows[i].who; w.isTier() {
			rules[w.number()]++
		}
	}
	for n, count := range rules {
		if count > 0 {
			c.set.namedTiers = append(c.set.namedTiers, uint32(n))
		}
	}
	if len(c.set.namedTiers) == 0 {
		return
	}
	if len(c.set.namedTiers) > mostTiers {
		slices.SortStableFunc(c.set.namedTiers, func(a, b uint32) int { return int(rules[b]) - int(rules[a]) })
		c.set.namedTiers = slices.Clip(c.set.namedTiers[:mostTiers])
	}
	c.set.namedTiers = append(c.set.namedTiers, 0)
}
