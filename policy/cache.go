package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/internal/steady"
)

// Source holds a Document that changes now and then: a file, a table.
type Source interface {
	// Version reports a text that differs after every change, cheaply; "" if
	// that can only be told by loading.
	Version(ctx context.Context) (string, error)

	// Load reads the document and its version. A version older than the
	// document is harmless, a newer one is not: read the version first. An
	// error together with a version means that this version is at fault and
	// will stay so: it is not loaded again until the version changes.
	Load(ctx context.Context) (Document, string, error)
}

// Numberer is a Source whose documents may get their Number after they were
// loaded, because to number them takes longer.
type Numberer interface {
	// NumberOf reports the Number of the document of a version, as Load
	// reported it; 0 while it has none, or if the source has another version
	// by now. It is asked again and again, and must not take long.
	NumberOf(ctx context.Context, version string) (int64, error)
}

// Progress tells the Cache that waits for a Load that it gets on. A Source whose
// Load may take long calls it with the context of that Load now and then, as
// from row to row: one that is silent for CacheOptions.Timeout is given up. While
// rules are in force it may wait for a millisecond, so that requests go first.
// Elsewhere it does nothing.
func Progress(ctx context.Context) { live.Progress(ctx) }

// CacheOptions configures a Cache. Source and Compile.Endpoints are required;
// every other zero value is a safe default.
type CacheOptions struct {
	Source  Source
	Compile CompileOptions // Previous, Predecessor and Now are the cache's to fill

	// Predecessor is what an earlier process had in force, if this one goes on with
	// its buckets, and Began the time at which it does, by the clock of that process:
	// Now begins with it. Default the wall clock's time.
	Predecessor *Predecessor
	Began       int64

	// Interval is the time between two looks at Source.Version, and so, with
	// the time that a load takes, the bound on staleness while the source
	// answers. Default 250 ms.
	Interval time.Duration

	// Timeout bounds one look, and in a load the time between two calls of
	// Progress: a load that gets on may take as long as it takes. Default 30 s.
	Timeout time.Duration

	// Spread keeps many processes from asking one source at the same moment:
	// looks come earlier at random, by up to a quarter of Interval, and after
	// Wake by up to four loads later, at most Interval. Default false.
	Spread bool

	// Others reports how many other processes ask the source, and false while
	// nobody knows. With it, looks after Wake come by up to as many loads later
	// as there are others: who is alone does not wait. Default unknown.
	Others func() (n int, known bool)

	// Wake makes Run look at once instead of at the end of the interval, for
	// sources that tell of their changes. It is a hint: the looks at every
	// interval go on. Default none.
	Wake <-chan struct{}

	// LastGood is the file that keeps the last good rules, so that Start
	// succeeds while the source is away. It is written with mode 0600. Empty
	// means none.
	LastGood string

	// MaxStale is how old rules may become without Source confirming them, be it
	// that it is away or that what it holds cannot be used; then OnStale says what
	// becomes of requests. The age goes on from when the rules were last confirmed
	// over a restart with LastGood, by the wall clock; in a process it is counted by the
	// monotonic clock. 0 sets no bound.
	MaxStale time.Duration
	OnStale  Fallback

	// OnEmpty says what happens to requests while there is no rule at all. With Keep,
	// the default, nothing is limited.
	OnEmpty Fallback

	// FallbackRule is the rule of the fallback Limit: its Limit, Per, Burst, Subject
	// and Algorithm, for all endpoints together. Its burst is at least the highest of
	// Compile.Costs. Zero means DefaultFallback.
	FallbackRule Rule

	Log *slog.Logger     // default discards
	Now func() time.Time // default time.Now; changes are dated by a clock that does not step with it

	// For tests.
	clock *steady.Clock
	kept  int // of documents with fewer rules all are kept once they are checked; 0 is keptRules
}

// Cache keeps a Set fresh from a Source. A document that does not load, has an
// error or came back empty, when it was not, changes nothing: the last good
// Set stays, and Status and one log line say why. That holds for the last good
// copy too, when a process starts. An empty document is believed if its source
// says that somebody meant it: see Document.Cleared. It is safe for concurrent
// use.
type Cache struct {
	value *live.Value[drafted, Set]
	clock *steady.Clock
	o     CacheOptions

	compile CompileOptions // that of whoever loads

	confirmed atomic.Int64 // when the source last confirmed the rules in force, by clock
}

// NewCache returns a Cache that is empty until Start.
func NewCache(o CacheOptions) (*Cache, error) {
	if o.Source == nil {
		return nil, errors.New("policy cache: Source is nil, want one")
	}
	clock := steady.New(o.Now)
	if o.Began != 0 && o.Now == nil {
		clock = steady.From(o.Began)
	}
	if o.clock != nil {
		clock = o.clock
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.checkStale(); err != nil {
		return nil, fmt.Errorf("policy cache: %w", err)
	}
	o.Compile = o.withFallback(o.Compile)
	c := &Cache{clock: clock, o: o, compile: o.Compile}
	c.noteAge(0)
	compile := func(previous *Set) CompileOptions {
		compile, now := c.compile, clock.Now()
		compile.Previous, compile.Now, compile.wall = previous, time.Unix(0, now), clock.Wall(now)
		if previous == nil {
			compile.Predecessor = o.Predecessor
		}
		return compile
	}
	source := &draftSource{Source: o.Source, inForce: c.Set, options: compile, kept: cmp.Or(o.kept, keptRules)}
	if o.LastGood != "" {
		source.spool = &spool{copy: o.LastGood}
	}
	var warned string
	var err error
	c.value, err = live.New(live.Options[drafted, Set]{
		Name:     "policies",
		Source:   source,
		Interval: o.Interval, Timeout: o.Timeout, Spread: o.Spread, Others: o.Others, Wake: o.Wake,
		Log: o.Log, Now: o.Now,
		LastGood: o.LastGood,
		Encode:   func(d drafted, w io.Writer) error { return d.encodeCopy(w) },
		Decode:   source.decode,
		Empty:    func(d drafted) bool { return d.count == 0 },
		Emptied:  func(d drafted, current *Set) error { return o.emptied(d.Document, current) },
		Aged:     c.noteAge,
		Confirmed: func(ctx context.Context, version string, set *Set) error {
			return set.askNumber(ctx, o.Source, version)
		},
		Build: func(d drafted, previous *Set) (*Set, error) {
			if !d.compiled {
				d.set, d.problems = Compile(d.Document, compile(previous))
			}
			if d.set == nil {
				return nil, briefly(d.problems)
			}
			if text := d.problems.String(); text != warned {
				logWarnings(o.Log, d.problems)
				warned = text
			}
			return d.set, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("policy cache: %w", err)
	}
	return c, nil
}

// emptied says why a document without rules does not replace those there are. A
// version by which somebody cleared the rules is of the same history only if it
// is newer: an older one comes from a backup, or another database.
func (o *CacheOptions) emptied(d Document, current *Set) error {
	if d.Cleared > 0 && (current == nil || d.Cleared > current.Number()) {
		o.Log.Warn("policies: somebody deleted the last rule, and there are none any more", "version", d.Cleared)
		return nil
	}
	way := "a new start"
	if o.LastGood != "" {
		way = o.LastGood + " removed and a new start"
	}
	return fmt.Errorf("%sthe document is empty now, which is taken for an accident: want the rules back, or, if "+
		"there should be none, %s", at(d.Source), way)
}

func at(source string) string {
	if source == "" {
		return ""
	}
	return source + ": "
}

// askNumber asks for the Number of a Set that has none.
func (s *Set) askNumber(ctx context.Context, from Source, version string) error {
	numberer, ok := from.(Numberer)
	if !ok || s.Number() != 0 {
		return nil
	}
	n, err := numberer.NumberOf(ctx, version)
	if err == nil {
		s.number.Store(n)
	}
	return err
}

// shown is how many problems a log line or an error of the cache lists. Lint
// lists them all.
const shown = 20

// briefly makes one error of the first errors of a document.
func briefly(problems Problems) error {
	wrong := problems.Errors()
	if more := len(wrong) - shown; more > 0 {
		return fmt.Errorf("%w\nand %d more", wrong[:shown].Err(), more)
	}
	return wrong.Err()
}

func logWarnings(log *slog.Logger, problems Problems) {
	for i, p := range problems {
		if i == shown {
			log.Warn("policies: more warnings left out", "count", len(problems)-shown)
			return
		}
		log.Warn("policies: "+p.Error(), "code", p.Code)
	}
}

// Start loads the rules, or, when the source fails, the last good copy. The
// error says why there is neither; the process may go on and call Run all the
// same, with no rules until the source mends.
func (c *Cache) Start(ctx context.Context) error { return c.value.Start(ctx) }

// Run looks for changes at every interval until ctx is done. Whatever the
// source does, panics included, it goes on.
func (c *Cache) Run(ctx context.Context) {
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	defer watching.Wait()
	c.value.Run(ctx)
}

// watchInterval is the time between two looks at whether the rules can be relied
// on, for the log: requests find out for themselves.
const watchInterval = time.Second

// watch logs when the rules cease to be reliable, and when they are again. A look
// at the source may take long, so it has a goroutine of its own.
func (c *Cache) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var was Standing
	for {
		_, now := c.InForce(c.Now())
		switch {
		case now == was:
		case now.OK():
			c.o.Log.Info("policies: the rules can be relied on again", "rules", c.Status().Rules)
		default:
			c.o.Log.Warn("policies: "+c.Words(now), "fallback", now.Fallback.String())
		}
		was = now
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Reload loads the rules now and reports why they are not in force if they are
// not.
func (c *Cache) Reload(ctx context.Context) error { return c.value.Reload(ctx) }

// Recompile loads the rules now for other options, such as other Endpoints, and puts both in force together. An
// error says why they are not; then the rules and the options before stay, and the next look goes by these. Buckets
// keep what they hold at endpoints that are in both.
func (c *Cache) Recompile(ctx context.Context, o CompileOptions) error {
	o = c.o.withFallback(o)
	return c.value.ReloadAs(ctx, func() (undo func()) {
		before := c.compile
		c.compile = o
		return func() { c.compile = before }
	})
}

// Set returns the rules in force, or nil before the first good ones. It never
// blocks.
func (c *Cache) Set() *Set { return c.value.Get() }

// Now is the time by which the cache dates changes of rules, in Unix nanoseconds:
// the wall clock's when the cache was made, and what the monotonic clock has
// counted since. Buckets have to be counted by it too: see headgate.Clock.
func (c *Cache) Now() int64 { return c.clock.Now() }

// Wall is the wall clock's time at now, by which rules expire.
func (c *Cache) Wall(now int64) int64 { return c.clock.Wall(now) }

// Status is how a Cache does.
type Status struct {
	Version   string        // of the document in force, as its source names it
	LoadedAt  time.Time     // when it took effect
	CheckedAt time.Time     // when the source last confirmed it; zero if never
	Stale     time.Duration // since CheckedAt, or the age of the copy on disk
	FromDisk  bool          // the rules in force are the last good copy
	Emptied   bool          // the source had no rules when it last answered, and is not believed
	Failures  uint64        // looks, loads and compilations that failed
	LastError string        // empty once a later look succeeded
	CopyError string        // why the last good copy could not be written
	Rules     int           // in force
	Number    int64         // of the document in force, as its source numbers them; 0 is unknown

	Standing      Standing // whether the rules can be relied on
	StandingWords string   // the same for people; empty if they can
}

// Status reports how the cache does.
func (c *Cache) Status() Status {
	s := c.value.Status()
	status := Status{
		Version: s.Version, LoadedAt: s.LoadedAt, CheckedAt: s.CheckedAt, Stale: s.Stale,
		FromDisk: s.FromDisk, Emptied: s.Emptied, Failures: s.Failures, LastError: s.LastError, CopyError: s.CopyError,
	}
	now := c.Now()
	status.Stale = time.Duration(max(0, now-c.confirmed.Load()))
	set, standing := c.InForce(now)
	if set != nil {
		status.Rules, status.Number = set.Len()+set.AccessRules(), set.Number()
	}
	status.Standing, status.StandingWords = standing, c.Words(standing)
	return status
}
