package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/record"
)

// registry writes down who told what, when.
type registry struct {
	mu    sync.Mutex
	began time.Time
	words []word
	has   map[string]string // the process that has a name
	err   error
}

type word struct {
	at    time.Duration
	name  string
	rules string
	told  bool
	ahead time.Duration // -1 for not known
}

func newBook() *registry { return &registry{began: time.Now(), has: map[string]string{}} }

func (b *registry) Report(_ context.Context, r record.Replica, told bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := time.Duration(-1)
	if r.Ahead != nil {
		ahead = *r.Ahead
	}
	b.words = append(b.words, word{time.Since(b.began), r.Name, r.Rules, told, ahead})
	if b.err != nil {
		return b.err
	}
	if told && b.has[r.Name] != r.Process {
		return record.ErrNameTaken
	}
	b.has[r.Name] = r.Process
	return nil
}

// heard is what was told so far, and names who has which name.
func (b *registry) heard() []word {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.words)
}

func (b *registry) names() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.has)
}

func (b *registry) Leave(_ context.Context, name, process string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.has[name] == process {
		delete(b.has, name)
	}
	return nil
}

func (b *registry) Others(_ context.Context, name string) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.has {
		if other != name {
			n++
		}
	}
	return n, nil
}

func (b *registry) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// status is what the beat tells of.
type status struct {
	mu sync.Mutex
	s  policy.Status
}

func (s *status) get() policy.Status { s.mu.Lock(); defer s.mu.Unlock(); return s.s }
func (s *status) set(to policy.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s = to
}

func start(t *testing.T, at func() fleet.Registry, s *status) (*fleet.Heartbeat, func()) {
	beat := fleet.NewHeartbeat(fleet.Options{Registry: at, Status: s.get, Name: "a", Every: 20 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { beat.Run(ctx); close(done) }()
	return beat, func() { stop(); <-done }
}

func TestTellerTellsAtIntervalsAndNewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBook(), &status{}
		s.set(policy.Status{Version: "v1"})
		_, stop := start(t, func() fleet.Registry { return b }, s)
		time.Sleep(5 * time.Minute)
		if n := len(b.heard()); n < 15 || n > 21 || b.heard()[0].at != 0 || b.heard()[0].told || !b.heard()[1].told {
			t.Errorf("%d words in 5m, want the first at once and then one every 15s to 20s: %+v", n, b.heard())
		}
		n := len(b.heard())
		time.Sleep(b.heard()[n-1].at + time.Second - time.Since(b.began)) // nothing is due for seconds
		s.set(policy.Status{Version: "v2"})
		time.Sleep(time.Second)
		if last := b.heard()[len(b.heard())-1]; last.rules != "v2" {
			t.Errorf("a second after a change the last word is %+v, want v2", last)
		}
		n = len(b.heard())
		s.set(policy.Status{Version: "v2", LastError: "refused"})
		time.Sleep(time.Second)
		if len(b.heard()) != n+1 {
			t.Errorf("%d words a second after an error, want 1", len(b.heard())-n)
		}
		stop()
		if len(b.names()) != 0 {
			t.Errorf("a replica that stopped still has the names %v", b.names())
		}
	})
}

// A dead database is asked less and less often, whatever changes meanwhile, and
// found again within a minute.
func TestTellerBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBook(), &status{}
		b.err = errors.New("away")
		beat, stop := start(t, func() fleet.Registry { return b }, s)
		defer stop()
		for i := range 600 {
			s.set(policy.Status{Version: fmt.Sprint(i)})
			time.Sleep(time.Second)
		}
		if n := len(b.heard()); n < 10 || n > 16 {
			t.Errorf("%d words in 10m, want about one a minute", n)
		}
		if ok, failures := beat.Reported(); ok || failures != uint64(len(b.heard())) {
			t.Errorf("Told = %v, %d, want false, %d", ok, failures, len(b.heard()))
		}
		b.mu.Lock()
		b.err = nil
		b.mu.Unlock()
		time.Sleep(time.Minute + time.Second)
		if ok, _ := beat.Reported(); !ok {
			t.Error("a minute after the database is back nothing is told")
		}
	})
}

// Where there is no database yet nothing is told; another one is told anew.
func TestTellerFindsItsBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at fleet.Registry
		var mu sync.Mutex
		get := func() fleet.Registry { mu.Lock(); defer mu.Unlock(); return at }
		s := &status{}
		beat, stop := start(t, get, s)
		time.Sleep(time.Minute)
		if ok, failures := beat.Reported(); ok || failures != 0 {
			t.Errorf("without a database: Told = %v, %d, want false, 0", ok, failures)
		}
		for range 2 {
			b := newBook()
			mu.Lock()
			at = b
			mu.Unlock()
			time.Sleep(time.Minute)
			if len(b.heard()) < 3 || b.heard()[0].told || !b.heard()[1].told {
				t.Errorf("a database was told %+v, want it anew", b.heard())
			}
		}
		stop()
	})
}

// Of two replicas with one name the elder gives way, and both are seen.
func TestTwoOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBook(), &status{}
		get := func() fleet.Registry { return b }
		elder, stopElder := start(t, get, s)
		time.Sleep(time.Minute)
		younger, stopYounger := start(t, get, s)
		time.Sleep(time.Minute)
		if elder.Name() == "a" || !strings.HasPrefix(elder.Name(), "a-") || younger.Name() != "a" ||
			len(b.names()) != 2 {
			t.Errorf("names %s and %s of %v, want the elder to be a-…", elder.Name(), younger.Name(), b.names())
		}
		n := slices.IndexFunc(b.heard(), func(w word) bool { return w.name == elder.Name() })
		if again := b.heard()[n:]; len(again) > 12 {
			t.Errorf("%d words after that, want no fight", len(again))
		}
		stopElder()
		stopYounger()
		if len(b.names()) != 0 {
			t.Errorf("names %v are left", b.names())
		}
	})
}

// How many others there are is known from one word to the next.
func TestTellerKnowsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBook(), &status{}
		b.has["b"], b.has["c"] = "p", "q"
		beat := fleet.NewHeartbeat(fleet.Options{
			Registry: func() fleet.Registry { return b },
			Status:   s.get,
			Name:     "a",
			Every:    20 * time.Second,
		})
		if n, known := beat.Others(); known {
			t.Errorf("Others before the first word = %d, want unknown", n)
		}
		ctx, stop := context.WithCancel(t.Context())
		go beat.Run(ctx)
		synctest.Wait()
		if n, known := beat.Others(); n != 2 || !known {
			t.Errorf("Others = %d, %v, want 2", n, known)
		}
		b.fail(errors.New("away"))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n, known := beat.Others(); known {
			t.Errorf("Others while the registry is away = %d, want unknown", n)
		}
		stop()
		synctest.Wait()
	})
}

// How far the clock is ahead of the store's is told as soon as it is known.
func TestTellerTellsOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBook(), &status{}
		known := time.Now().Add(30 * time.Second)
		beat := fleet.NewHeartbeat(fleet.Options{
			Registry: func() fleet.Registry { return b }, Status: s.get, Name: "a", Every: 20 * time.Second,
			Ahead: func() (time.Duration, bool) { return time.Minute, !time.Now().Before(known) },
		})
		ctx, stop := context.WithCancel(t.Context())
		go beat.Run(ctx)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		for _, w := range b.heard() {
			if want := w.at >= 30*time.Second; want != (w.ahead == time.Minute) {
				t.Errorf("after %v it told that its clock is %v ahead, want a minute from 30 s on", w.at, w.ahead)
			}
		}
	})
}
