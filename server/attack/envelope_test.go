package attack_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/attack"
)

const ms = time.Millisecond

func at(times ...time.Duration) []attack.Span {
	var spans []attack.Span
	for _, t := range times {
		spans = append(spans, attack.Span{Sent: t, Seen: t})
	}
	return spans
}

func TestBeyond(t *testing.T) {
	two := attack.Limit{Requests: 2, Per: time.Second, Burst: 3}
	for _, c := range []struct {
		name  string
		limit attack.Limit
		spans []attack.Span
		want  int64
	}{
		{"nothing", two, nil, 0},
		{"the burst at once", two, at(0, 0, 0), 0},
		{"one above the burst", two, at(0, 0, 0, 0), 1},
		{"the burst and what came since", two, at(0, 0, 0, 500*ms, 1000*ms), 0},
		{"a millisecond too early is one request", two, at(0, 0, 0, 499*ms), 1},
		{"the worst interval begins late", two, at(0, 9*time.Second, 9*time.Second, 9*time.Second, 9*time.Second,
			9*time.Second), 2},
		{"an idle time gives no credit", two, at(0, time.Minute, time.Minute, time.Minute, time.Minute), 1},
		{"in any order", two, at(1000*ms, 0, 500*ms, 0, 0), 0},
		{"a slow answer hides, and invents nothing", two, []attack.Span{{0, 0}, {0, 0}, {0, 0}, {0, 500 * ms}}, 0},
		{"a slow answer hides no more than its time", two,
			[]attack.Span{{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 500 * ms}}, 2},
		{"a window is twice its limit around its edge", attack.Limit{Requests: 5, Per: time.Second, Burst: 5},
			at(999*ms, 999*ms, 999*ms, 999*ms, 999*ms, 1000*ms, 1000*ms, 1000*ms, 1000*ms, 1000*ms), 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.limit.Beyond(c.spans); got != c.want {
				t.Errorf("Beyond = %d, want %d", got, c.want)
			}
		})
	}
}

// TestBeyondAgainstTheDefinition compares with every interval counted by hand; where requests are
// seen at once both must agree.
func TestBeyondAgainstTheDefinition(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	found := 0
	for range 2000 {
		l := attack.Limit{
			Requests: 1 + random.Int64N(20),
			Per:      time.Duration(1+random.IntN(50)) * 100 * ms,
			Burst:    1 + random.Int64N(8),
		}
		var spans []attack.Span
		clock := time.Duration(0)
		for range random.IntN(30) {
			clock += time.Duration(random.IntN(300)) * ms
			spans = append(spans, attack.Span{Sent: clock, Seen: clock})
		}
		var want int64
		for i := range spans {
			for j := i; j < len(spans); j++ {
				// n − burst − ⌊n·t⌋, in integers: what a bucket of whole requests would have had to refuse.
				allowed := int64(spans[j].Sent-spans[i].Sent) * l.Requests / int64(l.Per)
				want = max(want, int64(j-i+1)-l.Burst-allowed)
			}
		}
		if got := l.Beyond(spans); got != want {
			t.Fatalf("seed %d: %+v.Beyond(%v) = %d, want %d", seed, l, spans, got, want)
		}
		if want > 0 {
			found++
		}
	}
	if found < 200 || found > 1900 {
		t.Errorf("%d of 2000 exceeded their limit: the test has one answer only", found)
	}
}

func TestEnvelope(t *testing.T) {
	l := attack.Limit{Requests: 5, Per: time.Second, Burst: 10}
	if got := l.Envelope(3 * time.Second); got != 25 {
		t.Errorf("Envelope(3s) = %v, want 25", got)
	}
	if got := attack.Took([]attack.Span{{2, 9}, {1, 4}}); got != 8 {
		t.Errorf("Took = %v, want 8ns", got)
	}
}
