package scoped_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// What a replica admits of a rule with scope split, as the number of replicas changes.
func TestSplit(t *testing.T) {
	type step struct {
		at       time.Duration
		replicas int
		cost     int64
		allowed  bool
		left     int64
	}
	for name, c := range map[string]struct {
		limit rate.Limit
		began time.Duration
		steps []step
	}{
		"one has all of it": {second, 0, []step{{0, 1, 10, true, 0}, {0, 1, 1, false, 0},
			{time.Second, 1, 1, true, 0}}},
		"who joins others begins empty": {second, 0, []step{
			{0, 5, 1, false, 0}, {4999 * time.Millisecond, 5, 1, false, 0}, {5 * time.Second, 5, 1, true, 0},
			{20 * time.Second, 5, 2, true, 0}, {20 * time.Second, 5, 1, false, 0},
		}},
		"also where it is only asked later": {second, 0,
			[]step{{7 * time.Second, 5, 1, true, 0}, {7 * time.Second, 5, 1, false, 0}}},
		"when another one comes, what is owed stays owed": {second, 0, []step{
			{0, 1, 4, true, 6}, {0, 2, 1, true, 0}, {2 * time.Second, 2, 2, false, 1}, {2 * time.Second, 2, 1, true, 0},
		}},
		"when one leaves, the rest go faster from then on": {second, 0, []step{
			{0, 2, 0, true, 0}, {100 * time.Second, 2, 5, true, 0}, {102 * time.Second, 1, 0, true, 6},
			{106 * time.Second, 1, 10, true, 0}, {107 * time.Second, 1, 2, false, 1},
		}},
		"a burst of less than one each is one": {rate.Limit{Tokens: 1, Per: time.Second, Burst: 2}, 0, []step{
			{0, 4, 1, false, 0}, {4 * time.Second, 4, 1, true, 0}, {30 * time.Second, 4, 2, false, 1},
		}},
		"who has no part yet": {rate.Limit{Tokens: 100, Per: time.Second, Burst: 100}, 0, []step{
			{0, 0, 1, false, 0}, {9 * time.Second, 0, 2, false, 0}, {10 * time.Second, 4, 1, false, 0},
			{11 * time.Second, 4, 25, true, 0},
		}},
		"as often as it changes": {second, 0, []step{
			{0, 1, 10, true, 0}, {time.Second, 2, 0, true, 0}, {2 * time.Second, 3, 0, true, 0},
			{3 * time.Second, 4, 0, true, 0}, {4 * time.Second, 5, 0, true, 0},
			{5 * time.Second, 6, 0, true, 0}, {6 * time.Second, 7, 0, true, 0}, {7 * time.Second, 8, 0, true, 0},
			{8 * time.Second, 9, 0, true, 0},
			{9 * time.Second, 10, 0, true, 0}, {10 * time.Second, 11, 0, true, 0}, {10 * time.Second, 11, 1, false, 0},
			{40 * time.Second, 11, 1, true, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := c.steps[0].replicas
			s := open(t, scoped.Options{Replicas: func() int { return replicas }, Began: start + int64(c.began)})
			for i, st := range c.steps {
				replicas = st.replicas
				allowed, outs := try(t, s, start+int64(st.at), costing(take(t, 1, c.limit, bucket.Split, 0), st.cost))
				if allowed != st.allowed || outs[0].Remaining != st.left {
					t.Fatalf("step %d: %+v: %t, %+v", i, st, allowed, outs[0])
				}
			}
		})
	}
}

// A rule that changes while the number of replicas does goes through all of it in order.
func TestSplitOfAChangedRule(t *testing.T) {
	replicas := 1
	s := open(t, scoped.Options{Replicas: func() int { return replicas }, Began: start})
	old := take(t, 1, rate.Limit{Tokens: 10, Per: time.Second, Burst: 100}, bucket.Split, 0)
	if allowed, _ := try(t, s, start, costing(old, 100)); !allowed {
		t.Fatal("a full bucket denied")
	}
	replicas = 2 // from 4 s on, when this replica hears of it by another bucket
	try(t, s, start+int64(4*time.Second), costing(take(t, 2, second, bucket.Split, 0), 0))
	changed := take(t, 1, rate.Limit{Tokens: 20, Per: time.Second, Burst: 60}, bucket.Split, 0)
	changed.Since, changed.Before = start+int64(6*time.Second), &rate.Past{Shape: old.Shape}
	// 100 owed at 0 s, 60 of them at 4 s, cut to a burst of 50, of which 40 at 6 s, cut to 30; 10 a
	// second from then on.
	_, outs := try(t, s, start+int64(7*time.Second), costing(changed, 0))
	if outs[0].Remaining != 10 {
		t.Errorf("at 7 s %d are left, want 10", outs[0].Remaining)
	}
}

// Who has no part yet is not told to wait until the smallest part there is has a token, but for its part.
func TestWithoutAPartTheWaitIsShort(t *testing.T) {
	s := open(t, scoped.Options{Replicas: func() int { return 0 }, Began: start})
	for _, c := range []struct {
		cost int64
		want bucket.Outcome
	}{
		{1, bucket.Outcome{RetryAfter: time.Second, ResetAfter: time.Second}},
		{10, bucket.Outcome{RetryAfter: time.Second, ResetAfter: time.Second}},
		{11, bucket.Outcome{Never: true, ResetAfter: time.Second}},
	} {
		if allowed, outs := try(t, s, start, costing(take(t, 1, second, bucket.Split, 0), c.cost)); allowed ||
			outs[0] != c.want {
			t.Errorf("%d tokens: %t, %+v, want %+v", c.cost, allowed, outs[0], c.want)
		}
	}
}

// fleet is replicas that divide a limit, as a program.
type fleet struct {
	world    *simulate.World
	stores   []*scoped.Store
	known    []int // how many replicas each one believes there are
	live     []bool
	envelope simulate.Envelope
	take     bucket.Take
}

func (f *fleet) now() int64 { return start + int64(f.world.Now()) }

// believe has all who live hear of how many there are, each some time later.
func (f *fleet) believe(lag time.Duration) {
	n := 0
	for _, lives := range f.live {
		if lives {
			n++
		}
	}
	for i := range f.known {
		f.world.After(f.world.Between(0, lag), func() { f.known[i] = n })
	}
}

func (f *fleet) join(t testing.TB, lag time.Duration) {
	i := len(f.stores)
	f.live = append(f.live, true)
	f.known = append(f.known, 0)
	for _, lives := range f.live { // who joins has read the list
		if lives {
			f.known[i]++
		}
	}
	f.stores = append(f.stores, open(t, scoped.Options{Replicas: func() int { return f.known[i] }, Began: f.now()}))
	f.believe(lag)
}

func (f *fleet) request(t testing.TB, i int) {
	if !f.live[i] {
		return
	}
	if allowed, _ := try(t, f.stores[i], f.now(), f.take); allowed {
		f.envelope.Admit(f.world.Now(), 1)
	}
}

// Replicas come and go at random, and hear of it up to a second later. In any interval all together
// admit the burst and the rate; what may be on top is the rate for as long as they disagree, and
// for every one that goes the burst that it may have used before.
func TestSplitHoldsWhileReplicasComeAndGo(t *testing.T) {
	for seed := range race.Fewer(uint64(12)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			l := rate.Limit{Tokens: 200 + r.Int64N(1000), Per: time.Second, Burst: 200 + r.Int64N(1000)}
			f := &fleet{world: simulate.New(seed), take: take(t, 1, l, bucket.Split, 0)}
			f.envelope.Shape = f.take.Shape
			const end, lag = 20 * time.Second, time.Second
			f.join(t, 0) // alone, and full
			more := 0.0
			for range 1 + r.IntN(7) {
				f.join(t, 0)
			}
			first := len(f.stores)
			for range r.IntN(4) {
				f.world.After(time.Duration(r.Int64N(int64(end))), func() { f.join(t, lag) })
				// one more part, while the others have not heard: at most as much again of two
				more += lag.Seconds() * float64(l.Tokens) / 2
			}
			for range r.IntN(min(3, first)) {
				gone := r.IntN(first)
				f.world.After(time.Duration(r.Int64N(int64(end))), func() { f.live[gone] = false; f.believe(lag) })
				more += float64(l.Burst)
			}
			for i := range 12 {
				f.world.Poisson(func(time.Duration) float64 { return 400 }, end, func() {
					if i < len(f.stores) {
						f.request(t, i)
					}
				})
			}
			f.world.Run(end)
			if over := float64(f.envelope.Excess()); over > more+float64(len(f.stores)) {
				t.Errorf("%+v: %v tokens above burst and rate, want %v at most", l, over, more)
			}
			if f.envelope.Admitted < 1000 {
				t.Errorf("%d admitted in all", f.envelope.Admitted)
			}
		})
	}
}

// While the number stands, nothing is on top: k replicas admit what one would.
func TestSplitAddsNothing(t *testing.T) {
	for _, k := range []int{1, 2, 3, 8, 50} {
		f := &fleet{
			world: simulate.New(uint64(k)),
			take:  take(t, 1, rate.Limit{Tokens: 1000, Per: time.Second, Burst: 500}, bucket.Split, 0),
		}
		f.envelope.Shape = f.take.Shape
		for range k {
			f.join(t, 0)
		}
		const end = 5 * time.Second
		for i := range k {
			f.world.Poisson(func(time.Duration) float64 { return 3000 / float64(k) }, end, func() { f.request(t, i) })
		}
		f.world.Run(end)
		if over := f.envelope.Excess(); over > 0 {
			t.Errorf("%d replicas admitted %d tokens above burst and rate", k, over)
		}
		if used := f.envelope.Utilisation(end, 15_000); used < 0.9 {
			t.Errorf("%d replicas admitted %.3f of the limit, want 0.9", k, used)
		}
	}
}

// However many limits there are, and in whatever order they come, each is divided by itself.
func TestManyLimitsAreDivided(t *testing.T) {
	const k = 3
	roomy, err := memory.New(memory.Options{MaxBuckets: 1 << 16}) // where none makes room for another
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, scoped.Options{Local: roomy, Replicas: func() int { return k }, Began: start})
	r := rand.New(rand.NewPCG(3, 9))
	now := start + int64(24*time.Hour) // parts have filled
	for i := range race.Fewer(4000) {
		burst := 10 + r.Int64N(500)
		one := take(t, uint64(i), rate.Limit{Tokens: 1 + r.Int64N(4), Per: time.Second, Burst: burst}, bucket.Split, 0)
		if allowed, outs := try(t, s, now, one); !allowed || outs[0].Remaining != burst/k-1 {
			t.Fatalf("limit %d, a burst of %d: %t, %+v, want %d left", i, burst, allowed, outs[0], burst/k-1)
		}
	}
}

// told is a local store that writes down what it is told of changes.
type told struct {
	*memory.Store
	settled []int64
}

func (t *told) Learn(since, settled int64) {
	t.settled = append(t.settled, settled)
	t.Store.Learn(since, settled)
}

// TestTheLocalStoreIsToldUntilWhenAChangeMatters: for a part as many times as long as for the whole, as it may hold one
// token of it. A part of any limit has filled by then.
func TestTheLocalStoreIsToldUntilWhenAChangeMatters(t *testing.T) {
	k, local := 1, &told{Store: table(t)}
	s := open(t, scoped.Options{Local: local, Replicas: func() int { return k }, Began: start})
	whole := take(t, 1, rate.Limit{Tokens: 5, Per: time.Minute, Burst: 10}, bucket.Split, 0)
	lifetime := whole.Shape.Settled(0, nil)
	ask := func(now int64) {
		t.Helper()
		try(t, s, now, whole)
	}
	ask(start)
	k = 2
	ask(start + 1) // no rules were told
	s.Learn(0, lifetime)
	s.Learn(start+2, start+2+lifetime)
	k = 3
	ask(start + 3)
	k = 1
	ask(start + 4)
	want := []int64{math.MaxInt64, 2 * lifetime, start + 2 + 2*lifetime, start + 3 + 3*lifetime, start + 4 + 3*lifetime}
	if !slices.Equal(local.settled, want) {
		t.Errorf("told that changes matter until %v, want %v", local.settled, want)
	}
	for k := 1; k < 100; k++ {
		if part := whole.Shape.Divide(k); part.Settled(0, nil) > int64(k)*lifetime {
			owes, most := time.Duration(part.Settled(0, nil)), time.Duration(int64(k)*lifetime)
			t.Errorf("a part of %d owes for %v, want %v at most", k, owes, most)
		}
	}
}
