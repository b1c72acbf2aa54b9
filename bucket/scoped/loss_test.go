package scoped_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// failing has a store fail from now on, or no more.
func (r *remote) failing(fails bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail = nil; fails {
		r.fail = func(string) error { return errGone }
	}
}

// lose has the store taken for lost at a time.
func lose(t testing.TB, s *scoped.Store, far *remote, at int64) {
	t.Helper()
	far.failing(true)
	before := s.Status().Failed
	for i := range 5 {
		allowed, err := s.TryConsume(context.Background(), at,
			[]bucket.Take{take(t, 99, second, bucket.Strict, bucket.LossOpen)}, make([]bucket.Outcome, 1))
		if allowed || !errors.Is(err, bucket.ErrLost) || !errors.Is(err, errGone) {
			t.Fatalf("failure %d: %t, %v, want a denial: one answer that is missing is no store that is lost",
				i, allowed, err)
		}
	}
	if st := s.Status(); !st.Lost || st.Since != at || st.Failed != before+5 {
		t.Fatalf("after five failures: %+v, want lost", st)
	}
}

// find has the store taken for there again, by three requests that try.
func find(t testing.TB, s *scoped.Store, far *remote, at int64) {
	t.Helper()
	far.failing(false)
	for i := range int64(3) {
		_, _ = s.TryConsume(context.Background(), at+(i-2)*int64(200*time.Millisecond),
			[]bucket.Take{costing(take(t, 99, second, bucket.Strict, bucket.LossOpen), 0)}, make([]bucket.Outcome, 1))
	}
	if st := s.Status(); st.Lost {
		t.Fatalf("after three answers: %+v, want there again", st)
	}
}

// What happens to requests while the store is lost, 10 tokens and 1 a second divided by 2 replicas.
func TestLoss(t *testing.T) {
	const lost = time.Minute
	for name, c := range map[string]struct {
		loss  bucket.Loss
		takes []struct {
			at      time.Duration
			cost    int64
			allowed bool
			err     error
		}
	}{
		"closed": {bucket.LossClosed, []struct {
			at      time.Duration
			cost    int64
			allowed bool
			err     error
		}{{0, 1, false, bucket.ErrLost}, {30 * time.Second, 1, false, bucket.ErrLost}}},
		"open": {bucket.LossOpen, []struct {
			at      time.Duration
			cost    int64
			allowed bool
			err     error
		}{{0, 10, true, nil}, {0, 10, true, nil}, {0, 10, true, nil}}},
		"share": {bucket.LossShare, []struct {
			at      time.Duration
			cost    int64
			allowed bool
			err     error
		}{{0, 1, false, nil}, {1999 * time.Millisecond, 1, false, nil}, {2 * time.Second, 1, true, nil},
			{30 * time.Second, 5, true, nil}, {30 * time.Second, 1, false, nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			far := newRemote(t)
			var told []bool
			s := open(t, scoped.Options{
				Strict:   far,
				Replicas: func() int { return 2 },
				Changed:  func(one scoped.Server, st scoped.Status) { told = append(told, st.Lost) },
			})
			lose(t, s, far, start)
			for _, step := range c.takes {
				outs := make([]bucket.Outcome, 1)
				allowed, err := s.TryConsume(context.Background(), start+int64(step.at),
					[]bucket.Take{costing(take(t, 1, second, bucket.Strict, c.loss), step.cost)}, outs)
				if allowed != step.allowed || !errors.Is(err, step.err) {
					t.Errorf("at %v, %d: %t, %v, %+v, want %t, %v", step.at, step.cost, allowed, err, outs[0],
						step.allowed, step.err)
				}
				if unknown := c.loss == bucket.LossOpen; err == nil && outs[0].Unknown != unknown {
					t.Errorf("at %v: %+v, want unknown %t", step.at, outs[0], unknown)
				}
			}
			find(t, s, far, start+int64(lost))
			if fmt.Sprint(told) != "[true false]" {
				t.Errorf("told of %v, want of the loss and of its end", told)
			}
		})
	}
}

// The end of an outage is told with what became of requests in that one, whatever was before.
func TestTheEndOfAnOutageTellsOfThatOne(t *testing.T) {
	far := newRemote(t)
	var over []scoped.Server
	s := open(t, scoped.Options{Strict: far, Replicas: func() int { return 1 },
		Changed: func(one scoped.Server, _ scoped.Status) {
			if !one.Lost {
				over = append(over, one)
			} else if one.Why == nil {
				t.Error("a server is lost for no reason")
			}
		}})
	at := start
	for _, requests := range []map[bucket.Loss]int{{bucket.LossClosed: 3, bucket.LossOpen: 2, bucket.LossShare: 1},
		{bucket.LossClosed: 1}} {
		lose(t, s, far, at)
		at += int64(time.Minute)
		for loss, n := range requests {
			for range n {
				_, _ = s.TryConsume(context.Background(), at,
					[]bucket.Take{take(t, 1+uint64(loss), second, bucket.Strict, loss)}, make([]bucket.Outcome, 1))
			}
		}
		at += int64(time.Minute)
		find(t, s, far, at)
		at += int64(time.Minute)
	}
	want := []scoped.Server{{Since: start, Denied: 3, Opened: 2, Shared: 1},
		{Since: start + int64(3*time.Minute), Denied: 1}}
	if !slices.Equal(over, want) {
		t.Errorf("outages ended with %+v, want %+v", over, want)
	}
}

// What passed during an outage is charged when it is over: what has not drained of it, and at most a burst.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct {
		loss bucket.Loss
		use  []time.Duration // after the loss: a token each
		left int64           // a minute after the loss
	}{
		"nothing":            {bucket.LossOpen, nil, 10},
		"a little, long ago": {bucket.LossOpen, []time.Duration{0, 0, 0}, 10},
		"a little, just now": {bucket.LossOpen, []time.Duration{60e9, 60e9, 60e9}, 7},
		"more than a burst": {bucket.LossOpen, []time.Duration{60e9, 60e9, 60e9, 60e9, 60e9, 60e9, 60e9, 60e9, 60e9,
			60e9, 60e9, 60e9, 60e9}, 0},
		"a share": {bucket.LossShare, []time.Duration{60e9, 60e9, 60e9, 60e9, 60e9, 60e9, 60e9}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			far := newRemote(t)
			s := open(t, scoped.Options{Strict: far, Replicas: func() int { return 2 }})
			lose(t, s, far, start)
			strict := take(t, 1, second, bucket.Strict, c.loss)
			for _, at := range c.use {
				_, _ = s.TryConsume(context.Background(), start+int64(at), []bucket.Take{strict},
					make([]bucket.Outcome, 1))
			}
			find(t, s, far, start+int64(time.Minute))
			if got := far.left(t, start+int64(time.Minute), strict); got != c.left {
				t.Errorf("%d are left in the shared bucket, want %d", got, c.left)
			}
		})
	}
}

// A table of outages that is full costs what it cannot remember, and says so.
func TestReplayIsBounded(t *testing.T) {
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far, MaxUsage: 2})
	lose(t, s, far, start)
	at := start + int64(time.Minute)
	for n := range uint64(5) {
		_, _ = s.TryConsume(context.Background(), at, []bucket.Take{take(t, n, second, bucket.Strict, bucket.LossOpen)},
			make([]bucket.Outcome, 1))
	}
	find(t, s, far, at)
	if st := s.Status(); st.Replayed != 2 || st.Missed != 3 || st.Opened != 5 {
		t.Errorf("%+v, want 2 replayed and 3 missed of 5", st)
	}
}

// A shadow stands in nobody's way, whatever the store does.
func TestShadowsOfALostStore(t *testing.T) {
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far})
	local := take(t, 1, second, bucket.Local, 0)
	far.failing(true)
	for i := range 10 { // before the store is taken for lost, and after
		if allowed, outs := try(t, s, start, local,
			shadow(take(t, 2, second, bucket.Strict, bucket.LossClosed))); !allowed || !outs[1].Unknown {
			t.Fatalf("request %d: %t, %+v, want to pass", i, allowed, outs)
		}
	}
	if allowed, _ := try(t, s, start, local, shadow(take(t, 2, second, bucket.Strict, bucket.LossClosed))); allowed {
		t.Error("the local bucket was not charged")
	}
}

// Some faults are about one bucket, and close nobody else's.
func TestFaultsOfOneBucket(t *testing.T) {
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far, Fault: func(error) bool { return false }})
	far.failing(true)
	for range 50 {
		if allowed, err := s.TryConsume(context.Background(), start,
			[]bucket.Take{take(t, 1, second, bucket.Strict, bucket.LossOpen)}, make([]bucket.Outcome, 1)); allowed ||
			!errors.Is(err, bucket.ErrLost) {
			t.Fatalf("%t, %v, want a denial", allowed, err)
		}
	}
	if s.Status().Lost {
		t.Error("the store is taken for lost")
	}
}

// What may be admitted because of a loss is a burst, and it may be that: what was taken from the
// store just before drains there, and the share gives as much anew.
func TestLossBoundIsReached(t *testing.T) {
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far})
	strict := take(t, 1, second, bucket.Strict, bucket.LossShare)
	received := simulate.Envelope{Shape: strict.Shape}
	from := func(at time.Duration, n int) {
		for range n {
			if allowed, _ := try(t, s, start+int64(at), strict); !allowed {
				t.Fatalf("at %v, after %d: denied", at, received.Admitted)
			}
			received.Admit(at, 1)
		}
	}
	from(0, 10)
	lose(t, s, far, start)
	for i := range time.Duration(10) {
		from((i+1)*time.Second, 1)
	}
	find(t, s, far, start+int64(11*time.Second))
	from(11*time.Second, 10)
	if got := received.Excess(); got != second.Burst-1 { // and a token that drained while the store was found
		t.Errorf("%d tokens above burst and rate, want all but one of a burst", got)
	}
}

// Replicas that lose the store and find it again, all at once or some of them, at random. What all
// admit together is within the table of docs/store-loss.md: nothing besides burst and rate where rules
// say closed; and where they say share, what drains while all are without the store, at most a
// burst each time, and while some are, their part of it. A store that forgets what it held
// meanwhile makes it a burst.
func TestLossBoundHolds(t *testing.T) {
	for seed := range race.Fewer(uint64(16)) {
		for _, says := range []bucket.Loss{bucket.LossClosed, bucket.LossShare} {
			t.Run(fmt.Sprint("seed ", seed, []string{" closed", " share"}[says]),
				func(t *testing.T) { testLossBound(t, seed, says) })
		}
	}
}

func testLossBound(t *testing.T, seed uint64, says bucket.Loss) {
	r := rand.New(rand.NewPCG(seed, 5))
	w := simulate.New(seed)
	l := rate.Limit{Tokens: 100 + r.Int64N(900), Per: time.Second, Burst: 50 + r.Int64N(950)}
	strict := take(t, 1, l, bucket.Strict, says)
	shared := table(t)
	const end = 20 * time.Second
	k := 1 + r.IntN(8)
	envelope := simulate.Envelope{Shape: strict.Shape}
	now := func() int64 { return start + int64(w.Now()) }
	remotes, loss := make([]*remote, k), losses{of: k, limit: l}
	for i := range k {
		remotes[i] = &remote{table: shared}
		s := open(t, scoped.Options{
			Strict: remotes[i], Replicas: func() int { return k },
			Changed: func(one scoped.Server, _ scoped.Status) { loss.turn(w.Now(), one.Lost) },
		})
		busy := 3 * r.Float64()
		w.Poisson(func(at time.Duration) float64 {
			if at/time.Second%4 == 3 { // all is saved up
				return 0
			}
			return busy * float64(l.Tokens) / float64(k)
		}, end, func() {
			outs := make([]bucket.Outcome, 1)
			if allowed, err := s.TryConsume(context.Background(), now(), []bucket.Take{strict},
				outs); allowed && err == nil {
				envelope.Admit(w.Now(), 1)
			}
		})
	}
	for range 1 + r.IntN(3) {
		at, length := time.Duration(r.Int64N(int64(end))), time.Duration(r.Int64N(int64(6*time.Second)))
		who := remotes[:1+r.IntN(k)]
		if r.IntN(2) == 0 {
			who = remotes
		}
		for _, far := range who {
			w.After(at, func() { far.failing(true) })
			w.After(at+length, func() { far.failing(false) })
		}
		if len(who) == k && r.IntN(2) == 0 {
			w.After(at+length/2, func() {
				loss.forgets()
				empty := table(t)
				for _, far := range remotes {
					far.table = empty
				}
			})
		}
	}
	w.Run(end)
	loss.turn(end, false)
	most := loss.bound(says)
	if over := envelope.Excess(); over > most {
		t.Errorf("%+v, %d replicas, %+v: %d tokens above burst and rate, want %d at most", l, k, loss, over, most)
	}
}

// losses adds up for how long replicas were without the store.
type losses struct {
	of    int
	limit rate.Limit

	forgotAmid int // how often it forgot all while all were without it
	forgot     int // and how often while some were not

	away     int
	since    time.Duration
	together []time.Duration // for which all of them were
	apart    float64         // seconds for which some were, times the part of them
	found    int             // how often one found it again
}

func (l *losses) forgets() {
	if l.away == l.of {
		l.forgotAmid++
	} else {
		l.forgot++
	}
}

// turn is that a replica loses the store, or finds it.
func (l *losses) turn(at time.Duration, lost bool) {
	switch passed := at - l.since; l.away {
	case 0:
	case l.of:
		l.together = append(l.together, passed)
	default:
		l.apart += passed.Seconds() * float64(l.away) / float64(l.of)
	}
	l.since = at
	if lost {
		l.away++
	} else {
		l.away--
		l.found++
	}
}

// bound is how many tokens there may be besides burst and rate.
func (l *losses) bound(says bucket.Loss) int64 {
	second, burst := float64(l.limit.Tokens), float64(l.limit.Burst)
	sum := float64(3 * l.found) // requests that tried it
	drained := burst            // of what nobody owed any more when it was forgotten
	for _, d := range l.together {
		fills := min(burst, second*d.Seconds())
		drained = min(drained, fills)
		if says == bucket.LossShare {
			sum += fills
		}
	}
	if says == bucket.LossShare {
		sum += second * l.apart
	}
	return int64(sum+float64(l.forgotAmid)*(burst-drained)+float64(l.forgot)*burst) + 1
}
