package simulate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// truth is what all together owe: one bucket that hears of everything at once.
type truth struct {
	owed float64 // tokens
	rate float64 // tokens a second
	most float64 // tokens that any replica has them owe
	last time.Duration
}

func (d *truth) add(now time.Duration, tokens float64) {
	d.drain(now)
	d.owed = min(d.most, d.owed+tokens)
}

func (d *truth) drain(now time.Duration) {
	d.owed = max(0, d.owed-d.rate*(now-d.last).Seconds())
	d.last = now
}

// Whatever happened to them, replicas that hear each other again and have nothing new to say agree on what is
// owed: limits that one hears of after the other, costs that turn out higher or lower when a request has ended, takes
// that another bucket denied, lost messages. What one has forgotten others would admit.
func TestGossipAgrees(t *testing.T) {
	for seed := range uint64(200) {
		gossipAgrees(t, seed)
	}
}

func gossipAgrees(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 18))
	w := simulate.New(seed)
	k := 2 + r.IntN(5)
	draw := func() rate.Limit {
		per := []time.Duration{time.Second, 10 * time.Second}[r.IntN(2)]
		return limit(1+r.Int64N(300), per, 20+r.Int64N(500))
	}
	loss, jitter := r.Float64()*0.3, time.Duration(r.Int64N(int64(40*time.Millisecond)))
	g := &simulate.Gossip{
		World: w, Interval: 50 * time.Millisecond,
		Link: func(_, _ *simulate.Gossiper) *simulate.Link {
			return &simulate.Link{World: w, Delay: 200 * time.Microsecond, Jitter: jitter, Loss: loss}
		},
	}
	for i := range k {
		g.Join(uint64(i+1), &simulate.Clock{World: w, Offset: w.Between(time.Second, time.Hour)})
	}
	g.Members()
	compile := func(l rate.Limit) rate.Shape {
		sh, err := rate.Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		return sh
	}
	now := draw()
	perSecond := func(l rate.Limit) float64 { return float64(l.Tokens) / l.Per.Seconds() }
	joins := r.IntN(2) // one does, before any limit changes
	shapes := make([]rate.Shape, k+joins)
	for i := range shapes {
		shapes[i] = compile(now)
	}
	d := &truth{rate: perSecond(now), most: float64(int64(k) * now.Burst)} // of one that joins, others hear late
	fastest := perSecond(now)
	const end = 6 * time.Second
	feed := func(i int) {
		one := g.All[i]
		w.Poisson(steady(4*perSecond(now)/float64(k)), end, func() {
			cost := 1 + r.Int64N(5)
			if !one.Request(shapes[i], hot, cost) {
				return
			}
			d.add(w.Now(), float64(cost))
			sh, taken := shapes[i], one.Clock.Now()
			switch r.IntN(8) {
			case 0: // it costs more, as is known when it ends
				more := 1 + r.Int64N(3*now.Burst/2)
				w.After(w.Between(0, time.Second), func() {
					one.Store.Correct(one.Clock.Now(), &bucket.Change{Key: hot, Shape: shapes[i],
						Units: more * shapes[i].Unit, Charged: taken})
					d.add(w.Now(), float64(more))
				})
			case 2, 3: // it costs less
				less := r.Int64N(cost + 1)
				w.After(w.Between(0, time.Second), func() {
					moved := one.Store.Correct(one.Clock.Now(), &bucket.Change{Key: hot, Shape: shapes[i],
						Units: -less * shapes[i].Unit, Charged: taken})
					d.drain(w.Now())
					d.owed = max(0, d.owed+float64(moved)/float64(shapes[i].Unit))
				})
			case 1: // another bucket denies it, at once or when others may have heard of it
				w.After(w.Between(0, 100*time.Millisecond), func() {
					if one.Store.Return(&bucket.Take{Key: hot, Shape: sh, Cost: cost}, taken) {
						d.drain(w.Now())
						d.owed = max(0, d.owed-float64(cost))
					}
				})
			}
		})
	}
	for i := range k {
		feed(i)
	}
	if joins > 0 {
		w.After(w.Between(end/10, end/4), func() {
			next := g.Join(uint64(k+1), &simulate.Clock{World: w, Offset: w.Between(time.Second, time.Hour)})
			next.Store.Join()
			g.Members()
			next.Copy(g.All[0])
			feed(k)
		})
	}
	var changes int
	if r.IntN(3) > 0 { // another limit, of which one hears after the other
		changes++
		next, at := draw(), w.Between(end/3, end*2/3)
		for i := range shapes {
			w.After(at+w.Between(0, 500*time.Millisecond), func() {
				shapes[i] = compile(next)
				g.All[i].Request(shapes[i], hot, 0) // who is asked nothing goes by the limit of before
			})
		}
		fastest = max(fastest, perSecond(next))
		w.After(at, func() {
			d.most = min(d.most, float64(int64(k)*next.Burst))
			d.add(w.Now(), 0)
		})
		w.After(at+500*time.Millisecond, func() {
			d.add(w.Now(), 0)
			d.rate, d.most, now = perSecond(next), float64(int64(k)*next.Burst), next
		})
	}
	w.Run(end + time.Second + 1500*time.Millisecond) // what is known late, and told again
	final := compile(now)
	// Nothing is counted twice, and nothing is forgotten. A moment in which one had not heard may have drained
	// where it was not yet debited, and a change of limits is heard by one and not by the other for half a second.
	slack := fastest*(0.3+0.6*float64(changes)) + float64(k) + 2
	d.drain(w.Now())
	most := float64(final.Burst()) // who owes that admits nothing
	for i, one := range g.All {
		var o bucket.Outcome
		one.Store.Look(one.Clock.Now(), &bucket.Take{Key: hot, Shape: final}, &o)
		knows := o.ResetAfter.Seconds() * perSecond(now)
		if knows < min(d.owed, most)-slack {
			t.Errorf("seed %d: %d of %d says that %.1f tokens are owed, want %.1f or %.1f less, under %+v", seed, i+1,
				len(g.All), knows, min(d.owed, most), slack, now)
		}
	}
}
