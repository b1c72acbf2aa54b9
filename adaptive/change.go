package adaptive

import (
	"maps"
	"math"
	"slices"

	"github.com/headgate-io/headgate/rate"
)

// Every is the Endpoint of a Change that is of all endpoints.
const Every = "*"

// Change is a step of what the rates of an endpoint are lowered to. Whoever knows all of them, and when which decision
// was made, can make the same decisions again: see Table.Follow.
type Change struct {
	Endpoint string
	At       int64 // since when decisions go by it
	Since    int64 // since when it counts, for what drains: At or before

	// Own and Shared are the parts that are in force, in 1024ths, for buckets that this process alone takes from and
	// for those that others take from as well. 0 is no step.
	Own, Shared int

	AtOnce int // the same, for limits on how many requests are under way

	// Over says that the rates are what the rules say, as if they had never been lowered.
	Over bool
}

// applyLocked takes a step.
func (e *Endpoint) applyLocked(c Change) {
	var next rate.Lowerings
	if before := e.lowered.Load(); before != nil {
		next = *before
	}
	if c.Own > 0 {
		next.Own, e.m = next.Own.From(c.Since, c.Own), c.Own
	}
	if c.Shared > 0 {
		next.Shared, e.agreed = next.Shared.From(c.Since, c.Shared), c.Shared
	}
	if c.AtOnce > 0 {
		next.AtOnce, e.atOnce = (*rate.Lowered)(nil).From(c.Since, c.AtOnce), c.AtOnce // which has no past
	}
	if e.lowered.Store(&next); c.Over {
		e.lowered.Store(nil)
		e.m, e.atOnce, e.agreed = Whole, Whole, Whole
	}
	e.changed = c.Since
	if e.told == nil {
		return
	}
	if e.keeps {
		c.Shared = 0 // nobody goes by it
	}
	if c.Own > 0 || c.Shared > 0 || c.AtOnce > 0 || c.Over {
		e.told(c)
	}
}

// leave has the rates lowered no more, at now, as the endpoint is none of the table any more. Requests to it may still
// be under way, of whose answers nobody hears.
func (e *Endpoint) leave(now int64) {
	e.tell(e.end(now))
}

func (e *Endpoint) end(now int64) (event Event, told bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lowered.Load() != nil {
		e.applyLocked(Change{Endpoint: e.name, At: now, Over: true})
	}
	told = e.begun
	e.told, e.gone, e.begun = nil, true, false
	return Event{e.name, false, e.statusLocked()}, told
}

// Repeat tells how all endpoints stand (Changed), for who has not heard what was told before, or has heard it of
// another process: that the rates of Every endpoint are what the rules say, and then to what those are lowered that
// are.
func (t *Table) Repeat(now int64) {
	v := t.view.Load()
	if v == nil || t.Changed == nil {
		return
	}
	t.Changed(Change{Endpoint: Every, At: now, Over: true})
	for _, name := range slices.Sorted(maps.Keys(v.byName)) {
		v.byName[name].repeat(now)
	}
}

func (e *Endpoint) repeat(now int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lowered.Load()
	if l == nil || e.told == nil {
		return
	}
	c := Change{Endpoint: e.name, At: now, Since: now, Own: l.Own.Part(), AtOnce: l.AtOnce.Part()}
	if !e.keeps {
		c.Shared = l.Shared.Part()
	}
	e.told(c)
}

// MaxFollowed is at how many endpoints a table follows another.
const MaxFollowed = 1 << 12

// Follow has the rates of an endpoint lowered as another table was told that they are (Changed), in the order in which
// it was, and whatever is seen here: for who makes the decisions of then again. Of more than MaxFollowed endpoints it
// follows the first.
func (t *Table) Follow(c Change) {
	if c.Endpoint == Every {
		if v := t.view.Load(); v != nil {
			for _, e := range v.byName {
				e.follow(c)
			}
		}
		return
	}
	e := t.Named(c.Endpoint)
	if e == nil {
		if e = t.add(c.Endpoint); e == nil {
			return
		}
	}
	e.follow(c)
}

func (e *Endpoint) follow(c Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applyLocked(c)
}

// add adds an endpoint of which nothing is judged; nil if there are too many.
func (t *Table) add(name string) *Endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := &view{byName: map[string]*Endpoint{}}
	if before := t.view.Load(); before != nil {
		if len(before.byName) >= MaxFollowed {
			return nil
		}
		next.byName = maps.Clone(before.byName)
	}
	e := newEndpoint(name, Settings{}, 0, t)
	e.next.Store(math.MaxInt64)
	next.byName[name] = e
	t.view.Store(next)
	return e
}
