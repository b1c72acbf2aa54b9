package bucket_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

func TestLog(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 10, Per: 25 * time.Second, Burst: 10, Algorithm: rate.SlidingLog})
	const second = time.Second
	steps := []step{
		{900 * time.Millisecond, 4, bucket.Outcome{Allowed: true, Remaining: 6, ResetAfter: 25100 * time.Millisecond}},
		{5 * second, 6, bucket.Outcome{Allowed: true, ResetAfter: 26 * second}},
		{25900 * time.Millisecond, 1, bucket.Outcome{RetryAfter: 100 * time.Millisecond,
			ResetAfter: 5100 * time.Millisecond}},
		{26*second - 1, 4, bucket.Outcome{RetryAfter: 1, ResetAfter: 5*second + 1}},
		{26*second - 1, 5, bucket.Outcome{RetryAfter: 5*second + 1, ResetAfter: 5*second + 1}},
		{26 * second, 4, bucket.Outcome{Allowed: true, ResetAfter: 26 * second}},
		// the clock was set back
		{10 * second, 1, bucket.Outcome{RetryAfter: 21 * second, ResetAfter: 42 * second, Later: 16 * second}},
		{30 * second, 0, bucket.Outcome{Allowed: true, ResetAfter: 22 * second}},
		{30 * second, 11, bucket.Outcome{Never: true, ResetAfter: 22 * second}},
		{31 * second, 6, bucket.Outcome{Allowed: true, ResetAfter: 26 * second}},
		{time.Hour, 10, bucket.Outcome{Allowed: true, ResetAfter: 26 * second}},
	}
	var l bucket.Log
	for i, step := range steps {
		var got bucket.Outcome
		if l, got = l.Take(int64(step.at), shape, step.cost); got != step.want {
			t.Fatalf("step %d: Take(%v, %d) = %+v, want %+v", i, step.at, step.cost, got, step.want)
		}
	}
}

func TestLogRefund(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 10, Per: 25 * time.Second, Burst: 10, Algorithm: rate.SlidingLog})
	at := func(seconds float64) int64 { return int64(seconds * float64(time.Second)) }
	l, _ := bucket.Log{}.Take(at(3.5), shape, 4)
	l, _ = l.Take(at(4.5), shape, 2)
	for now, want := range map[float64]int64{4.6: 8, 20: 8, 28.9: 8, 29: 8, 30: 10} {
		if _, o := l.Refund(at(now), &shape, 4, at(3.5)).Take(at(now), shape, 0); o.Remaining != want {
			t.Errorf("refund at %v s leaves %d, want %d", now, o.Remaining, want)
		}
	}
	if got := l.Refund(at(4.6), &shape, 9, at(4.5)); got.Counts[0] != 0 || got.Counts[1] != 4 {
		t.Errorf("a refund of too much leaves %v", got.Counts)
	}
	if got := l.Refund(at(4.6), &shape, 9, math.MinInt64); got != l {
		t.Errorf("a refund of what is long gone leaves %v", got)
	}
}

// FuzzLogAgainstLedger compares a log with everything that was ever admitted: never more than the
// limit in any window, a denial only when the window and a cell hold too much, and every answer
// exact.
func FuzzLogAgainstLedger(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 2))
	for range 40 {
		f.Add(rng.Int64()>>rng.IntN(63), rng.Int64()>>rng.IntN(63), rng.Uint64(), rng.Uint64())
	}
	f.Add(int64(10), int64(25e9), uint64(0), uint64(1))
	f.Add(int64(1<<32-1), int64(1<<61), uint64(1<<63), uint64(2))
	f.Add(int64(3), int64(1), uint64(9), uint64(3))
	f.Fuzz(func(t *testing.T, tokens, per int64, lo, seed uint64) {
		shape, err := rate.Compile(rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: tokens,
			Algorithm: rate.SlidingLog})
		if err != nil {
			return
		}
		k := key.Key{Lo: lo}
		rng := rand.New(rand.NewPCG(seed, 5))
		l, now := bucket.FullLog(k, &shape), rng.Int64N(math.MaxInt64/2)
		width := (per-1)/bucket.LogCells + 1
		var entries []entry
		since := func(from int64) (sum int64) {
			for _, e := range entries {
				if e.at > from {
					sum += e.cost
				}
			}
			return sum
		}
		for range 60 {
			now += rng.Int64N(per) >> rng.IntN(6)
			if now > math.MaxInt64/4*3 {
				return
			}
			cost := 1 + rng.Int64N(shape.Capacity)>>rng.IntN(8)
			after, got := l.Take(now, shape, cost)
			if got.Allowed && since(now-per) > shape.Capacity-cost {
				t.Fatalf("%+v.Take(%d, %d) admits more than %d within %d ns", l, now, cost, shape.Capacity, per)
			}
			if !got.Allowed && since(now-26*width) <= shape.Capacity-cost {
				t.Fatalf("%+v.Take(%d, %d) = %+v, though there is room", l, now, cost, got)
			}
			if retry := int64(got.RetryAfter); !got.Allowed {
				if _, o := l.Take(now+retry, shape, cost); !o.Allowed {
					t.Fatalf("%+v.Take(%d, %d) = %+v, and then %+v", l, now, cost, got, o)
				}
				if _, o := l.Take(now+retry-1, shape, cost); o.Allowed {
					t.Fatalf("%+v.Take(%d, %d) = %+v, and a nanosecond before %+v", l, now, cost, got, o)
				}
			} else {
				entries = append(entries, entry{now, cost})
			}
			l = after
			for _, test := range []struct{ at, used int64 }{{l.FullAt(&shape), 0},
				{now, shape.Capacity - got.Remaining}} {
				if test.at == math.MaxInt64 {
					continue // and beyond
				}
				if _, o := l.Take(test.at, shape, 0); o.Remaining != shape.Capacity-test.used {
					t.Fatalf("%+v at %d: %+v, want %d used", l, test.at, o, test.used)
				}
			}
			if got := bucket.SpentLog(k, &shape, l.FullAt(&shape)); l.FullAt(&shape) < math.MaxInt64 &&
				got.FullAt(&shape) != l.FullAt(&shape) {
				t.Fatalf("a spent log is full at %d, want %d", got.FullAt(&shape), l.FullAt(&shape))
			}
		}
	})
}

// FuzzLogNeverPanics has any log, key and time meet any limit that compiles.
func FuzzLogNeverPanics(f *testing.F) {
	f.Add(int64(5), int64(1e9), uint64(7), uint64(1), int64(math.MinInt64), int64(math.MaxInt64), int64(3))
	f.Add(int64(1<<32-1), int64(1<<61), uint64(math.MaxUint64), uint64(2), int64(math.MaxInt64),
		int64(math.MinInt64), int64(1))
	f.Fuzz(func(t *testing.T, tokens, per int64, lo, seed uint64, stamp, now, cost int64) {
		shape, err := rate.Compile(rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: tokens,
			Algorithm: rate.SlidingLog})
		if err != nil {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		random := bucket.Log{Stamp: stamp}
		for i := range random.Counts {
			random.Counts[i] = rng.Uint32() >> rng.IntN(40)
		}
		k := key.Key{Lo: lo}
		for _, l := range []bucket.Log{random, bucket.FullLog(k, &shape), bucket.SpentLog(k, &shape, stamp),
			bucket.OwingLog(k, &shape, math.MaxInt64, stamp)} {
			after, o := l.Take(now, shape, cost)
			if o.Remaining < 0 || o.Remaining > shape.Capacity || o.RetryAfter < 0 || o.ResetAfter < 0 ||
				after.Stamp < l.Stamp {
				t.Fatalf("%+v.Take(%d, %+v, %d) = %+v, %+v", l, now, shape, cost, after, o)
			}
			after.Refund(now, &shape, max(0, min(cost, shape.Capacity)), stamp)
			after.Add(now, &shape, shape.Capacity)
			if owed := after.Owed(&shape, stamp); owed < 0 || after.FullAt(&shape) < after.Stamp {
				t.Fatalf("%+v owes %d, is full at %d", after, owed, after.FullAt(&shape))
			}
		}
	})
}

// TestLaterSaysWhatIsGivenBack: a take whose clock was read before the latest cell began counts in that
// one, and is given back by the time that its outcome says.
func TestLaterSaysWhatIsGivenBack(t *testing.T) {
	sh := compile(t, rate.Limit{Tokens: 10, Per: 25 * time.Second, Burst: 10, Algorithm: rate.SlidingLog})
	const second = int64(time.Second)
	early, late := 100*second-1, 100*second
	var l bucket.Log
	charged := map[int64]int64{}
	for _, at := range []int64{late, early, early} { // the first has overtaken the others
		var o bucket.Outcome
		if l, o = l.Take(at, sh, 1); !o.Allowed {
			t.Fatal("a take was denied")
		}
		charged[at+int64(o.Later)]++
	}
	if charged[late] != 3 {
		t.Fatalf("charged at %v, want 3 at %d", charged, late)
	}
	if left := l.Refund(late, &sh, 3, late).Owed(&sh, late); left != 0 {
		t.Errorf("%d are owed after all were given back", left)
	}
}

// TestTakeNowIsChargeAndReport: where the latest cell holds now it answers and leaves what they do, elsewhere nothing.
func TestTakeNowIsChargeAndReport(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 10, Per: 25 * time.Second, Burst: 10, Algorithm: rate.SlidingLog})
	const noon = int64(1_795_176_000_000_000_000)
	rng, taken := rand.New(rand.NewPCG(1, 2)), 0
	for range 200_000 {
		l := bucket.Log{Stamp: noon}
		for range rng.IntN(4) {
			l.Counts[rng.IntN(len(l.Counts))] += uint32(rng.IntN(6)) // may be more than a limit that was lowered
		}
		now, units, commit := noon+rng.Int64N(int64(1200*time.Millisecond))-int64(100*time.Millisecond),
			rng.Int64N(12), rng.IntN(2) == 0
		want, allowed := l.Charge(now, &shape, units)
		var said, answer bucket.Outcome
		want.Report(&said, now, &shape, units, allowed)
		if !commit {
			want = l
		}
		after := l
		switch got, done := after.TakeNow(now, &shape, units, commit, &answer); {
		case done != (now >= noon && now < noon+int64(time.Second)):
			t.Fatalf("%+v, %v after its latest cell began: done = %t", l, time.Duration(now-noon), done)
		case !done && (after != l || answer != bucket.Outcome{}):
			t.Fatalf("%+v became %+v, %+v, want nothing done", l, after, answer)
		case done && (got != allowed || after != want || answer != said):
			t.Fatalf("%d of %+v: %t, %+v, %+v, want %t, %+v, %+v", units, l, got, after, answer, allowed, want, said)
		case done:
			taken++
		}
	}
	if taken < 100_000 {
		t.Errorf("%d were in the latest cell: this shows little", taken)
	}
}

// TestRenewBeforeTheLatestCell: who renews a place with the time of a moment ago, after somebody else came in a cell
// that has begun since, finds it again the next time, and in the end as well.
func TestRenewBeforeTheLatestCell(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 2, Per: 25 * time.Second, Burst: 2, Algorithm: rate.SlidingLog})
	at := func(d time.Duration) int64 { return int64(time.Hour + d) }
	log, _ := bucket.Log{}.Charge(at(0), &shape, 1)
	log, _ = log.Charge(at(10*time.Second), &shape, 1) // another
	since := at(10*time.Second - 1)
	log, renewed := log.Renew(since, &shape, 1, at(0))
	if renewed != 1 {
		t.Fatalf("%d were renewed", renewed)
	}
	for _, now := range []int64{at(18 * time.Second), at(20 * time.Second)} {
		if log, renewed = log.Renew(now, &shape, 1, since); renewed != 1 || log.Owed(&shape, now) != 2 {
			t.Errorf("%d were renewed of one, and %d count", renewed, log.Owed(&shape, now))
		}
		since = now
	}
	if log, back := log.Shift(at(21*time.Second), &shape, -1, since); back != -1 || log.Owed(&shape, since) != 1 {
		t.Errorf("%d were given back, and %d count", back, log.Owed(&shape, since))
	}
}
