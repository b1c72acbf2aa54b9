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
	"github.com/headgate-io/headgate/server/record"
)

// Registry is where replicas report. *database.Store is one.
type Registry interface {
	Report(ctx context.Context, r record.Replica, known bool) error
	Leave(ctx context.Context, name, process string) error
	Others(ctx context.Context, name string) (int, error)
}

// Options configures a Heartbeat. All but Log and Ahead are required.
type Options struct {
	// Registry says where to report, or nil while that cannot be reached.
	Registry func() Registry

	// Ahead reports by how much this machine's clock is ahead of that of the
	// store of shared buckets, and false while nobody knows. Nil if there is none.
	Ahead func() (time.Duration, bool)

	Status  func() policy.Status
	Name    string
	Program string        // version of the program
	Every   time.Duration // between two reports
	Log     *slog.Logger  // default discards
}

// Heartbeat reports one replica, until it stops. Nothing waits for it, and a report
// that fails is lost.
type Heartbeat struct {
	o       Options
	process string
	started time.Time

	mu       sync.Mutex
	name     string // guarded by mu
	ok       bool   // guarded by mu; the last report was written down
	failures uint64 // guarded by mu
	others   int    // guarded by mu; -1 while nobody knows

	// What follows is Run's alone.
	registry Registry
	known    bool // under this name, in this registry
	said     bool // that reports fail
}

// NewHeartbeat returns a Heartbeat that reports nothing until Run.
func NewHeartbeat(o Options) *Heartbeat {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Heartbeat{o: o, process: random(8), started: time.Now(), name: o.Name, others: -1}
}

// mostBackoff bounds the time between two reports while they fail.
const mostBackoff = time.Minute

// glance is how often the Heartbeat looks whether there is news: other rules, or
// an error, are reported at once and not at the end of the interval.
const glance = time.Second

// Run tells until ctx ends, and then that the replica has gone.
func (t *Heartbeat) Run(ctx context.Context) {
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
			if t.report(ctx, status) {
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

func newsOf(s policy.Status) news { return news{s.Version, fault(s), s.Number} }

// fault says what is wrong with the rules in force, on one line; empty if nothing is.
func fault(s policy.Status) string {
	text := s.LastError
	if s.Standing.Stale {
		mode := "stale, " + s.Standing.Fallback.String() // without the age, which is news each second
		text = strings.TrimSuffix(mode+": "+text, ": ")
	}
	return strings.Join(strings.Fields(text), " ")
}

// jitter is up to a quarter less, so that replicas started together do not report
// together for ever.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(mathrand.Float64()*float64(d)/4)
}

// report says how the replica does, and whether that was written down.
func (t *Heartbeat) report(ctx context.Context, s policy.Status) bool {
	registry := t.o.Registry()
	if registry == nil {
		t.note(false, nil)
		return true // costs nothing: look again as usual
	}
	if registry != t.registry {
		t.registry, t.known = registry, false
	}
	err := t.reportAs(ctx, s)
	if errors.Is(err, record.ErrNameTaken) {
		before := t.Name()
		t.rename(t.o.Name + "-" + random(3))
		t.o.Log.Warn("fleet: another replica has the same name, want replica_name different for each", "name", before,
			"reported_as", t.Name())
		err = t.reportAs(ctx, s)
	}
	if ctx.Err() != nil {
		return false
	}
	t.note(err == nil, err)
	t.known = t.known || err == nil
	t.count(ctx, err)
	if err != nil && !t.said {
		t.o.Log.Debug("fleet: others cannot see this replica", "error", err)
	}
	t.said = err != nil
	return err == nil
}

// count finds out how many other replicas there are, after a report that others
// could read.
func (t *Heartbeat) count(ctx context.Context, err error) {
	others := -1
	if err == nil {
		if n, err := t.registry.Others(ctx, t.Name()); err == nil {
			others = n
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = others
}

// Others reports how many other replicas reported lately, and false
// while nobody knows.
func (t *Heartbeat) Others() (n int, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.others, t.others >= 0
}

func (t *Heartbeat) reportAs(ctx context.Context, s policy.Status) error {
	return t.registry.Report(ctx, record.Replica{
		Name: t.Name(), Process: t.process, Program: t.o.Program, Started: t.started, Every: t.o.Every,
		Rules: s.Version, Number: s.Number, Loaded: s.LoadedAt, Stale: s.Stale, Error: fault(s), Ahead: t.ahead(),
	}, t.known)
}

func (t *Heartbeat) ahead() *time.Duration {
	if t.o.Ahead == nil {
		return nil
	}
	if by, known := t.o.Ahead(); known {
		return &by
	}
	return nil
}

func (t *Heartbeat) rename(name string) {
	t.mu.Lock()
	t.name = name
	t.mu.Unlock()
	t.known = false
}

func (t *Heartbeat) note(ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ok = ok
	if err != nil {
		t.failures++
	}
}

// leave removes the replica from the registry.
func (t *Heartbeat) leave(ctx context.Context) {
	if t.known {
		_ = t.registry.Leave(ctx, t.Name(), t.process) // it is taken for silent if this fails
	}
}

// Name reports the name under which the replica reports.
func (t *Heartbeat) Name() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.name
}

// Reported says whether the last report was written down, and how many were not.
func (t *Heartbeat) Reported() (ok bool, failures uint64) {
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
