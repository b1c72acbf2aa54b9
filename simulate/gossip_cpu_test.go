package simulate_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// What a node of one processor spends. A request is one through a gateway; a message is half of what
// BenchmarkMessage of server/group measures for its teller and its listener together, at the most.
const (
	ofRequest = 30 * time.Microsecond
	ofMessage = 40 * time.Microsecond
)

// processor does one thing after the other.
type processor struct {
	world *simulate.World
	free  time.Duration // when it has done all that it is to do
}

func (p *processor) do(lasts time.Duration, then func()) {
	p.free = max(p.free, p.world.Now()) + lasts
	p.world.After(p.free-p.world.Now(), then)
}

// Nodes whose processors are busy with requests all the time serve nearly as many each as one that is alone: what
// they tell each other takes little. A simulation: real nodes share more than messages.
func TestGossipLeavesProcessors(t *testing.T) {
	const end = time.Second
	served := func(k, callers int) (each float64) {
		shape, err := rate.Compile(limit(1000, time.Second, 1000))
		if err != nil {
			t.Fatal(err)
		}
		w := simulate.New(1)
		g := &simulate.Gossip{
			World: w, Interval: 50 * time.Millisecond, // and four messages in it, if there is so much to tell
			Link: func(_, _ *simulate.Gossiper) *simulate.Link {
				return &simulate.Link{World: w, Delay: 200 * time.Microsecond, Jitter: time.Millisecond}
			},
		}
		for i := range k {
			g.Join(uint64(i+1), &simulate.Clock{World: w, Offset: time.Second})
		}
		g.Members()
		total := 0
		for _, r := range g.All {
			p := &processor{world: w}
			var next func()
			next = func() {
				n := uint64(w.Rand.IntN(callers))
				r.Request(shape, key.Key{Hi: n * 0x9e3779b97f4a7c15, Lo: n}, 1)
				total++
				p.do(ofRequest, next)
			}
			for range 4 { // who come again as soon as they are answered
				p.do(ofRequest, next)
			}
			var last uint64
			var told func()
			told = func() { // messages are among what it has to do
				s := r.Store.Status()
				p.do(time.Duration(s.Messages+s.Received-last)*ofMessage, func() {})
				last = s.Messages + s.Received
				w.After(10*time.Millisecond, told)
			}
			w.After(10*time.Millisecond, told)
		}
		w.Run(end)
		return float64(total) / float64(k)
	}
	for _, c := range []struct {
		callers int
		what    string
	}{{1, "one bucket"}, {5000, "more buckets than messages hold"}} {
		alone := served(1, c.callers)
		for _, k := range []int{2, 4, 8} {
			ratio := served(k, c.callers) / alone
			t.Logf("%s: %d nodes serve %.3f × %[2]d of what one does", c.what, k, ratio)
			if ratio < 0.95 {
				t.Errorf("%s: %d nodes serve %.3f × %[2]d of what one does, want 0.95 at least", c.what, k, ratio)
			}
		}
	}
}
