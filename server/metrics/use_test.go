package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
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
				u.note(burst, 2, &bucket.Outcome{}, false)
				found = append(found, 1)
				continue
			}
			u.note(burst, 2, &bucket.Outcome{Allowed: true, Remaining: burst - used - 2}, true)
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
		u.note(test.burst, 1, &test.out, test.allowed)
		if got, _ := u.p95(); got != test.want {
			t.Errorf("%s: p95 = %v, want %v", test.name, got, test.want)
		}
	}
}

// TestUseOfWhatIsLowered: of a limit on requests under way of which a part is in force, the use is of that part; and a
// request takes a place of it, whatever it costs, as it takes one of those that are counted.
func TestUseOfWhatIsLowered(t *testing.T) {
	places := policy.Rule{Endpoint: policy.Default, Limit: 10, Per: time.Hour, Name: "places"}
	counted := policy.Rule{Endpoint: policy.Default, Limit: 10, Per: time.Hour, Name: "counted"}
	for rule, subject := range map[*policy.Rule]string{&places: "in_flight:ip", &counted: "requests:ip"} {
		if err := rule.SetSubject(subject); err != nil {
			t.Fatal(err)
		}
	}
	m, table := New(Options{}), &adaptive.Table{}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{places, counted}, func(o *headgate.Options) {
		o.Adaptive, o.Observe = table, m.Observe
	})
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: adaptive.Whole / 2, AtOnce: true}},
		b.Now.UnixNano())
	for range 10 {
		for n := range uint64(60) {
			table.Named("GET /a").Sent(b.Now.UnixNano(), n)
			table.Named("GET /a").Answered(b.Now.UnixNano(), n, 2*time.Second, false)
		}
		b.Now = b.Now.Add(2 * time.Second)
	}
	for _, want := range []float64{0, 1. / 5, 2. / 5, 3. / 5, 4. / 5} { // five of the ten may be under way
		r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 2}
		if d := b.Check(t.Context(), r); !d.Allowed {
			t.Fatalf("denied: %v", d.Reason)
		}
		if got, _ := m.titled("places").use.p95(); got > want || got < want-1./useParts {
			t.Errorf("the use of places is %v, want %v", got, want)
		}
		if got, _ := m.titled("counted").use.p95(); got > want/2 || got < want/2-1./useParts {
			t.Errorf("the use of what is counted is %v, want %v", got, want/2)
		}
		for _, title := range []string{"places", "counted"} { // so that each is the only one
			m.titled(title).use.turn()
			m.titled(title).use.turn()
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
	m.titled("default").use.note(10, 1, &bucket.Outcome{Allowed: true, Remaining: 9}, true)
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
		m.titled(fmt.Sprint("rule ", i)).use.note(10, 1, &bucket.Outcome{}, false)
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
	out := bucket.Outcome{Allowed: true, Remaining: 5}
	for b.Loop() {
		u.note(10, 1, &out, true)
	}
}
