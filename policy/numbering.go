package policy

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// numbering numbers what many rules have in common, so that a row is small: limits, each compiled
// once, and what few rules have.
type numbering struct {
	*task

	compiled map[rate.Limit]compiledLimit
	extras   map[extra]uint32
	onlys    map[string]uint32

	answerNumbers  map[Answers]uint32
	penaltyNumbers map[Penalty]uint32
	refusalNumbers map[Refusal]uint32

	priorityNumbers map[Priority]uint32

	lastLimit    rate.Limit // looked up last: neighbours often have the same
	lastCompiled compiledLimit
}

type compiledLimit struct {
	index uint32
	err   error
}

// limit compiles a limit, each different one once.
func (n *numbering) limit(r *Rule) (rate.Limit, compiledLimit) {
	l := rate.Limit{Tokens: r.Limit, Per: r.Per, Burst: n.o.BurstOf(r), Algorithm: r.Algorithm.Counts()}
	if _, what := r.Subject.Counts(); what == CountsUnderWay {
		l.Algorithm, l.Burst, l.Per = Concurrency.Counts(), r.Limit, r.Kept()
	}
	if l.Per == 0 {
		l.Per = time.Second
	}
	if l == n.lastLimit {
		return l, n.lastCompiled
	}
	known, ok := n.compiled[l]
	if ok {
		n.lastLimit, n.lastCompiled = l, known
		return l, known
	}
	shape, err := rate.Compile(l)
	known = compiledLimit{index: uint32(len(n.set.shapes)), err: err}
	if err == nil {
		n.set.shapes = append(n.set.shapes, shape)
		n.set.limits = append(n.set.limits, l)
	}
	n.compiled[l] = known
	return l, known
}

// only numbers a Rule.Only.
func (n *numbering) only(s string) uint32 {
	if s == "" {
		return 0
	}
	number, ok := n.onlys[s]
	if !ok {
		number = uint32(len(n.set.onlys))
		n.set.onlys = append(n.set.onlys, s)
		n.onlys[s] = number
	}
	return number
}

// extra numbers what few rules have, each different one once.
func (n *numbering) extra(e extra) uint32 {
	if e == (extra{}) {
		return 0
	}
	number, ok := n.extras[e]
	if !ok {
		number = uint32(len(n.set.extras))
		n.set.extras = append(n.set.extras, e)
		n.extras[e] = number
	}
	return number
}

// BurstOf is the burst of a rule, also of one that gives none: that is BurstPercent
// of its limit, at least 1, or the limit if it counts in windows.
func (o *CompileOptions) BurstOf(r *Rule) int64 {
	switch {
	case r.Burst != 0:
		return r.Burst
	case !r.Algorithm.Counts().Drains():
		return r.Limit
	}
	hi, lo := bits.Mul64(uint64(r.Limit), uint64(max(o.BurstPercent, 100)))
	if hi >= 100 {
		return math.MaxInt64
	}
	burst, _ := bits.Div64(hi, lo, 100)
	return int64(max(1, min(burst, math.MaxInt64)))
}
