// Package draw shows what a rule admits over time: at once, in the first second, in the long run,
// and after a silence.
//
// A caller that never waits is let loose on a bucket of the rule, in a time of its own: it asks
// without a pause, is silent for a while, and asks again. The bucket is the one that gateways count
// with, so a picture cannot show anything else than what they do.
//
//	rule ──▶ Of: ask, count ──▶ Picture ──▶ Text for a terminal, SVG for a page, JSON for programs
package draw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// How a picture is divided. What the bucket needs to fill, or a window, is cellsPerUnit cells long,
// so that every rule fills its picture, whether it is for a second or for a month.
const (
	Cells        = 60
	cellsPerUnit = 10
	silentFrom   = 30 // the cell in which the caller stops to ask
	silentTo     = 40 // and that in which it asks again
)

// Picture is what a rule admits. Times are in seconds from the first request on.
type Picture struct {
	Title     string `json:"title"` // of the rule
	Limit     string `json:"limit"` // "5 per 1s, burst 10, for each principal"
	Algorithm string `json:"algorithm"`
	Says      string `json:"says"` // what it comes to, in a sentence

	CellSeconds float64 `json:"cell_seconds"`
	SilentFrom  int     `json:"silent_from"` // the cell in which the caller stops to ask
	SilentTo    int     `json:"silent_to"`   // the cell in which it asks again

	// Passed is how many requests go on to the API in each cell. Left is how many more the bucket
	// has room for, before the first cell and at the end of each.
	Passed []int64 `json:"passed"`
	Left   []int64 `json:"left"`

	AtOnce      int64   `json:"at_once"`      // by a caller who was quiet; under a leaky bucket, those taken in
	FirstSecond int64   `json:"first_second"` // that go on to the API, the end of the second included
	EachSeconds float64 `json:"each_seconds"` // from one to the next in the long run
	Burst       int64   `json:"burst"`        // what the bucket holds
	FullSeconds float64 `json:"full_seconds"` // of silence until an empty bucket is full
	AfterIdle   int64   `json:"after_idle"`   // at once, when the caller asks again in the picture

	rule policy.Rule
}

// errNoLimit is about rules that allow or block.
var errNoLimit = errors.New(
	"the rule gives no limit, want one that does: there is nothing to draw of one that allows or blocks all")

// mostSpan is the longest time that is drawn.
const mostSpan = math.MaxInt64 / 2

// Of draws a rule. A rule without a burst has the one that o gives it. Whom it is for, penalties
// and what answers count do not matter: it is one caller, whose every request counts 1.
func Of(rule policy.Rule, o policy.CompileOptions) (Picture, error) {
	if !rule.Mode.Limits() {
		return Picture{}, errNoLimit
	}
	rule.Per = max(rule.Per, time.Second)
	rule.Burst = o.BurstOf(&rule)
	shape, err := rate.Compile(rate.Limit{Tokens: rule.Limit, Per: rule.Per, Burst: rule.Burst,
		Algorithm: rule.Algorithm.Counts()})
	if err != nil {
		return Picture{}, err
	}
	if !shape.Algorithm.Drains() {
		shape.Phase = 1 // windows begin at multiples of their length
	}
	p := Picture{
		Title: rule.Title(), Limit: about(rule), Algorithm: rule.Algorithm.String(), Burst: rule.Burst,
		SilentFrom: silentFrom, SilentTo: silentTo, rule: rule,
		EachSeconds: rule.Per.Seconds() / float64(rule.Limit),
	}
	unit, ok := unitOf(rule)
	if !ok {
		return Picture{}, fmt.Errorf("%s takes longer than %s to draw, want a limit that comes back sooner", p.Limit,
			span(mostSpan))
	}
	c, err := newCaller(shape, rule.Per)
	if err != nil {
		return Picture{}, err
	}
	if err := p.watch(c, unit/cellsPerUnit); err != nil {
		return Picture{}, err
	}
	if p.FirstSecond, err = firstSecond(shape, rule.Per); err != nil {
		return Picture{}, err
	}
	p.Says = p.sentence()
	return p, nil
}

// firstSecond is how many requests go on in the first second, its end included. What drains is not
// asked for one by one: that is ever so many, and each look that came late would lose some of them.
func firstSecond(shape rate.Shape, per time.Duration) (int64, error) {
	if shape.Algorithm.Drains() {
		back := shape.Drained(time.Second) / shape.Unit
		if shape.Algorithm == rate.LeakyBucket {
			return 1 + back, nil
		}
		return shape.Burst() + back, nil
	}
	c, err := newCaller(shape, per)
	if err != nil {
		return 0, err
	}
	const second = int64(time.Second)
	err = errors.Join(c.ask(0, second, second/4096), c.ask(second, second+1, 1))
	return c.passed, err
}

// unitOf is what takes a sixth of the picture: the time in which an empty bucket fills, in which
// some requests at least pass; or a window.
func unitOf(rule policy.Rule) (time.Duration, bool) {
	unit := float64(rule.Per)
	if rule.Algorithm.Counts().Drains() {
		unit *= max(float64(rule.Burst), 4) / float64(rule.Limit)
	}
	if unit > mostSpan/(Cells/cellsPerUnit) {
		return 0, false
	}
	return max(time.Duration(unit), cellsPerUnit), true
}

// start is when the picture begins, in Unix nanoseconds. Windows are entered when six tenths of one are over, so that
// the picture shows what happens where two of them meet.
func start(shape rate.Shape, per time.Duration) int64 {
	if shape.Algorithm.Drains() {
		return 0
	}
	return int64(per) + int64(per)/10*6
}

// watch lets a caller ask, be silent and ask again, and counts.
func (p *Picture) watch(c *caller, cell time.Duration) error {
	p.CellSeconds = cell.Seconds()
	p.Passed, p.Left = make([]int64, Cells), make([]int64, Cells+1)
	p.Left[0] = p.Burst
	before := int64(0)
	for i := range Cells {
		from, to := int64(i)*int64(cell), int64(i+1)*int64(cell)
		if i < silentFrom || i >= silentTo {
			if i == 0 || i == silentTo {
				n, err := c.takeAll(from)
				if err != nil {
					return err
				}
				if i == 0 {
					p.AtOnce = n
				}
				p.AfterIdle = n
			}
			if i == 0 {
				full, err := c.look(from, 0)
				if err != nil {
					return err
				}
				p.FullSeconds = full.ResetAfter.Seconds()
			}
			if err := c.ask(from, to, int64(cell)/64); err != nil {
				return err
			}
		}
		gone, err := c.gone(to - 1)
		if err != nil {
			return err
		}
		left, err := c.look(to-1, 0)
		if err != nil {
			return err
		}
		p.Passed[i], p.Left[i+1] = gone-before, left.Remaining
		before = gone
	}
	return nil
}

// caller asks for whatever there is, at times that count from start.
type caller struct {
	store  *memory.Store
	take   bucket.Take
	start  int64
	passed int64 // what was admitted so far
	next   int64 // when there is something again, as it was told
}

func newCaller(shape rate.Shape, per time.Duration) (*caller, error) {
	store, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	return &caller{
		store: store,
		take:  bucket.Take{Key: key.Key{Hi: 1, Lo: 1}, Shape: shape},
		start: start(shape, per),
	}, err
}

// ask takes whatever there is from one time until before another, and looks no more often than every step.
func (c *caller) ask(from, to, step int64) error {
	for at := max(from, c.next); at < to; {
		if _, err := c.takeAll(at); err != nil {
			return err
		}
		c.next = max(c.next, at+max(step, 1))
		at = c.next
	}
	return nil
}

// takeAll takes what there is at a time.
func (c *caller) takeAll(at int64) (int64, error) {
	now, err := c.look(at, 0)
	if err != nil {
		return 0, err
	}
	if now.Remaining > 0 {
		take := c.take
		take.Cost = now.Remaining
		var outs [1]bucket.Outcome
		ok, err := c.store.TryConsume(context.Background(), c.start+at, []bucket.Take{take}, outs[:])
		if err != nil || !ok {
			// ours to mend
			return 0, errors.Join(err, fmt.Errorf("a bucket with %d left does not give them", now.Remaining))
		}
		c.passed += now.Remaining
	}
	one, err := c.look(at, 1)
	c.next = at + int64(one.RetryAfter)
	return now.Remaining, err
}

// look is what the bucket says of a cost at a time.
func (c *caller) look(at, cost int64) (bucket.Outcome, error) {
	take := c.take
	take.Cost = cost
	var outs [1]bucket.Outcome
	_, err := c.store.Peek(context.Background(), c.start+at, []bucket.Take{take}, outs[:])
	return outs[0], err
}

// gone is how many requests have gone on to the API by a time. From a leaky bucket one goes on whenever what was owed
// before it has drained, so all wait that are owed but the last one that went.
func (c *caller) gone(at int64) (int64, error) {
	if c.take.Shape.Algorithm != rate.LeakyBucket {
		return c.passed, nil
	}
	now, err := c.look(at, 0)
	return c.passed - max(0, c.take.Shape.Burst()-now.Remaining-1), err
}
