package charge_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// ledger is a store that notes what is charged to which bucket.
type ledger struct {
	*memory.Store
	last    map[key.Key]bucket.Take // as each bucket was named last
	entries map[key.Key][]entry
	moved   map[key.Key]bool // it had another limit, by a reload or as its project moved to another tier
	blurred map[key.Key]bool // it was charged by a clock that stood before the limit that charged it was in force
	windows map[key.Key]bool // it counted in windows: what it owed then may begin to drain later
	misled  string           // who was told a time at which there is no room
	told    int              // how many were told a time
	actual  int64            // tokens that the request came to which is being settled

	operated bool // operators fill buckets and give them tokens, and rules end at a time

	mu     sync.Mutex          // what is under way is renewed while the test goes on
	places map[key.Key][]int64 // guarded by mu: since when each place counts
	latest int64               // guarded by mu: the latest time
	beyond string              // guarded by mu: who took a place where there was none
}

// isPlaces says that a shape is of requests under way.
func isPlaces(sh *rate.Shape) bool {
	return sh.Algorithm == rate.SlidingLog && sh.Tick == int64(placesKept)
}

// takePlace notes that a place was taken, of which so many are in force.
func (l *ledger) takePlace(now, since int64, t *bucket.Take) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = max(l.latest, now) // a clock that is set back frees nobody's place, and takes none that was free
	now = l.latest
	alive := slices.DeleteFunc(l.places[t.Key], func(at int64) bool { return now-at > 2*int64(placesKept) })
	surely := 0
	for _, at := range alive {
		if now-at < int64(placesKept) {
			surely++
		}
	}
	if met := t.Met(); int64(surely) >= met.Capacity {
		l.beyond = fmt.Sprintf("another is let in where %d are under way, and %d may be, of %+v", surely, met.Capacity,
			*t)
	}
	l.places[t.Key] = append(alive, since)
}

// movePlace notes that a place is given back, or counts from now on.
func (l *ledger) movePlace(now int64, c *bucket.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.places[c.Key], c.Charged)
	switch {
	case i < 0:
		l.beyond = fmt.Sprintf("a place of %d is given back or renewed, which nobody has, of %v", c.Charged,
			l.places[c.Key])
	case c.Renew:
		l.places[c.Key][i] = now
	default:
		l.places[c.Key] = slices.Delete(l.places[c.Key], i, i+1)
	}
}

// entry is what a bucket was charged, net of what came back since.
type entry struct {
	at, as  int64 // when it counts, and when whoever charged it says that it was
	units   int64
	room    int64 // what the bucket may hold with it at most; 0 for a correction, which is not bounded
	unit    int64
	refills bool // it fills the bucket

	// of a change of its limit, what it owes at most from then on, in tokens, and what that one drains in a nanosecond
	most, drains float64
}

func (l *ledger) note(now int64, takes []bucket.Take) {
	for i := range takes {
		t := takes[i]
		l.windows[t.Key] = l.windows[t.Key] || !t.Shape.Algorithm.Drains()
		if was, known := l.last[t.Key]; !known || was.Shape != t.Shape || was.Since != t.Since {
			l.moved[t.Key] = l.moved[t.Key] || known
			own, first := rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}, len(l.entries[t.Key])
			for e := &own; e != nil && (e == &own || known && e.Since > was.Since); e = e.Before {
				if e.Shape != (rate.Shape{}) {
					l.entries[t.Key] = slices.Insert(l.entries[t.Key], first, entry{at: l.inOrder(&t, e.Since, false),
						most: tokensOf(&e.Shape), drains: drainsOf(&e.Shape)})
				}
			}
		}
		for past := &t.Before; *past != nil; past = &(*past).Before { // which is memory of the next request
			own := **past
			*past = &own
		}
		l.last[t.Key] = t
	}
}

func tokensOf(sh *rate.Shape) float64 { return float64(sh.Capacity) / float64(sh.Unit) }

func drainsOf(sh *rate.Shape) float64 { return float64(sh.Drain) / float64(sh.Unit) / float64(sh.Tick) }

func (l *ledger) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	l.note(now, takes)
	return l.Store.Peek(ctx, now, takes, outs)
}

func (l *ledger) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	l.note(now, takes)
	allowed, err := l.Store.TryConsume(ctx, now, takes, outs)
	l.comesBack(ctx, now, takes, outs)
	for i := range takes {
		t := &takes[i]
		if units, _ := t.Shape.Units(t.Cost); allowed && outs[i].Allowed && units > 0 {
			met := t.Met()
			if at := now + int64(outs[i].Later); isPlaces(&t.Shape) {
				l.takePlace(now, at, t)
			} else {
				l.add(t.Key, entry{at: at, units: units, room: met.Capacity, unit: t.Shape.Unit})
				l.blurred[t.Key] = l.blurred[t.Key] || t.Since > now
			}
		}
	}
	return allowed, err
}

// lowersAfter reports whether a rate is lower for a while after now than it was made last: by a clock
// that was set back.
func lowersAfter(now, within int64, l *rate.Lowered) bool {
	return l != nil && l.Elapsed(now, now+within) < within/rate.Whole*int64(l.Part())
}

// comesBack notes who was told to come again at a time at which there is no room yet, though nobody else came. Of
// places among the requests under way nobody knows when there is.
func (l *ledger) comesBack(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) {
	for i, out := range outs[:len(takes)] {
		t := &takes[i]
		if out.Allowed || out.Unknown || out.RetryAfter == 0 || isPlaces(&t.Shape) ||
			t.Since > now || lowersAfter(now, int64(out.RetryAfter), t.Lowered) { // the limit changes, by this clock
			continue
		}
		var then [1]bucket.Outcome
		if ok, err := l.Store.Peek(ctx, now+int64(out.RetryAfter), takes[i:i+1], then[:]); err != nil || !ok {
			l.misled = fmt.Sprintf("%+v was told to wait %v, and finds no room for %v then", *t, out.RetryAfter,
				then[0].RetryAfter)
		}
		l.told++
	}
}

func (l *ledger) add(k key.Key, e entry) {
	t := l.last[k]
	e.as, e.at = e.at, l.inOrder(&t, e.at, e.units < 0 || e.refills)
	l.entries[k] = append(l.entries[k], e)
}

// inOrder is at, but no earlier than what the bucket of t was charged before, if debt drains or something is given
// back, or when it was filled: a clock that was set back counts as the time it was at.
func (l *ledger) inOrder(t *bucket.Take, at int64, back bool) int64 {
	for _, before := range l.entries[t.Key] {
		if before.refills || before.most == 0 && (back || t.Shape.Algorithm.Drains()) {
			at = max(at, before.at)
		}
	}
	return at
}

func (l *ledger) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	err := l.Store.Correct(ctx, now, changes, moved)
	for i := range changes {
		switch c := &changes[i]; {
		case isPlaces(&c.Shape):
			if moved[i] != 0 {
				l.movePlace(now, c)
			}
		case moved[i] == 0: // nor is it a time at which the bucket was written
		case c.Units > 0:
			l.add(c.Key, entry{at: now, units: moved[i], unit: c.Shape.Unit})
		case c.Units == bucket.Fill:
			l.add(c.Key, entry{at: now, refills: true})
		case c.Charged == 0:
			l.add(c.Key, entry{at: now, units: moved[i], unit: c.Shape.Unit})
		case moved[i] < 0:
			l.serve(c.Key, c.Charged, l.actual)
			l.add(c.Key, entry{at: now, unit: c.Shape.Unit}) // what an earlier clock brings counts from here
		}
	}
	return err
}

// serve notes that of what a bucket was charged at a time so many tokens were used.
func (l *ledger) serve(k key.Key, charged, tokens int64) {
	for i := range l.entries[k] {
		if e := &l.entries[k][i]; e.as == charged && e.room > 0 {
			e.units = min(e.units, tokens*e.unit)
		}
	}
}

// exceeded says of a bucket that it was charged more than it holds, "" if it was not: by the full rate, whatever part
// of it was in force.
func (l *ledger) exceeded(k key.Key) string {
	sh, all := l.last[k].Shape, l.entries[k]
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	switch {
	case l.moved[k] && (l.blurred[k] || l.windows[k]):
	case l.moved[k]:
		return l.exceededAmidChanges(all)
	case sh.Algorithm == rate.SlidingLog:
		for i, from := 0, 0; i < len(all); i++ {
			sum := int64(0)
			for ; all[i].at-all[from].at > sh.Tick; from++ {
			}
			for _, e := range all[from : i+1] {
				if sum += e.units; e.refills {
					sum = 0
				}
			}
			if all[i].room > 0 && sum > sh.Capacity {
				return fmt.Sprintf("%d of %d in a window", sum, sh.Capacity)
			}
		}
	case sh.Algorithm.Drains():
		debt, last := int64(0), int64(0)
		for _, e := range all {
			debt = max(0, debt-sh.Drained(time.Duration(min(e.at-last, int64(time.Hour))))-1)
			if last, debt = e.at, max(0, debt+e.units); e.refills {
				debt = 0
			}
			if e.room > 0 && e.units > 0 && debt > e.room {
				return fmt.Sprintf("%d units of %d at %d", debt, e.room, e.at)
			}
		}
	}
	return ""
}

// exceededAmidChanges is exceeded of a bucket that had several limits, by those of them that drain fastest between two
// entries and hold most.
func (l *ledger) exceededAmidChanges(all []entry) string {
	debt, room, drains, last := 0.0, 0.0, 0.0, int64(0)
	for _, e := range all {
		if e.most > 0 {
			drains = max(drains, e.drains)
		}
		debt, last = max(0, debt-drains*float64(min(e.at-last, int64(time.Hour)))), e.at
		switch {
		case e.most > 0:
			if l.operated { // what was given for a time is gone with it, and so is what was taken of it
				debt = max(0, debt-max(0, room-e.most))
			}
			room, drains, debt = e.most, e.drains, min(debt, e.most)
			continue
		case e.refills:
			debt = 0
			continue
		}
		debt = max(0, debt+float64(e.units)/float64(e.unit))
		if most := max(room, float64(e.room)/float64(e.unit)); e.room > 0 && e.units > 0 && debt > most+0.001 {
			return fmt.Sprintf("%.3f tokens of %.3f at %d", debt, most, e.at)
		}
	}
	return ""
}

// standing is how all buckets stand.
func (l *ledger) standing(now int64) map[key.Key]bucket.Outcome {
	all := map[key.Key]bucket.Outcome{}
	for k, t := range l.last {
		t.Cost, t.Kept, t.Shadow, t.MaxWait = 0, 0, false, 0
		if t.Shape.Algorithm == rate.SlidingLog { // all that it counts stays, whatever part is in force
			t.Lowered = nil
		}
		var outs [1]bucket.Outcome
		_, _ = l.Store.Peek(context.Background(), now, []bucket.Take{t}, outs[:])
		all[k] = outs[0]
	}
	return all
}
