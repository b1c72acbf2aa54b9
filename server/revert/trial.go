package revert

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// trial is an endpoint to which other rules apply than before.
type trial struct {
	first  int64         // the version before the first change
	blamed []int64       // the versions that changed its rules since, in order
	before Count         // in the For before the first change
	at     time.Duration // of the newest change
	until  time.Duration
	cells  *cells

	// What has been above the share without a break.
	above int // parts
	count Count
}

// bench keeps what was counted, and the endpoints on trial. It knows no clock:
// times are since the start of the process, so that a step of the wall clock is
// none of its business.
type bench struct {
	Settings
	meter  *meter
	trials map[endpoint.ID]*trial

	last   []uint64       // by endpoint.ID: the counters at the last look
	now    []uint64       // scratch
	recent [parts][]Count // by endpoint.ID: the last parts, in a ring
	next   int            // in recent
	looked time.Duration  // when the last look was
	set    *policy.Set    // in force
}

func newBench(s Settings, m *meter, at time.Duration) *bench {
	b := &bench{
		Settings: s, meter: m, trials: map[endpoint.ID]*trial{}, looked: at,
		last: make([]uint64, len(m.counts)), now: make([]uint64, len(m.counts)),
	}
	for i := range b.recent {
		b.recent[i] = make([]Count, len(m.counts))
	}
	return b
}

// guilty is an endpoint whose callers a change turns away.
type guilty struct {
	endpoint endpoint.ID
	*trial
	took time.Duration // above the share
}

// look ends a part at a time, and reports the endpoints that have been above the
// share for long enough, the worst first. changed says that the rules became
// others in this part: it belongs to neither, and is left out.
func (b *bench) look(at time.Duration, changed bool) []guilty {
	late := at-b.looked > 2*b.Part()
	b.looked = at
	b.meter.read(b.now)
	b.last, b.now = b.now, b.last // b.now is what it was before
	if changed {
		return nil
	}
	ring := b.recent[b.next]
	b.next = (b.next + 1) % parts
	for id := range ring {
		ring[id] = since(b.now[id], b.last[id])
	}
	var found []guilty
	for id, t := range b.trials {
		switch {
		case at > t.until:
			delete(b.trials, id)
			defer b.on(b.set)
			continue
		case late:
			// The process stood still, and nobody knows how the endpoint was in
			// every part of that time.
			t.restart()
			continue
		}
		if t.take(b.Settings, ring[id]); t.convicted(b.Settings) {
			found = append(found, guilty{id, t, time.Duration(t.above) * b.Part()})
		}
	}
	slices.SortFunc(found, func(a, b guilty) int {
		return cmp.Or(cmp.Compare(b.count.Denied, a.count.Denied), cmp.Compare(a.endpoint, b.endpoint))
	})
	return found
}

// take adds a part to what was above the share before it, or begins anew.
func (t *trial) take(s Settings, part Count) {
	switch {
	case part.Total == 0:
		if t.above > 0 {
			t.above++ // nobody came, so nobody was let in
		}
	case s.above(part):
		t.above++
		t.count = t.count.plus(part)
	default:
		t.restart()
	}
}

func (t *trial) restart() {
	t.above, t.count = 0, Count{}
	t.cells.clear()
}

func (t *trial) convicted(s Settings) bool {
	return t.above >= parts && t.count.Total >= s.MinRequests && s.above(t.cells.without(s.MinCallers-1))
}

// before is what every endpoint had in the parts that were looked at last.
func (b *bench) before() []Count {
	sum := make([]Count, len(b.last))
	for _, part := range b.recent {
		for id, c := range part {
			sum[id] = sum[id].plus(c)
		}
	}
	return sum
}

// change is one or more versions that took effect together.
type change struct {
	from, to int64
	blamed   map[endpoint.ID][]int64 // which versions changed the rules of which endpoints
	tighter  map[endpoint.ID]bool    // where all of them together may deny more than before
	before   []Count
	at       time.Duration
}

// try puts the endpoints of a change on trial. One that was above the share
// already is left alone: its 429s are no news. So is one whose rules became
// looser: its 429s would be more without the change. One that is on trial stays so,
// and is compared with how it was before the first change, unless that has proved
// well since: then only the new one can be at fault.
func (b *bench) try(c change) {
	for id, versions := range c.blamed {
		t := b.trials[id]
		if t == nil || c.tighter[id] && t.proved(b.Settings, c, c.before[id]) {
			if b.above(c.before[id]) || !c.tighter[id] {
				continue
			}
			t = &trial{first: c.from, before: c.before[id], cells: &cells{}}
			b.trials[id] = t
		}
		t.blamed = append(t.blamed, versions...)
		t.at, t.until = c.at, c.at+b.Watch
		t.restart()
	}
	b.on(b.set)
}

// proved reports whether the changes on trial were well for long enough, under
// enough requests, before another one came.
func (t *trial) proved(s Settings, next change, before Count) bool {
	return next.at-t.at > s.For+s.Part() && before.Total >= s.MinRequests && !s.above(before)
}

// on goes on with the trials under a Set.
func (b *bench) on(set *policy.Set) {
	b.set = set
	b.meter.put(set, b.trials)
}

// acquit ends all trials.
func (b *bench) acquit() {
	clear(b.trials)
	b.on(b.set)
}

// onlyBlame reports whether all versions from the trial's first change to the
// one in force changed the rules of its endpoint: else to go back to before them
// would undo what is not at fault.
func (t *trial) onlyBlame(current int64) bool {
	return int64(len(t.blamed)) == current-t.first
}
