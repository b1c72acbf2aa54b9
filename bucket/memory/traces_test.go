package memory

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// filling is a limit whose buckets take so long to fill.
func filling(t testing.TB, d time.Duration) rate.Shape {
	t.Helper()
	return compiled(t, rate.Limit{Tokens: 1, Per: d, Burst: 1})
}

// TestTracesNeverForget writes times near and far, of all kinds, under a clock that leaps about,
// and reads each back no earlier than it was written, until it has passed.
func TestTracesNeverForget(t *testing.T) {
	const day = int64(24 * time.Hour)
	shapes := make([]rate.Shape, 0, 2*classes)
	for c := range classes {
		toFull := min(5*time.Second<<(3*c), 1000*24*time.Hour)
		shape := filling(t, toFull)
		window := compiled(t, rate.Limit{Tokens: 1, Per: toFull, Burst: 1, Algorithm: rate.FixedWindow})
		shapes = append(shapes, shape, window)
	}
	for _, test := range []struct {
		lines, width int
		held         bool
	}{{1, 1, false}, {2, 7, false}, {60, 100, false}, {2, 1, true}, {60, 100, true}} {
		rng := rand.New(rand.NewPCG(2, 2))
		k := newTraces(test.lines, test.width)
		type trace struct{ fullAt, latest int64 }
		wrote := map[bucket.Take]trace{}
		now := int64(1_795_176_000_000_000_000)
		const first = 1 // of all changes
		if test.held {
			k.held = first
		}
		passed, exact := 0, 0
		steps := 3000
		if race.Enabled {
			steps = 1500
		}
		for step := range steps {
			switch rng.IntN(100) {
			case 0:
				now += rng.Int64N(20 * day)
			case 1:
				now -= rng.Int64N(day)
			case 2:
				now -= rng.Int64N(400 * day)
			case 3, 4, 5:
				now -= rng.Int64N(int64(10 * time.Second))
			default:
				now += rng.Int64N(int64(10 * time.Second))
			}
			for take, w := range wrote {
				w.latest = max(w.latest, now)
				wrote[take] = w
			}
			take := bucket.Take{
				Key:   key.Key{Lo: rng.Uint64N(40) * 0x9e3779b97f4a7c15},
				Shape: shapes[rng.IntN(len(shapes))],
			}
			ahead := int64(take.Shape.TimeToFull(take.Shape.Capacity))
			fullAt := saturating(now, rng.Int64N(3*ahead))
			if rng.IntN(10) == 0 {
				fullAt = saturating(now, []int64{1, day, 100 * day, 4000 * day, math.MaxInt64}[rng.IntN(5)])
			}
			k.raise(take.Key.Lo, kindOf(&take.Shape), fullAt, now)
			if before, ok := wrote[take]; !ok || fullAt > before.fullAt {
				wrote[take] = trace{fullAt, now}
			}
			if step%10 != 0 {
				continue
			}
			for take, want := range wrote {
				// What has passed may be forgotten, if no limit changed before, and it is not the end of a window.
				if want.latest >= want.fullAt && take.Shape.Algorithm.Drains() && !test.held {
					passed++
					continue
				}
				got := k.fullAt(now, first, &take)
				if got < want.fullAt {
					t.Fatalf("%+v, step %d: fullAt = %d, want %d or later (%v)", test, step, got, want.fullAt,
						time.Duration(want.fullAt-got))
				}
				exact++
			}
		}
		if passed == 0 && !test.held || exact < 1000 {
			t.Errorf("%+v: %d times passed, %d were read: this shows nothing", test, passed, exact)
		}
	}
}

// TestTracesAreCloseToTheTruth fills the ledger to what it is made for, and reads back nearly all
// times to a 1024th of the longest of their class, and nothing of keys that left no trace.
func TestTracesAreCloseToTheTruth(t *testing.T) {
	const slots = 1 << 14
	k := newTraces(slots*ledgerBytes/lineBytes, slots*laneBytes/(classes*rows*4))
	rng := rand.New(rand.NewPCG(3, 3))
	now := int64(1_795_176_000_000_000_000)
	shape := filling(t, time.Hour) // class 3
	unit := unitNS << (3 * 3)
	worse := 0
	type trace struct {
		take   bucket.Take
		fullAt int64
	}
	traces := make([]trace, 3*slots)
	for i := range traces {
		traces[i] = trace{bucket.Take{Key: key.Key{Lo: rng.Uint64()}, Shape: shape},
			now + 1 + rng.Int64N(int64(time.Hour))}
		k.raise(traces[i].take.Key.Lo, kindOf(&shape), traces[i].fullAt, now)
	}
	for _, tr := range traces {
		if got := k.fullAt(now, now, &tr.take); got < tr.fullAt {
			t.Fatalf("fullAt = %d, want %d or later", got, tr.fullAt)
		} else if got > tr.fullAt+unit {
			worse++
		}
	}
	if worse > len(traces)/200 {
		t.Errorf("%d of %d times are read later than they were written", worse, len(traces))
	}
	for _, other := range []rate.Shape{shape, filling(t, time.Minute), filling(t, 24*time.Hour)} {
		met := 0
		for range 10_000 {
			if k.fullAt(now, now, &bucket.Take{Key: key.Key{Lo: rng.Uint64()}, Shape: other}) > now {
				met++
			}
		}
		if other != shape && met > 0 || met > 50 {
			t.Errorf("%d of 10000 newcomers met the trace of another: %+v", met, other)
		}
	}
	empty := newTraces(3, 8)
	if got := empty.fullAt(now, now, &traces[0].take); got != math.MinInt64 {
		t.Errorf("fullAt of an empty ledger = %d", got)
	}
}

func TestClasses(t *testing.T) {
	for _, test := range []struct {
		toFull time.Duration
		want   class
	}{
		{0, 0}, {1, 0}, {8 * time.Second, 0}, {8*time.Second + 1, 1}, {64 * time.Second, 1}, {64*time.Second + 1, 2},
		{512 * time.Second, 2},
		{12 * time.Minute, 3}, {4096 * time.Second, 3}, {4096*time.Second + 1, 4}, {24 * time.Hour, 5},
		{300 * 24 * time.Hour, 7}, {math.MaxInt64, 7},
	} {
		if got := classOf(test.toFull); got != test.want {
			t.Errorf("classOf(%v) = %d, want %d", test.toFull, got, test.want)
		}
	}
}

func TestInherit(t *testing.T) {
	const now = int64(1_795_176_000_000_000_000)
	// an eighth of a second a token, 16 units of the ledger
	fine, err := rate.Compile(rate.Limit{Tokens: 8, Per: time.Second, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	coarse := rate.Shape{Drain: 7, Unit: 875_000, Capacity: 8_750_000, Tick: 1000} // the same
	const token = 125 * int64(time.Millisecond)
	tests := []struct {
		name   string
		fullAt int64
		shape  rate.Shape
		since  int64
		want   int64
	}{
		{"never evicted", 0, fine, 0, 0},
		{"owes until it is full", now + 3*token, fine, 0, 3 * fine.Unit},
		{"owes the burst at most", now + 30*token, fine, 0, fine.Capacity},
		{"is full again", now - 1, fine, 0, 0},
		{"owes a unit more for the ticks", now + 3*token, coarse, 0, 3*coarse.Unit + 1},
		{"was in debt when the rule changed", now - 4*token, fine, now - int64(time.Second) - 5*token, 5 * fine.Unit},
		{"was in debt when the rule changed, and is", now + 8*token, fine, now - int64(time.Second) - 5*token,
			8 * fine.Unit},
		{"was full when the rule changed", now - 9*token, fine, now - 2*token, 0},
		{"was in debt when the rule changed long ago", now - 4*token, fine, now - int64(time.Hour), 0},
		{"the rule changes later than now", now + token, fine, now + 20*token, fine.Capacity},
		{"beyond all times", math.MaxInt64, fine, 0, fine.Capacity},
	}
	for _, test := range tests {
		k, take := newTraces(4, 64), bucket.Take{Key: key.Key{Lo: 1 << 60}, Shape: test.shape, Since: test.since}
		if test.fullAt != 0 {
			k.raise(take.Key.Lo, kindOf(&take.Shape), test.fullAt, min(now, test.fullAt))
		}
		if got, want := k.inherit(now, &take), (bucket.State{Debt: test.want, Stamp: now}); got != want {
			t.Errorf("%s: inherit = %+v, want %+v", test.name, got, want)
		}
	}
}
