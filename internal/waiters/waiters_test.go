package waiters

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
)

func named(n int) *identity.Principal {
	return &identity.Principal{Kind: identity.Token, Project: "p", ID: fmt.Sprint(n)}
}

func TestHandsAreDealtEvenly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var dealt [queues]int
	const hands = 20_000
	for range hands {
		hand := handOf(random.Uint64())
		for n, q := range hand {
			if slices.Contains(hand[:n], q) {
				t.Fatalf("hand %v has queue %d twice", hand, q)
			}
			dealt[q]++
		}
	}
	mean := float64(hands) * handSize / queues
	for q, n := range dealt {
		if math.Abs(float64(n)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("queue %d is in %d hands, want about %.0f", q, n, mean)
		}
	}
}

func TestHandIsOfWhoIsVerifiedElseOfTheAddress(t *testing.T) {
	w := New()
	at := func(prefix string, p identity.Principal) uint64 {
		p.Prefix = netip.MustParsePrefix(prefix)
		return w.hash(&p)
	}
	key := identity.Principal{Kind: identity.APIKey, Project: "a", ID: "bc"}
	if at("192.0.2.1/32", key) != at("192.0.2.2/32", key) {
		t.Error("a key has another hand from another address")
	}
	seen := map[uint64]string{}
	for name, hash := range map[string]uint64{
		"key":           at("192.0.2.1/32", key),
		"key elsewhere": at("192.0.2.1/32", identity.Principal{Kind: identity.APIKey, Project: "ab", ID: "c"}),
		"token":         at("192.0.2.1/32", identity.Principal{Kind: identity.Token, Project: "a", ID: "bc"}),
		"address":       at("192.0.2.1/32", identity.Principal{}),
		"neighbour":     at("192.0.2.2/32", identity.Principal{}),
	} {
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[hash] = name
	}
	if New().hash(named(1)) == w.hash(named(1)) {
		t.Error("two processes deal the same hands")
	}
}

// TestPlacesAreKeptForWhoHasNone has callers come and go at random, and asks a list of those who wait what is due.
func TestPlacesAreKeptForWhoHasNone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, most := range []int64{1, 2, 511, 512, 513, 800, 1024} {
		w := New()
		share := int(most) / 2 / queues
		var places []int
		in := func(q int) (n int) {
			for _, place := range places {
				if place == q {
					n++
				}
			}
			return n
		}
		for step := range 4000 {
			if random.IntN(3) == 0 && len(places) > 0 {
				i := random.IntN(len(places))
				w.Leave(places[i])
				places[i] = places[len(places)-1]
				places = places[:len(places)-1]
				continue
			}
			who := named(min(int(random.ExpFloat64()*3), 40)) // a few have most of the requests
			hand, room := handOf(w.hash(who)), false
			for _, q := range hand {
				room = room || in(int(q)) < share
			}
			open := int(most) - queues*share
			want := len(places) < open || room
			place := w.Enter(most, who, Part{})
			if got := place != NoPlace; got != want {
				t.Fatalf("step %d of %d places: %d wait, entered %v, want %v", step, most, len(places), got, want)
			}
			if place != NoPlace {
				places = append(places, place)
			}
			if len(places) > int(most) || int(w.all.Load()) != len(places) {
				t.Fatalf("%d wait and %d are counted, want no more than %d", len(places), w.all.Load(), most)
			}
		}
		for _, place := range places {
			w.Leave(place)
		}
		for q := range w.queued {
			if n := w.queued[q].Load(); n != 0 {
				t.Errorf("%d places: %d are left in queue %d", most, n, q)
			}
		}
	}
}

// TestFloodsLeavePlaces draws how likely a caller finds no place while others flood.
func TestFloodsLeavePlaces(t *testing.T) {
	var flooders, refused strings.Builder
	flooders.WriteString("| callers that flood |")
	refused.WriteString("| others that find no place |")
	rule := "|---|"
	for _, n := range []int{1, 4, 8, 16, 32, 64} {
		// A caller is refused if each queue of its hand is in the hand of a flood. The chance is exact: of m queues in
		// those hands, all of its own are among them in C(m, 6) of C(256, 6) cases.
		p := chance(n)
		fmt.Fprintf(&flooders, " %d |", n)
		rule += "---|"
		switch {
		case p < 5e-6:
			refused.WriteString(" < 0.001 % |")
		default:
			fmt.Fprintf(&refused, " %.2g %% |", 100*p)
		}
	}
	table := flooders.String() + "\n" + rule + "\n" + refused.String() + "\n"
	page, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/algorithms.md lacks the table:\n%s", table)
	}
	// The same by flooding: thirty-two callers take every place that they can get, then another comes.
	tries, none := race.Fewer(4000), 0
	for try := range tries {
		w := New()
		for flooder := range 32 {
			for w.Enter(1024, named(try*33+flooder), Part{}) != NoPlace {
			}
		}
		if w.Enter(1024, named(try*33+32), Part{}) == NoPlace {
			none++
		}
	}
	if want := float64(tries) * chance(32); math.Abs(float64(none)-want) > 6*math.Sqrt(want) {
		t.Errorf("%d of %d found no place beside 32 that flood, want about %.0f", none, tries, want)
	}
}

// chance is how likely a hand is within those of n floods.
func chance(n int) float64 {
	// after[m] is how likely m queues are in the hands dealt so far.
	after := make([]float64, queues+1)
	after[0] = 1
	for range n {
		next := make([]float64, queues+1)
		for m, p := range after {
			for more := 0; more <= handSize && m+more <= queues; more++ {
				next[m+more] += p * choose(m, handSize-more) * choose(queues-m, more) / choose(queues, handSize)
			}
		}
		after = next
	}
	within := 0.0
	for m, p := range after {
		within += p * choose(m, handSize) / choose(queues, handSize)
	}
	return within
}

func choose(n, k int) float64 {
	if k > n {
		return 0
	}
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return c
}

func TestNoMoreWaitThanMayWhoeverComesAtOnce(t *testing.T) {
	const most, callers = 600, 16
	w := New()
	var in, worst atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			random, who := rand.New(rand.NewPCG(7, uint64(caller))), named(caller)
			var places []int
			for range 2000 {
				if place := w.Enter(most, who, Part{}); place != NoPlace {
					places = append(places, place)
					for n := in.Add(1); ; {
						if old := worst.Load(); n <= old || worst.CompareAndSwap(old, n) {
							break
						}
					}
				} else {
					for range random.IntN(len(places) + 1) {
						in.Add(-1)
						w.Leave(places[len(places)-1])
						places = places[:len(places)-1]
					}
				}
			}
			for _, place := range places {
				in.Add(-1)
				w.Leave(place)
			}
		})
	}
	all.Wait()
	if worst.Load() > most || worst.Load() < most/2 || w.all.Load() != 0 {
		t.Errorf("%d waited at once and %d are counted at the end, want %d to %d and none", worst.Load(), w.all.Load(),
			most/2, most)
	}
}

func BenchmarkPlace(b *testing.B) {
	w, who := New(), named(1)
	for b.Loop() {
		w.Leave(w.Enter(1024, who, Part{}))
	}
}

// TestClassesLeavePlaces has requests of classes come and go at random: a class finds a place while what it leaves for
// others is free, or while it has fewer than it is guaranteed, whatever the others have.
func TestClassesLeavePlaces(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	parts := []Part{
		{Class: 2, Kept: 15, Guaranteed: 5}, {Class: 3, Kept: 43, Guaranteed: 5}, {Class: 4, Kept: 71, Guaranteed: 5},
	}
	const most = 200 // for which there are no queues
	w, taken := New(), map[uint8][]int{}
	byGuarantee, lower := 0, uint64(0)
	for step := range 20_000 {
		all := len(taken[2]) + len(taken[3]) + len(taken[4])
		part := parts[random.IntN(3)]
		own := taken[part.Class]
		if random.IntN(3) == 0 {
			if n := len(own); n > 0 {
				w.Leave(own[n-1])
				taken[part.Class] = own[:n-1]
			}
			continue
		}
		left, guaranteed := all < most-most*part.Kept/100, len(own) < most*part.Guaranteed/100
		place := w.Enter(most, named(random.IntN(1000)), part)
		if got := place != NoPlace; got != (left || guaranteed) {
			t.Fatalf("step %d: class %d has %d of %d, entered %t", step, part.Class, len(own), all, got)
		}
		if place != NoPlace {
			taken[part.Class] = append(own, place)
		} else {
			lower++
		}
		if !left && guaranteed {
			byGuarantee++
		}
	}
	if w.refused.Full.Load() != 0 || w.refused.LowerClass.Load() != lower || lower < 1000 || byGuarantee < 100 {
		t.Errorf("%d found it full, %d of %d what is left for others, %d had a place that is guaranteed",
			w.refused.Full.Load(), w.refused.LowerClass.Load(), lower, byGuarantee)
	}
	for _, places := range taken {
		for _, place := range places {
			w.Leave(place)
		}
	}
	for class := range w.ofClass {
		if n := w.ofClass[class].Load(); n != 0 || w.Count() != 0 {
			t.Errorf("%d of class %d are left of %d", n, class, w.Count())
		}
	}
}
