package revert

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Actor is who takes changes back, in the history.
const Actor = "auto-revert"

// History lists rule versions and reverts to one. *database.Store is one.
type History interface {
	History(ctx context.Context, before int64, most int) ([]record.Version, error)
	Changes(ctx context.Context, version int64) ([]record.Change, error)
	Revert(ctx context.Context, a record.Author, to, base int64,
		check func(before, after policy.Document) error) (record.Version, error)
}

// Options configures a Watcher. All but Name, Check, Log and the clocks are
// required.
type Options struct {
	Settings
	Endpoints *endpoint.Table // at the start; later those of the rules in force

	// Policies reports the rules in force and the number of their version, 0 if
	// they have none.
	Policies func() (set *policy.Set, number int64)

	// Reload puts the newest rules in force.
	Reload func(context.Context) error

	// History reports where versions are kept, or nil while that cannot be
	// reached.
	History func() History

	// Check may refuse what would come back: it must be loaded again.
	Check func(before, after policy.Document) error

	Name string       // of this replica, for the history
	Log  *slog.Logger // default discards

	// Elapsed is the time since any moment: the default does not step. Now is
	// the time in Unix nanoseconds, by which rules expire.
	Elapsed func() time.Duration
	Now     func() int64
}

// Watcher takes changes back. Run it; it is safe for concurrent use.
type Watcher struct {
	o     Options
	meter atomic.Pointer[meter]

	mu    sync.Mutex // guards what follows
	stats Stats
	flag  *Reverted

	// What follows is Tick's alone.
	bench   *bench
	set     *policy.Set
	number  int64
	unread  []swap // changes of rules of which the history was not read yet
	failing bool   // said that the history cannot be read
}

// swap is a change of the rules in force.
type swap struct {
	old, new *policy.Set
	from, to int64
	before   []Count
	at       time.Duration
}

// Stats is what became of changes.
type Stats struct {
	Trials                             int // endpoints that are looked at
	Reverted, Conflicts, Mixed, Failed uint64
}

// Reverted says that the rules in force are those from before a change that was
// taken back.
type Reverted struct {
	Version  int64     `json:"version"`  // in force
	Restored int64     `json:"restored"` // the one whose rules it has
	At       time.Time `json:"at"`
	Why      string    `json:"why"`
}

// New returns a Watcher that counts, and judges nothing until Run.
func New(o Options) *Watcher {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Elapsed == nil {
		began := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(began) }
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	w := &Watcher{o: o}
	w.begin(o.Endpoints)
	return w
}

// begin counts at other endpoints than before, where nothing is on trial yet.
func (w *Watcher) begin(endpoints *endpoint.Table) {
	m := newMeter(endpoints)
	w.bench, w.unread = newBench(w.o.Settings, m, w.o.Elapsed()), nil
	w.meter.Store(m)
}

// Observe counts one decision. It fits headgate.Options.Observe.
func (w *Watcher) Observe(r *headgate.Request, d *headgate.Decision) { w.meter.Load().observe(r, d) }

// Run looks at every part until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	w.notice() // what changes from now on is a change
	ticker := time.NewTicker(w.o.Part())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.Tick(ctx)
		}
	}
}

// databaseWait bounds what one look at the history, or one return to a version,
// may take.
const databaseWait = 10 * time.Second

// Tick ends a part: it is what Run does every so often.
func (w *Watcher) Tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	changed := w.notice()
	found := w.bench.look(w.o.Elapsed(), changed)
	if w.study(ctx) && len(found) > 0 && len(w.unread) == 0 {
		w.convict(ctx, found[0])
	}
	w.mu.Lock()
	w.stats.Trials = len(w.bench.trials)
	w.mu.Unlock()
}

// mostUnread bounds the changes that wait for a database which does not answer.
const mostUnread = 8

// notice compares the rules in force with those of the last part, and reports
// whether they are others.
func (w *Watcher) notice() (changed bool) {
	set, number := w.o.Policies()
	if set == w.set {
		w.named(number)
		return false
	}
	old, from := w.set, w.number
	w.set, w.number = set, number
	same := old != nil && set != nil && old.Version() == set.Version() && (from == number || from == 0)
	if set != nil && set.Endpoints() != w.bench.meter.endpoints {
		w.forgive("the endpoints are others")
		w.begin(set.Endpoints())
		if old != nil { // the gateway was reloaded: nobody knows what part of what follows is whose fault
			if !same {
				w.setFlag(nil)
			}
			w.bench.on(set)
			return true
		}
	}
	if same {
		if n := len(w.unread); n > 0 && w.unread[n-1].new == old {
			w.unread[n-1].new = set
		}
		w.number = from
		w.named(number)
		w.bench.on(set) // loaded again, perhaps because of an API key
		return false
	}
	w.setFlag(nil)
	w.bench.on(set)
	if len(w.unread) == mostUnread {
		w.forgive("the history could not be read")
	}
	w.unread = append(w.unread, swap{old, set, from, number, w.bench.before(), w.o.Elapsed()})
	return true
}

// named notes that the rules in force got their number after they came into force.
func (w *Watcher) named(number int64) {
	if number == w.number {
		return
	}
	w.number = number
	if n := len(w.unread); n > 0 && w.unread[n-1].new == w.set {
		w.unread[n-1].to = number
	}
}

// forgive ends all trials: what is in force is somebody's wish, or nobody can
// know whose fault it is.
func (w *Watcher) forgive(why string) {
	if len(w.bench.trials)+len(w.unread) > 0 {
		w.o.Log.Debug("auto-revert: no endpoint is on trial any more", "reason", why)
	}
	w.unread = nil
	w.bench.acquit()
}

// study reads what the history says of the changes that were noticed, and puts
// their endpoints on trial. It reports false if the history cannot be read.
func (w *Watcher) study(ctx context.Context) bool {
	for len(w.unread) > 0 {
		history := w.o.History()
		if history == nil {
			return false
		}
		next := w.unread[0]
		if next.to == 0 && next.new != nil && next.new == w.set && w.o.Elapsed() < next.at+w.o.Watch {
			return false // a large change is numbered after it came into force
		}
		c, fair, err := w.read(ctx, history, next)
		if err != nil {
			if !w.failing {
				w.o.Log.Warn("auto-revert: the history cannot be read, so no change is taken back until it can be",
					"error", err)
			}
			w.failing = true
			return false
		}
		w.failing = false
		if !fair {
			w.bench.acquit()
		} else {
			w.bench.try(c)
		}
		w.unread = w.unread[1:]
	}
	return true
}

const (
	// mostVersions is how many versions that take effect together are looked
	// at. A replica that comes back after more knows nothing of how it was
	// before any one of them.
	mostVersions = 20

	// remembered is how many versions back it is known what was taken back, in
	// the newest mostReverts of auto-revert's versions.
	remembered  = 100
	mostReverts = 20
)

// read finds out which versions a change of rules is, and which endpoints each
// of them touched. fair is false if nobody is to be tried for it: nothing is
// known of it, or it brings back what was in force before.
func (w *Watcher) read(ctx context.Context, h History, s swap) (c change, fair bool, err error) {
	if s.new == nil || s.to == 0 {
		return change{}, false, nil
	}
	list, err := h.History(ctx, s.to+1, remembered)
	if err != nil || len(list) == 0 || list[0].ID != s.to {
		return change{}, false, err
	}
	if newest := list[0]; newest.Action == record.ActionRevert {
		w.setFlag(&Reverted{newest.ID, newest.Of, newest.At, newest.Why})
	}
	made := list[:max(0, slices.IndexFunc(append(list, record.Version{}),
		func(v record.Version) bool { return v.ID <= s.from }))]
	if s.old == nil || s.from == 0 || s.to <= s.from || int64(len(made)) != s.to-s.from || len(made) > mostVersions {
		return change{}, false, nil
	}
	if slices.ContainsFunc(made, func(v record.Version) bool {
		return v.Action == record.ActionRevert || v.Action == record.ActionRollback
	}) {
		return change{}, false, nil
	}
	meant, err := redone(ctx, h, list[len(made):])
	if err != nil {
		return change{}, false, err
	}
	c = change{
		from:    s.from,
		to:      s.to,
		before:  s.before,
		at:      s.at,
		blamed:  map[endpoint.ID][]int64{},
		tighter: map[endpoint.ID]bool{},
	}
	for _, v := range slices.Backward(made) {
		changes, err := h.Changes(ctx, v.ID)
		if err != nil {
			return change{}, false, err
		}
		changes = slices.DeleteFunc(changes, meant)
		ids, tighter := touched(changes, s.old, s.new, s.new.Endpoints(), w.o.Now())
		for _, id := range ids {
			c.blamed[id] = append(c.blamed[id], v.ID)
			c.tighter[id] = c.tighter[id] || tighter[id]
		}
	}
	return c, true, nil
}

// redone returns what tells whether a change does again what one of auto-revert's
// versions in a list took back: somebody insists, and is left alone. The newest
// is not enough: who floods two endpoints in turn would have both changes taken
// back for ever.
func redone(ctx context.Context, h History, list []record.Version) (func(record.Change) bool, error) {
	was, reverts := map[any][]record.Change{}, 0
	for _, v := range list {
		if v.Action != record.ActionRevert {
			continue
		}
		if reverts++; reverts > mostReverts {
			break
		}
		for id := v.ID - 1; id > v.Of; id-- {
			taken, err := h.Changes(ctx, id)
			if errors.Is(err, record.ErrNotFound) {
				break // somebody gave up what older versions changed
			}
			if err != nil {
				return nil, err
			}
			for _, c := range taken {
				was[keyOf(c)] = append(was[keyOf(c)], c)
			}
		}
	}
	return func(c record.Change) bool {
		return slices.ContainsFunc(was[keyOf(c)], func(before record.Change) bool {
			return sameRule(before.After, c.After) && before.TierAfter == c.TierAfter
		})
	}, nil
}

// keyOf is what a change is of: a rule or a project.
func keyOf(c record.Change) any {
	switch {
	case c.After != nil:
		return record.KeyOf(*c.After)
	case c.Before != nil:
		return record.KeyOf(*c.Before)
	}
	return c.Project
}

func sameRule(a, b *policy.Rule) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	same := x.Expires.Equal(y.Expires)
	x.Expires, y.Expires = time.Time{}, time.Time{}
	return same && x == y
}

func (w *Watcher) setFlag(to *Reverted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flag = to
}

// Reverted reports that the rules in force are those from before a change that
// was taken back, by whichever replica, or nil.
func (w *Watcher) Reverted() *Reverted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flag
}

// Stats reports what became of changes.
func (w *Watcher) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// count adds to one of the Stats.
func (w *Watcher) count(which func(*Stats) *uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*which(&w.stats)++
}
