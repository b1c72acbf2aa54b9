package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/store"
)

// Book is where replicas tell of themselves. *store.Store is one.
type Book interface {
	Tell(ctx context.Context, r store.Replica, told bool) error
	Leave(ctx context.Context, name, process string) error
	Others(ctx context.Context, name string) (int, error)
}

// Options configures a Teller. All but Log are required.
type Options struct {
	// Book reports where to tell, or nil while that cannot be reached.
	Book func() Book

	Status  func() policy.Status
	Name    string
	Program string        // version of the program
	Every   time.Duration // between two words
	Log     *slog.Logger  // default discards
}

// Teller tells of one replica, until it stops. Nothing waits for it, and what
// it cannot tell is lost.
type Teller struct {
	o       Options
	process string
	started time.Time

	mu       sync.Mutex
	name     string // guarded by mu
	ok       bool   // guarded by mu; the last word was written down
	failures uint64 // guarded by mu
	others   int    // guarded by mu; -1 while nobody knows

	// What follows is Run's alone.
	book Book
	told bool // under this name, in this book
	said bool // that telling fails
}

// NewTeller returns a Teller that says nothing until Run.
func NewTeller(o Options) *Teller {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Teller{o: o, process: random(8), started: time.Now(), name: o.Name, others: -1}
}

// mostBackoff bounds the time between two words while telling fails.
const mostBackoff = time.Minute

// glance is how often the Teller looks whether there is news: other rules, or
// an error, are told at once and not at the end of the interval.
const glance = time.Second

// Run tells until ctx ends, and then that the replica has gone.
func (t *Teller) Run(ctx context.Context) {
	defer t.leave(context.WithoutCancel(ctx))
	var last news
	wait := t.o.Every
	next := time.Now() // the first word at once
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		status := t.o.Status()
		now := newsOf(status)
		failing := wait > t.o.Every
		if !time.Now().Before(next) || now != last && !failing {
			last = now
			if t.tell(ctx, status) {
				wait = t.o.Every
			} else {
				wait = min(2*wait, max(mostBackoff, t.o.Every))
			}
			next = time.Now().Add(jitter(wait))
		}
		timer.Reset(min(max(0, time.Until(next)), jitter(glance)))
	}
}

// news is what others should know soon.
type news struct {
	version, fault string
	number         int64
}

func newsOf(s policy.Status) news { return news{s.Version, s.LastError, s.Number} }

// jitter is up to a quarter less, so that replicas started together do not tell
// together for ever.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(mathrand.Float64()*float64(d)/4)
}

// tell says how the replica does, and reports whether that was written down.
func (t *Teller) tell(ctx context.Context, s policy.Status) bool {
	book := t.o.Book()
	if book == nil {
		t.note(false, nil)
		return true // costs nothing: look again as usual
	}
	if book != t.book {
		t.book, t.told = book, false
	}
	err := t.tellAs(ctx, s)
	if errors.Is(err, store.ErrNameTaken) {
		before := t.Name()
		t.rename(t.o.Name + "-" + random(3))
		t.o.Log.Warn("fleet: another replica has the same name, want replica_name different for each", "name", before, "told_as", t.Name())
		err = t.tellAs(ctx, s)
	}
	if ctx.Err() != nil {
		return false
	}
	t.note(err == nil, err)
	t.told = t.told || err == nil
	t.count(ctx, err)
	if err != nil && !t.said {
		t.o.Log.Debug("fleet: others cannot see this replica", "error", err)
	}
	t.said = err != nil
	return err == nil
}

// count finds out how many other replicas there are, after a word that others
// could read.
func (t *Teller) count(ctx context.Context, err error) {
	others := -1
	if err == nil {
		if n, err := t.book.Others(ctx, t.Name()); err == nil {
			others = n
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = others
}

// Others reports how many other replicas told of themselves lately, and false
// while nobody knows.
func (t *Teller) Others() (n int, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.others, t.others >= 0
}

func (t *Teller) tellAs(ctx context.Context, s policy.Status) error {
	return t.book.Tell(ctx, store.Replica{
		Name: t.Name(), Process: t.process, Program: t.o.Program, Started: t.started, Every: t.o.Every,
		Rules: s.Version, Number: s.Number, Loaded: s.LoadedAt, Stale: s.Stale, Error: strings.Join(strings.Fields(s.LastError), " "),
	}, t.told)
}

func (t *Teller) rename(name string) {
	t.mu.Lock()
	t.name = name
	t.mu.Unlock()
	t.told = false
}

func (t *Teller) note(ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ok = ok
	if err != nil {
		t.failures++
	}
}

// leave removes the replica from the book.
func (t *Teller) leave(ctx context.Context) {
	if t.told {
		_ = t.book.Leave(ctx, t.Name(), t.process) // it is taken for silent if this fails
	}
}

// Name reports the name under which the replica tells of itself.
func (t *Teller) Name() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.name
}

// Told reports whether the last word was written down, and how many were not.
func (t *Teller) Told() (ok bool, failures uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ok, t.failures
}

// DefaultName is the name of a replica that was given none: its host's, and a
// short text for where it listens, so that a restarted process has its name
// again and two on one host have two. A port of the system's choice tells
// nothing; then the text is random.
func DefaultName(host string, listens ...string) string {
	sum := sha256.New()
	for _, address := range listens {
		if strings.HasSuffix(address, ":0") {
			return host + "-" + random(3)
		}
		sum.Write([]byte(address + "\x00"))
	}
	return host + "-" + hex.EncodeToString(sum.Sum(nil)[:3])
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
