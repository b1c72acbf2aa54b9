package rate_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func shapeOf(t *testing.T, l rate.Limit) rate.Shape {
	t.Helper()
	s, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func length(p *rate.Past) (n int) {
	for ; p != nil; p = p.Before {
		n++
	}
	return n
}

// TestPastEndsWhereNothingCanBeOwed: limits before one that lasted until every bucket was full again are left out.
func TestPastEndsWhereNothingCanBeOwed(t *testing.T) {
	minute := shapeOf(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 60}) // full after a minute
	window := shapeOf(t, rate.Limit{Tokens: 10, Per: 20 * time.Second, Burst: 10, Algorithm: rate.SlidingWindow})
	first := int64(time.Hour)
	for _, test := range []struct {
		name   string
		before rate.Shape
		shape  rate.Shape
		lasts  time.Duration
		want   int
	}{
		{"debts, too short", minute, minute, time.Minute, 2},
		{"debts, and the margin for those who resolved their rules before", minute, minute,
			time.Minute + 2*time.Second, 1},
		{"windows, too short", minute, window, time.Minute, 2},
		{"windows", minute, window, time.Minute + 2*time.Second, 1},
		{"debts after windows that begin up to one later, too short", window, minute, time.Minute + 20*time.Second, 2},
		{"debts after windows that begin up to one later", window, minute, time.Minute + 22*time.Second, 1},
	} {
		before := test.before.Replaced(0, nil, first)
		past := test.shape.Replaced(first, before, first+int64(test.lasts))
		if got := length(past); got != test.want || past.Shape != test.shape || past.Since != first {
			t.Errorf("%s: the past has %d limits, the last %+v, want %d", test.name, got, past, test.want)
		}
		if got := length(test.shape.Recall(first, before, first+int64(test.lasts))); got != test.want-1 {
			t.Errorf("%s: the limit recalls %d others, want %d", test.name, got, test.want-1)
		}
	}
}

// TestPastIsBounded: beyond MaxPast nothing is known but since when limits changed.
func TestPastIsBounded(t *testing.T) {
	var past *rate.Past
	since := int64(0)
	for i := range int64(50) {
		limit := rate.Limit{Tokens: 1, Per: time.Duration(1+i) * time.Hour, Burst: 1}
		if i == 20 {
			limit.Algorithm = rate.FixedWindow
		}
		shape := shapeOf(t, limit)
		now := (1 + i) * int64(time.Second)
		past = shape.Replaced(since, past, now)
		since = now
		if n := length(past); n > rate.MaxPast {
			t.Fatalf("after %d changes the past has %d limits, want %d at most", i+1, n, rate.MaxPast)
		}
	}
	last := past
	for last.Before != nil {
		last = last.Before
	}
	if last.Shape != (rate.Shape{}) || last.Since != int64(time.Second) {
		t.Errorf("the past begins with %+v, want it unknown since the first change at 1 s", last)
	}
	if want := 21 * time.Hour; last.Window != want {
		t.Errorf("the longest window of the unknown limits is %v, want %v", last.Window, want)
	}
	if again := (rate.Shape{Unit: 1}).Recall(since, past, since); again.Before == past.Before {
		t.Errorf("Recall kept all %d limits, want room for one more", length(again))
	}
}

// TestSettled: the time after which a rule that is gone needs no memory.
func TestSettled(t *testing.T) {
	minute := shapeOf(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 60})
	window := shapeOf(t, rate.Limit{Tokens: 10, Per: 20 * time.Second, Burst: 10, Algorithm: rate.SlidingWindow})
	hour := shapeOf(t, rate.Limit{Tokens: 10, Per: time.Hour, Burst: 10, Algorithm: rate.FixedWindow})
	for _, test := range []struct {
		shape  rate.Shape
		before *rate.Past
		until  int64
		want   int64
	}{
		{minute, nil, 0, int64(2*time.Minute + 2*time.Second)}, // a bucket owes twice its burst at most
		{minute, nil, 1<<63 - 1 - int64(time.Second), 1<<63 - 1},
		{window, nil, 0, int64(time.Minute + 2*time.Second)},
		{minute, &rate.Past{Shape: window, Before: &rate.Past{Shape: hour}}, 0,
			int64(time.Hour + 2*time.Minute + 2*time.Second)},
		{minute, &rate.Past{Window: time.Hour}, 0, int64(time.Hour + 2*time.Minute + 2*time.Second)},
		{minute, &rate.Past{Window: rate.MaxWindow}, 1<<63 - 1 - int64(time.Hour), 1<<63 - 1},
	} {
		if got := test.shape.Settled(test.until, test.before); got != test.want {
			t.Errorf("Settled(%d) = %d, want %d", test.until, got, test.want)
		}
	}
}
