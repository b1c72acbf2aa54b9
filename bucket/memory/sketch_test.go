package memory

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// TestSketchNeverForgets writes times near and far under a clock that leaps about, and reads each back no earlier than it was written.
func TestSketchNeverForgets(t *testing.T) {
	const day = int64(24 * time.Hour)
	rng := rand.New(rand.NewPCG(2, 2))
	for _, width := range []int{1, 7, 1000} {
		k := newSketch(width)
		wrote := map[uint64]int64{}
		now := int64(1_795_176_000_000_000_000)
		for step := range 3000 {
			switch rng.IntN(20) {
			case 0:
				now += rng.Int64N(20 * day)
			case 1:
				now -= rng.Int64N(day)
			case 2:
				now -= rng.Int64N(400 * day)
			default:
				now += rng.Int64N(int64(time.Minute))
			}
			fp := rng.Uint64N(500) * 0x9e3779b97f4a7c15
			fullAt := now + []int64{1, int64(time.Second), day, 100 * day}[rng.IntN(4)] + rng.Int64N(1e9)
			k.raise(fp, fullAt, now)
			if before, ok := wrote[fp]; !ok || fullAt > before {
				wrote[fp] = fullAt
			}
			if step%10 != 0 {
				continue
			}
			for fp, want := range wrote {
				if got := k.fullAt(fp); got < want {
					t.Fatalf("width %d, step %d: fullAt = %d, want %d or later (%v)", width, step, got, want, time.Duration(want-got))
				}
			}
		}
	}
}

func TestSketchIsCloseToTheTruth(t *testing.T) {
	k := newSketch(1 << 16)
	rng := rand.New(rand.NewPCG(3, 3))
	now := int64(1_795_176_000_000_000_000)
	late := 0
	for range 10_000 {
		fp, fullAt := rng.Uint64(), now+rng.Int64N(int64(time.Hour))
		before := k.fullAt(fp)
		k.raise(fp, fullAt, now)
		switch got := k.fullAt(fp); {
		case before > fullAt:
			late++
		case got < fullAt || got > fullAt+perMS:
			t.Fatalf("fullAt = %d, want %d to the millisecond", got, fullAt)
		}
	}
	// (1-e^(-10/65))^4 = 0.0004 of those that come last
	if late > 10 {
		t.Errorf("%d of 10000 keys found all of their cells written by others", late)
	}
	k = newSketch(8)
	if got := k.fullAt(5); got != math.MinInt64 {
		t.Errorf("fullAt of an empty sketch = %d", got)
	}
}

func TestInherit(t *testing.T) {
	const now = int64(1_795_176_000_000_000_000)
	fine, err := rate.Compile(rate.Limit{Tokens: 10, Per: time.Second, Burst: 10}) // a tenth of a second a token
	if err != nil {
		t.Fatal(err)
	}
	coarse := rate.Shape{Drain: 7, Unit: 700_000, Capacity: 7_000_000, Tick: 1000} // the same
	const token = 100 * int64(time.Millisecond)
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
		{"was in debt when the rule changed, and is", now + 8*token, fine, now - int64(time.Second) - 5*token, 8 * fine.Unit},
		{"was full when the rule changed", now - 9*token, fine, now - 2*token, 0},
		{"was in debt when the rule changed long ago", now - 4*token, fine, now - int64(time.Hour), 0},
		{"the rule changes later than now", now + token, fine, now + 20*token, fine.Capacity},
		{"beyond all times", math.MaxInt64, fine, 0, fine.Capacity},
	}
	for _, test := range tests {
		k, take := newSketch(64), bucket.Take{Key: key.Key{Lo: 1 << 60}, Shape: test.shape, Since: test.since}
		if test.fullAt != 0 {
			k.raise(take.Key.Lo, test.fullAt, min(now, test.fullAt))
		}
		if got, want := k.inherit(now, &take), (bucket.State{Debt: test.want, Stamp: now}); got != want {
			t.Errorf("%s: inherit = %+v, want %+v", test.name, got, want)
		}
	}
}
