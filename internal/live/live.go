// Package live keeps a value built from a changing document fresh, and never
// gives up a good value for a bad one.
//
// A Value asks its source for a version at an interval, loads the document when
// the version changed, builds the value and swaps one pointer. A document that
// does not load, does not build or came back empty changes nothing but the
// status. The last good document is kept on disk, so that a process can start
// while its source is away.
package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Source holds a document of type D that changes now and then.
type Source[D any] interface {
	// Version reports a text that differs after every change, cheaply; "" if
	// it can only be told by loading.
	Version(ctx context.Context) (string, error)

	// Load reads the document and the version it has. A version older than
	// the document is harmless, a newer one is not: read the version first.
	// An error together with a version means that this version is at fault
	// and will stay so: it is not loaded again until the version changes.
	Load(ctx context.Context) (D, string, error)
}

// Options configures a Value. Name, Source and Build are required; every other
// zero value is a safe default.
type Options[D, T any] struct {
	Name   string // what the document is, for messages: "policies"
	Source Source[D]

	// Build makes the value of a document. previous is the value in force, or
	// nil. A document it refuses is not loaded again until its version changes.
	Build func(doc D, previous *T) (*T, error)

	// Confirmed is told when a look finds that the value in force is of the
	// source's present version. An error is of no consequence. Nil means that
	// nobody is.
	Confirmed func(ctx context.Context, version string, current *T) error

	// Aged is told how long ago the source confirmed the value in force, whenever it
	// does, and when the copy on disk comes into force: the time since the source
	// last confirmed that. Nil means that nobody is.
	Aged func(age time.Duration)

	// Empty reports whether a document holds nothing. An empty document does
	// not replace one that was not, in force or on disk: that is a source gone
	// wrong far more often than a wish. Nil means that no document is empty.
	Empty func(D) bool

	// Emptied says why an empty document is not believed, when current is what
	// it would replace; nil if somebody meant it. Nil means that none is.
	Emptied func(doc D, current *T) error

	// Interval is the time between two looks at the version. Shorter notices
	// changes sooner and asks the source more often. Default 250 ms.
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
	// as there are others: who is alone does not wait, and many do not meet.
	Others func() (n int, known bool)

	// Wake makes Run look at once, instead of at the end of the interval. It
	// is a hint: the looks at every interval go on. Default none.
	Wake <-chan struct{}

	// LastGood is the file that keeps the last good document; none if empty.
	// Encode and Decode are needed with it.
	LastGood string
	Encode   func(D, io.Writer) error
	Decode   func(io.ReadSeeker) (D, error)

	Log *slog.Logger     // default discards
	Now func() time.Time // default time.Now
}

// Status is how a Value does.
type Status struct {
	Version   string    // of the document in force, as its source names it
	LoadedAt  time.Time // when it took effect
	CheckedAt time.Time // when the source was last asked that confirmed it; zero if never
	Stale     time.Duration
	FromDisk  bool   // the document in force is the copy on disk
	Emptied   bool   // the source was empty when it last answered, and is not believed
	Failures  uint64 // looks, loads and builds that failed, since the start
	LastError string // empty once a later look succeeded
	CopyError string // why the last good document could not be kept on disk; empty once it was
}

// Value is a *T that is kept fresh. It is safe for concurrent use.
type Value[D, T any] struct {
	o        Options[D, T]
	current  atomic.Pointer[T]
	lastLoad atomic.Int64  // nanoseconds that the last load took which succeeded
	turn     chan struct{} // holds one token: whoever has it may load

	mu     sync.Mutex // guards what follows
	status Status
	fresh  time.Time // stands for CheckedAt while that is zero

	// Only whoever has the turn uses these.
	refused string          // the version that was at fault last, "" if none
	because string          // why
	filled  bool            // the document in force is not empty
	dated   time.Time       // when the copy on disk was last said to be confirmed
	copied  time.Time       // when the document was last asked for of which there should be a copy
	said    map[string]bool // errors logged since the last success
}

// maxSaid bounds how many different errors are logged between two successes.
const maxSaid = 16

// New returns a Value that holds nothing until Start.
func New[D, T any](o Options[D, T]) (*Value[D, T], error) {
	var errs []error
	check := func(wrong bool, field string, value any, want string) {
		if wrong {
			errs = append(errs, fmt.Errorf("%s is %v, want %s", field, value, want))
		}
	}
	check(o.Name == "", "Name", "empty", "one")
	check(o.Source == nil, "Source", "nil", "one")
	check(o.Build == nil, "Build", "nil", "one")
	check(o.Interval < 0, "Interval", o.Interval, "more than 0, or 0 for 250ms")
	check(o.Timeout < 0, "Timeout", o.Timeout, "more than 0, or 0 for 30s")
	check(o.LastGood != "" && (o.Encode == nil || o.Decode == nil), "Encode or Decode", "nil", "both with LastGood")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if o.Interval == 0 {
		o.Interval = 250 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Aged == nil {
		o.Aged = func(time.Duration) {}
	}
	if o.Empty == nil {
		o.Empty = func(D) bool { return false }
	}
	if o.Emptied == nil {
		o.Emptied = func(D, *T) error { return errors.New("the document is empty now, want at least one entry") }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	v := &Value[D, T]{o: o, turn: make(chan struct{}, 1), fresh: o.Now(), said: map[string]bool{}}
	v.turn <- struct{}{}
	return v, nil
}

// Get returns the value in force, or nil before the first good document. It
// never blocks.
func (v *Value[D, T]) Get() *T { return v.current.Load() }

// Status reports how the value does. Stale is the time since the source last
// confirmed the document in force. If it never did, Stale is the age of the
// copy on disk, or the time since New.
func (v *Value[D, T]) Status() Status {
	now := v.o.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.status
	since := s.CheckedAt
	if since.IsZero() {
		since = v.fresh
	}
	s.Stale = max(0, now.Sub(since))
	return s
}

// Start loads the document, or, when that fails or it is empty and the copy on
// disk is not, that copy. The error says why there is neither.
func (v *Value[D, T]) Start(ctx context.Context) error {
	return v.inTurn(ctx, func() error {
		began := v.current.Load() == nil
		err := v.load(ctx)
		if err == nil || v.o.LastGood == "" || !began {
			return err
		}
		if v.current.Load() == nil { // else the source is empty, and was compared with the copy
			switch diskErr := safely(v.loadCopy); {
			case errors.Is(diskErr, fs.ErrNotExist): // as at the first start: nothing is wrong with it
				return errors.Join(err, fmt.Errorf("%s: nor is there a last good copy %s to start from", v.o.Name,
					v.o.LastGood))
			case diskErr != nil:
				return errors.Join(err, fmt.Errorf("%s: last good copy: %w", v.o.Name, diskErr))
			}
		}
		v.o.Log.Warn("started from the last good copy, because the source failed",
			"what", v.o.Name, "file", v.o.LastGood, "error", err)
		return nil
	})
}

// Reload loads the document now, whether or not its version changed, and
// reports why it is not in force if it is not.
func (v *Value[D, T]) Reload(ctx context.Context) error {
	return v.inTurn(ctx, func() error { return v.load(ctx) })
}

// ReloadAs is Reload after a change of how values are built, which change makes while nobody builds one. If there
// is no value of the new kind, undo makes the change undone, and the one in force stays.
func (v *Value[D, T]) ReloadAs(ctx context.Context, change func() (undo func())) error {
	return v.inTurn(ctx, func() error {
		undo, refused := change(), v.refused
		err := v.load(ctx)
		if err != nil {
			undo()
			v.refused = refused // as before, the version may be good for what it is built for now
		}
		return err
	})
}

// share bounds the part of the time that looks take to a fifth: a source that
// can only be read whole is read less often when it is large.
const share = 5

// Run looks for a new version at every interval until ctx is done, or less
// often when looks take long. Whatever the source does, panics included, it goes
// on.
func (v *Value[D, T]) Run(ctx context.Context) {
	timer := time.NewTimer(v.interval())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-v.o.Wake:
			timer.Reset(v.delay())
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		began := time.Now()
		// Errors are counted and logged where they arise; what panics here is
		// a clock or a log handler.
		err := safely(func() error { return v.inTurn(ctx, func() error { return v.look(ctx) }) })
		took, next := time.Since(began), v.interval()
		if err == nil { // a source that failed took its time for nothing
			next = max(next, share*took)
		}
		timer.Reset(next - took)
	}
}

// interval is the time until the next look.
func (v *Value[D, T]) interval() time.Duration {
	if !v.o.Spread {
		return v.o.Interval
	}
	return v.o.Interval - time.Duration(rand.Float64()*float64(v.o.Interval)/4)
}

// mostOthers bounds what Others is believed to be: beyond it the interval is the
// bound, however short a load.
const mostOthers = 1 << 16

// delay is the time between a hint and the look it asks for. Where a load is
// quick, or nobody else was given the hint, there is next to none; elsewhere
// the processes do not all load at once.
func (v *Value[D, T]) delay() time.Duration {
	if !v.o.Spread {
		return 0
	}
	loads := 4
	if v.o.Others != nil {
		if n, known := v.o.Others(); known {
			loads = min(n, mostOthers)
		}
	}
	most := min(v.o.Interval, time.Duration(loads)*time.Duration(v.lastLoad.Load()))
	return time.Duration(rand.Float64() * float64(most))
}

// inTurn runs f while nobody else loads.
func (v *Value[D, T]) inTurn(ctx context.Context, f func() error) error {
	select {
	case <-v.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { v.turn <- struct{}{} }()
	return f()
}

// look loads the document if its version changed.
func (v *Value[D, T]) look(ctx context.Context) error {
	var version string
	asked := v.o.Now()
	err := v.ask(ctx, func(ctx context.Context) (err error) {
		version, err = v.o.Source.Version(ctx)
		return err
	})
	if err != nil {
		return v.failed(ctx, fmt.Errorf("%s: look for changes: %w", v.o.Name, err))
	}
	if version != "" && version == v.refused {
		v.stillRefused() // logged already; not confirmed either
		return nil
	}
	if version != "" && v.holds(version) {
		if v.copyIsDue(asked) {
			return v.load(ctx) // nobody has the document any more
		}
		v.succeeded(asked)
		v.dateCopy(asked)
		if v.o.Confirmed != nil {
			_ = v.ask(ctx, func(ctx context.Context) error { return v.o.Confirmed(ctx, version, v.current.Load()) })
		}
		return nil
	}
	return v.fetch(ctx, false)
}

// load loads the document, changed or not.
func (v *Value[D, T]) load(ctx context.Context) error { return v.fetch(ctx, true) }

// fetch loads the document and puts it in force. Unless forced, it leaves a
// document alone that turns out to be the one in force, or the one refused.
func (v *Value[D, T]) fetch(ctx context.Context, force bool) error {
	var doc D
	var version string
	began, asked := time.Now(), v.o.Now()
	err := v.ask(ctx, func(ctx context.Context) (err error) {
		doc, version, err = v.o.Source.Load(ctx)
		return err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%s: load: %w", v.o.Name, err)
		v.refuse(version, err)
		return v.failed(ctx, err)
	case !force && version == v.refused && version != "":
		return nil
	case !force && version != "" && v.holds(version):
		v.succeeded(asked)
		return nil
	}
	if err = safely(func() error { return v.compareWithCopy(doc) }); err == nil {
		err = v.use(doc, version, false)
	}
	if err != nil {
		v.refuse(version, err)
		return v.failed(ctx, err)
	}
	v.lastLoad.Store(int64(time.Since(began)))
	v.succeeded(asked)
	v.saved(v.saveCopy(doc))
	v.dated, v.copied = time.Time{}, asked
	v.dateCopy(asked)
	return nil
}

// holds reports whether the document in force has a version and came from the
// source.
func (v *Value[D, T]) holds(version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.status.Version == version && !v.status.FromDisk && !v.status.LoadedAt.IsZero()
}

// use builds a document's value and puts it in force.
func (v *Value[D, T]) use(doc D, version string, fromDisk bool) error {
	empty := false
	var built *T
	err := safely(func() (err error) {
		if empty = v.o.Empty(doc); empty && v.filled {
			if err := v.o.Emptied(doc, v.current.Load()); err != nil {
				return emptied{err}
			}
		}
		built, err = v.o.Build(doc, v.current.Load())
		if err == nil && built == nil {
			err = errors.New("built nothing")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", v.o.Name, err)
	}
	now := v.o.Now()
	v.current.Store(built)
	v.filled = !empty
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status.Version, v.status.FromDisk, v.status.LoadedAt = version, fromDisk, now
	return nil
}

// emptied is the error about an empty document that is not believed.
type emptied struct{ error }

func (e emptied) Unwrap() error { return e.error }

// refuse remembers the version of a document at fault, "" if nobody knows it.
func (v *Value[D, T]) refuse(version string, err error) {
	v.refused, v.because = version, err.Error()
	isEmpty := errors.As(err, new(emptied))
	if !isEmpty && version == "" {
		return // what the source holds now is unknown
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status.Emptied = isEmpty
}

// stillRefused says again why the source's document is not in force: in between,
// it may have been out of reach.
func (v *Value[D, T]) stillRefused() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status.LastError = v.because
}

// safely makes an error of a panic: sources are other people's code.
func safely(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// succeeded notes that the source confirmed the document in force, when it was asked. What a load took is
// part of the staleness: the document may have changed as soon as it was asked for.
func (v *Value[D, T]) succeeded(asked time.Time) {
	v.mu.Lock()
	recovered := v.status.LastError != ""
	v.status.CheckedAt, v.status.LastError, v.status.Emptied = asked, "", false
	v.mu.Unlock()
	v.o.Aged(max(0, v.o.Now().Sub(asked)))
	v.refused = ""
	clear(v.said)
	if recovered {
		v.o.Log.Info("fresh again", "what", v.o.Name)
	}
}

// saved notes what became of the copy on disk. The document is in force either
// way; that a restart may lack it is a problem of its own.
func (v *Value[D, T]) saved(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	v.mu.Lock()
	again := v.status.CopyError != "" // in other words perhaps: temporary files have random names
	v.status.CopyError = text
	v.mu.Unlock()
	if err != nil && !again {
		v.o.Log.Error("the last good copy is not kept", "what", v.o.Name, "file", v.o.LastGood, "error", text)
	}
}

// failed counts an error and logs it, if it is not the same again. The end of
// ctx is no failure of the source.
func (v *Value[D, T]) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	text := err.Error()
	v.mu.Lock()
	v.status.Failures++
	v.status.LastError = text
	v.mu.Unlock()
	if !v.said[text] && len(v.said) < maxSaid {
		v.said[text] = true
		if v.Get() == nil {
			v.o.Log.Error("refresh failed: there are no "+v.o.Name+" yet", "error", text)
		} else {
			v.o.Log.Error("refresh failed: the last good "+v.o.Name+" stay in force", "error", text)
		}
	}
	return err
}
