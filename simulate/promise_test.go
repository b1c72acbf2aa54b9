package simulate_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/simulate"
)

// What is admitted beyond a promise, told at literal times.
func TestPromise(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		at    time.Duration
		set   [2]float64
		add   float64
		until time.Duration
		admit int64
	}
	for name, c := range map[string]struct {
		steps []step
		want  float64
		at    time.Duration
	}{
		"the burst, and what drains": {[]step{{set: [2]float64{10, 5}}, {at: 0, admit: 5}, {at: 100 * ms, admit: 1}}, 0,
			0},
		"one too many": {[]step{{set: [2]float64{10, 5}}, {at: 0, admit: 5}, {at: 50 * ms, admit: 1}},
			0.5, 50 * ms},
		"a larger burst later": {[]step{{set: [2]float64{10, 5}}, {admit: 5}, {set: [2]float64{10, 8}}, {admit: 3}},
			0, 0},
		"a smaller one, and again": {[]step{{set: [2]float64{0, 5}}, {admit: 5}, {set: [2]float64{0, 2}},
			{set: [2]float64{0, 5}}, {admit: 4}}, 1, 0},
		"a slower rate": {[]step{{set: [2]float64{10, 5}}, {admit: 5}, {at: 100 * ms, set: [2]float64{1, 5}},
			{at: 1100 * ms, admit: 3}}, 1, 1100 * ms},
		"a fault adds": {[]step{{set: [2]float64{10, 5}}, {admit: 5}, {add: 3, until: 100 * ms}, {admit: 3}}, 0,
			0},
		"a fault of long ago": {[]step{{set: [2]float64{10, 5}}, {add: 3, until: 100 * ms}, {at: 200 * ms, admit: 8}},
			3, 200 * ms},
	} {
		var p simulate.Promise
		for _, s := range c.steps {
			switch {
			case s.set != [2]float64{}:
				p.Set(s.at, s.set[0], s.set[1])
			case s.add > 0:
				p.Add(s.at, s.until, s.add)
			default:
				p.Admit(s.at, s.admit)
			}
		}
		if got, at := p.Worst(); math.Abs(got-c.want) > 1e-9 || at != c.at {
			t.Errorf("%s: %.2f tokens beyond the promise at %v, want %.2f at %v", name, got, at, c.want, c.at)
		}
	}
}

func TestShrink(t *testing.T) {
	trials := 0
	kept := simulate.Shrink(100, 1000, func(kept []int) bool {
		trials++
		return slices.Contains(kept, 17) && slices.Contains(kept, 64)
	})
	if !slices.Equal(kept, []int{17, 64}) || trials > 60 {
		t.Errorf("after %d trials %v are left, want 17 and 64 within 60", trials, kept)
	}
	if kept := simulate.Shrink(100, 3, func([]int) bool { return false }); len(kept) != 100 {
		t.Errorf("%d are left where all are needed and three trials may be made, want 100", len(kept))
	}
}
