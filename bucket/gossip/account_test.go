package gossip

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

const ms = int64(time.Millisecond)

func shape(t testing.TB, perSecond, burst int64) rate.Shape {
	t.Helper()
	sh, err := rate.Compile(rate.Limit{Tokens: perSecond, Per: time.Second, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// A story of one bucket, of 100 a second and 100 at once, at one of three replicas: at a time
// something happens, and so many tokens remain.
func TestAccount(t *testing.T) {
	sh := shape(t, 100, 100)
	v := &Silence{Replicas: 3, After: 200 * time.Millisecond}
	a := Open(1, sh, 0)
	take := func(cost int64, want bool) func(int64) bool {
		return func(now int64) bool { return a.Take(now, v, cost) == want }
	}
	hear := func(from uint64, nth uint32, admitted, own int64, back bool) func(int64) bool {
		return func(now int64) bool {
			a.Hear(now, v, Teller{Name: from, Most: 100, Back: back},
				&Entry{Shape: sh, Nth: nth, Admitted: admitted, Own: own})
			return true
		}
	}
	told := func(want Entry) func(int64) bool {
		return func(now int64) bool {
			got := a.Tell(now, v)
			got.Owed, got.Shape = 0, rate.Shape{}
			if got != want {
				t.Logf("tells %+v", got)
			}
			return got == want
		}
	}
	for i, step := range []struct {
		at     int64
		what   string
		do     func(now int64) bool
		remain int64
	}{
		{0, "takes", take(10, true), 90},
		{0, "tells", told(Entry{Nth: 1, Admitted: 10, Own: 10}), 90},
		{0, "gives nothing back that it told of", func(now int64) bool { return !a.Return(now, 10, 0) }, 90},
		{0, "hears of another for the first time", hear(7, 4, 1000, 20, false), 70},
		{0, "hears the same again", hear(7, 4, 1000, 20, false), 70},
		{0, "hears what is late", hear(7, 4, 990, 10, false), 70},
		{0, "hears more", hear(7, 4, 1005, 25, false), 65},
		{0, "hears of an account that the other opened anew", hear(7, 5, 5, 5, false), 60},
		{0, "hears what is late, of the one before", hear(7, 4, 2000, 50, false), 60},
		{100 * ms, "lets it drain", take(0, true), 70},
		{100 * ms, "takes what is left", take(70, true), 0},
		{100 * ms, "and no more", take(1, false), 0},
		{100 * ms, "gives back", func(now int64) bool { return a.Return(now, 30, now) }, 30},
		{100 * ms, "hears of debts beyond the burst", hear(8, 1, 80, 80, false), 0},
		{200 * ms, "tells", told(Entry{Nth: 1, Admitted: 50, Own: 50}), 0},
		{600 * ms, "waits for them", take(1, false), 0},
		{610 * ms, "and not longer", take(1, true), 0},
		{610 * ms, "hears that another claims more than a bucket of its own allows", hear(8, 1, 10_000, 100, false), 0},
		{610 * ms, "tells", func(now int64) bool { a.Tell(now, v); return true }, 0},
		// Of that it owes what it may have been: 100, and 20 that were late, less 29 of before. The rest comes to
		// be owed as fast as it drains, up to what three may owe together.
		{1600 * ms, "owes more as time passes", take(1, false), 0},
		{4000 * ms, "and longer than if all had been owed at once", take(1, true), 39},
	} {
		if !step.do(step.at) {
			t.Errorf("step %d, at %v: not so: %s", i, time.Duration(step.at), step.what)
		}
		var o bucket.Outcome
		a.Describe(&o, step.at, 0, true)
		if o.Remaining != step.remain {
			t.Errorf("step %d, at %v, %s: %d remain, want %d", i, time.Duration(step.at), step.what,
				o.Remaining, step.remain)
		}
	}
}

// One of two that is silent is presumed to admit half of the rate: what drains for the other is the
// other half. What it says afterwards is debited less that, once.
func TestSilence(t *testing.T) {
	sh := shape(t, 100, 100)
	v := &Silence{Replicas: 2, After: 200 * time.Millisecond, Silent: []Silent{{Name: 7, Since: 0}}}
	heard := &Silence{Replicas: 2, After: 200 * time.Millisecond}
	remain := func(a *Account, now int64) int64 {
		var o bucket.Outcome
		a.Describe(&o, now, 0, true)
		return o.Remaining
	}
	for _, c := range []struct {
		said, want int64 // after a second, in which it admitted so much
	}{{0, 50}, {30, 50}, {50, 50}, {70, 30}} {
		a := Open(1, sh, 0)
		if !a.Take(0, v, 100) || a.Take(999*ms, v, 51) || !a.Take(1000*ms, v, 0) {
			t.Fatal("half of the rate drains, want that")
		}
		a.Hear(1000*ms, heard, Teller{Name: 7, Most: 100, Back: true},
			&Entry{Shape: sh, Nth: 1, Admitted: c.said, Own: c.said})
		if got := remain(&a, 1000*ms); got != c.want {
			t.Errorf("after it said %d: %d remain, want %d", c.said, got, c.want)
		}
		a.Hear(1000*ms, heard, Teller{Name: 7, Most: 100, Back: true},
			&Entry{Shape: sh, Nth: 1, Admitted: c.said + 10, Own: c.said + 10})
		if got := remain(&a, 1000*ms); got != c.want-10 {
			t.Errorf("after it said %d and 10 more: %d remain, want %d", c.said, got, c.want-10)
		}
	}
	// Long after it came back nothing is reconciled any more.
	a := Open(1, sh, 0)
	a.Take(0, v, 100)
	a.Take(1000*ms, v, 0)
	a.Hear(2000*ms, heard, Teller{Name: 7, Most: 100}, &Entry{Shape: sh, Nth: 1, Admitted: 40, Own: 40})
	if got := remain(&a, 2000*ms); got != 60 {
		t.Errorf("%d remain, want 60: what was presumed has drained", got)
	}
}

// A change of the limit keeps what is owed, in tokens.
func TestChange(t *testing.T) {
	from, to := shape(t, 100, 100), shape(t, 10, 50)
	v := &Silence{Replicas: 2, After: time.Second}
	a := Open(1, from, 0)
	a.Take(0, v, 80)
	a.Tell(0, v)
	a.Change(0, 2, &to)
	if a.Take(2990*ms, v, 1) || !a.Take(3100*ms, v, 1) {
		t.Error("80 owed of 50 at 10 a second do not hold for 3.1 s")
	}
}

// What was told of is not given back in the place of what was admitted since: others would hear of
// it as of earlier, and have let it drain.
func TestNothingIsGivenBackInThePlaceOfWhatWasTold(t *testing.T) {
	sh := shape(t, 100, 10)
	v := &Silence{Replicas: 2, After: 200 * time.Millisecond}
	a := Open(1, sh, 0)
	a.Take(0, v, 5) // is denied elsewhere, 61 ms later
	a.Tell(0, v)
	if !a.Take(60*ms, v, 5) || a.Return(61*ms, 5, 0) {
		t.Error("what a message has told of is given back")
	}
	if !a.Return(61*ms, 5, 60*ms) {
		t.Error("what no message has told of is not given back")
	}
}

// A change of the limit restates what others claimed: in units of the limit before, it would stand
// in the way of all that they say from then on, or of nothing.
func TestClaimsThroughAChange(t *testing.T) {
	perDay, err := rate.Compile(rate.Limit{Tokens: 7, Per: 24 * time.Hour, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	v := &Silence{Replicas: 2, After: 200 * time.Millisecond}
	for _, c := range []struct{ from, to rate.Shape }{{perDay, shape(t, 1000, 100)}, {shape(t, 1000, 100), perDay}} {
		a := Open(1, c.from, 0)
		hear := func(now, admitted int64) int64 {
			said := Entry{Shape: a.Shape(), Nth: 1, Admitted: admitted, Own: admitted}
			a.Hear(now, v, Teller{Name: 7, Most: 100}, &said)
			return a.Look(now).Owed
		}
		if owed := hear(0, 50); owed != 50 {
			t.Fatalf("%d are owed, want the 50 that another admitted", owed)
		}
		a.Change(0, 2, &c.to)
		if owed := hear(0, 90); owed != 90 {
			t.Errorf("from %+v to %+v: %d are owed, want 50, and 40 since", c.from, c.to, owed)
		}
		if owed := hear(0, 500); owed > 200 {
			t.Errorf("from %+v to %+v: %d are owed, want no more than two bursts", c.from, c.to, owed)
		}
	}
}

// One that joins owes what others told it and what it admitted meanwhile.
func TestAdoptBesideOnesOwn(t *testing.T) {
	sh := shape(t, 100, 100)
	v := &Silence{Replicas: 2, After: 200 * time.Millisecond}
	a := Open(1, sh, 0)
	a.Take(0, v, 5)
	a.Adopt(0, 2, &Entry{Shape: sh, Nth: 1, Admitted: 30, Own: 30, Owed: 30}, []Count{{7, 1, 30, 0}})
	if owed := a.Look(0).Owed; owed != 35 {
		t.Errorf("%d are owed, want 30 and 5", owed)
	}
}

// What another gave back comes back here: once, what has not drained, and nothing that others owe.
func TestOthersGiveBack(t *testing.T) {
	sh := shape(t, 100, 100)
	v := &Silence{Replicas: 3, After: 200 * time.Millisecond}
	a := Open(1, sh, 0)
	hear := func(from uint64, nth uint32, admitted, returned, own int64) func(int64) {
		return func(now int64) {
			a.Hear(now, v, Teller{Name: from, Most: 100},
				&Entry{Shape: sh, Nth: nth, Admitted: admitted, Returned: returned, Own: own})
		}
	}
	for i, step := range []struct {
		at   int64
		what string
		do   func(now int64)
		owed int64
	}{
		{0, "hears of 60", hear(7, 1, 60, 0, 60), 60},
		{0, "of which 40 were not spent", hear(7, 1, 60, 40, 20), 20},
		{0, "hears that again", hear(7, 1, 60, 40, 20), 20},
		{0, "hears what is late", hear(7, 1, 60, 0, 60), 20},
		{0, "hears of more, and more that was not spent", hear(7, 1, 90, 50, 40), 40},
		{0, "hears of a third", hear(8, 1, 30, 0, 30), 70},
		{100 * ms, "lets it drain", func(int64) {}, 60},
		{100 * ms, "hears that the first gave back more than it owes", hear(7, 1, 90, 1_000_000, 0), 30},
		{100 * ms, "and that it admitted what it had given back", hear(7, 1, 120, 1_000_000, 30), 60},
		{400 * ms, "lets that drain", func(int64) {}, 30},
		{400 * ms, "of which nothing comes back that has", hear(7, 1, 120, 1_000_030, 0), 30},
		{400 * ms, "hears of an account that it opened anew", hear(7, 2, 50, 20, 30), 60},
		{400 * ms, "hears for the first time of one that gave back before", hear(9, 1, 500, 400, 10), 70},
		{400 * ms, "and of what that admitted since", hear(9, 1, 510, 400, 20), 80},
		{400 * ms, "and gave back", hear(9, 1, 510, 415, 5), 65},
	} {
		step.do(step.at)
		if owed := a.Look(step.at).Owed; owed != step.owed {
			t.Errorf("step %d, at %v, %s: %d are owed, want %d", i, time.Duration(step.at), step.what, owed, step.owed)
		}
	}
	// The rest of tokens that limits divide is not lost.
	b := Open(1, sh, 0)
	b.Take(0, v, 10)
	b.Tell(0, v)
	for range 3 {
		b.Correct(0, v, &bucket.Change{Shape: sh, Units: -sh.Unit / 2, Charged: 0})
	}
	if e := b.Tell(0, v); e.Admitted != 10 || e.Returned != 3/2 {
		t.Errorf("after three halves were given back: tells %+v, want 10 admitted and 1 returned", e)
	}
}
