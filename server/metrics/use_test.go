package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
)

// TestUseIsWhatRequestsFound compares the parts that are counted with the sorted list of what requests found.
func TestUseIsWhatRequestsFound(t *testing.T) {
	const burst = 1000
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var u use
		var found []float64
		most := 1 + r.Int64N(burst)
		for range 1 + r.IntN(3000) {
			used := r.Int64N(most)
			if r.IntN(30) == 0 {
				u.note(burst, &bucket.Outcome{}, &headgate.Decision{})
				found = append(found, 1)
				continue
			}
			u.note(burst, &bucket.Outcome{Allowed: true, Remaining: burst - used - 2},
				&headgate.Decision{Allowed: true, Cost: 2})
			found = append(found, float64(used)/burst)
		}
		slices.Sort(found)
		want := found[(len(found)*95+99)/100-1]
		if got, ok := u.p95(); !ok || got > want+1e-9 || got < want-1.0/useParts {
			t.Fatalf("of %d requests p95 = %v, %v, want %v or up to %v less", len(found), got, ok, want, 1.0/useParts)
		}
	}
}

func TestUseOfOddBuckets(t *testing.T) {
	for _, test := range []struct {
		name    string
		burst   int64
		out     bucket.Outcome
		allowed bool
		want    float64
	}{
		{"the first of a burst of one", 1, bucket.Outcome{Allowed: true, Remaining: 0}, true, 0},
		{"more than the burst, after a grant", 10, bucket.Outcome{Allowed: true, Remaining: 25}, true, 0},
		{"denied by another rule", 10, bucket.Outcome{Allowed: true, Remaining: 5}, false, 0.5},
		{"denied", 10, bucket.Outcome{Remaining: 5}, false, 1},
		{"the largest burst", 1<<53 - 1, bucket.Outcome{Allowed: true, Remaining: 0}, true,
			float64(useParts-1) / useParts},
	} {
		var u use
		u.note(test.burst, &test.out, &headgate.Decision{Allowed: test.allowed, Cost: 1})
		if got, _ := u.p95(); got != test.want {
			t.Errorf("%s: p95 = %v, want %v", test.name, got, test.want)
		}
	}
}

// TestUseForgets: what is older than two windows does not count, what is younger than one does.
func TestUseForgets(t *testing.T) {
	now := time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	m := New(Options{Now: func() time.Time { return now }})
	g := &useGauges{meter: m}
	told := func() string {
		out := make(chan prometheus.Metric, 10)
		g.write(out)
		close(out)
		for metric := range out {
			return metric.Desc().String()
		}
		return ""
	}
	m.titled("default").use.note(10, &bucket.Outcome{Allowed: true, Remaining: 9},
		&headgate.Decision{Allowed: true, Cost: 1})
	for minute, want := range []bool{true, true, true, true, true, true, true, true, true, true, true, false} {
		if got := told() != ""; got != want {
			t.Errorf("after %d minutes it is told: %v, want %v", minute, got, want)
		}
		now = now.Add(time.Minute)
	}
}

// TestSeriesAreBounded: with more rules than the most, the rest is one series of each metric, the new ones too.
func TestSeriesAreBounded(t *testing.T) {
	m := New(Options{})
	for i := range 3 * maxRules {
		m.titled(fmt.Sprint("rule ", i)).use.note(10, &bucket.Outcome{}, &headgate.Decision{})
	}
	out := make(chan prometheus.Metric, 10*maxRules)
	(&useGauges{meter: m}).write(out)
	m.early.Collect(out)
	if n := len(out); n > 2*(maxRules+1) {
		t.Errorf("%d rules make %d series of two metrics, want %d at most", 3*maxRules, n, 2*(maxRules+1))
	}
}

func BenchmarkUse(b *testing.B) {
	var u use
	out, d := bucket.Outcome{Allowed: true, Remaining: 5}, headgate.Decision{Allowed: true, Cost: 1}
	for b.Loop() {
		u.note(10, &out, &d)
	}
}
