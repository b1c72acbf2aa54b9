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
		name  string
		shape rate.Shape
		lasts time.Duration
		want  int
	}{
		{"debts, too short", minute, time.Minute, 2},
		{"debts, and the margin for those who resolved their rules before", minute, time.Minute + 2*time.Second, 1},
		{"windows, too short", window, time.Minute, 2},
		{"windows", window, time.Minute + 2*time.Second, 1},
	} {
		before := minute.Replaced(0, nil, first)
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
		shape := shapeOf(t, rate.Limit{Tokens: 1, Per: time.Duration(1+i) * time.Hour, Burst: 1})
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
	if again := (rate.Shape{Unit: 1}).Recall(since, past, since); again.Before == past.Before {
		t.Errorf("Recall kept all %d limits, want room for one more", length(again))
	}
}

// TestSettled: the time after which a rule that is gone needs no memory.
func TestSettled(t *testing.T) {
	minute := shapeOf(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 60})
	for _, test := range []struct {
		shape rate.Shape
		until int64
		want  int64
	}{
		{minute, 0, int64(2*time.Minute + 2*time.Second)}, // a bucket owes twice its burst at most
		{minute, 1<<63 - 1 - int64(time.Second), 1<<63 - 1},
	} {
		if got := test.shape.Settled(test.until); got != test.want {
			t.Errorf("Settled(%d) = %d, want %d", test.until, got, test.want)
		}
	}
}
