package adaptive_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

// told is a message as another says it, of one endpoint.
func told(t testing.TB, multiplier int) []byte {
	t.Helper()
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: multiplier})
	for range 40 {
		b.second(10, always(time.Second), 10)
	}
	if m := b.Status(b.now).Multiplier; m != multiplier {
		t.Fatalf("multiplier %d, want %d", m, multiplier)
	}
	return b.table.Tell(b.now)
}

// at is a message that says a multiplier, of the endpoint of benches.
func at(t testing.TB, multiplier int) []byte {
	once.Do(func() { one = told(t, 500) })
	message := slices.Clone(one)
	binary.BigEndian.PutUint16(message[len(message)-2:], uint16(multiplier))
	return message
}

var (
	once sync.Once
	one  []byte // of 500
)

func TestAgreement(t *testing.T) {
	const whole = adaptive.Whole
	for _, c := range []struct {
		own    int // 0 says nothing
		others []int
		want   int
	}{
		{300, nil, 300},
		{300, []int{whole}, whole}, // of two the larger
		{300, []int{200}, 300},
		{300, []int{whole, 200}, 300},
		{300, []int{whole, whole}, whole},
		{300, []int{200, 200}, 200},
		{300, []int{100, 200, 400}, 300},
		{300, []int{200, 400, 400, 500}, 400},
		{0, []int{200}, 200},
		{0, []int{200, 400}, 400},
		{0, nil, 100},
		{300, []int{1, 1}, 100}, // no less than the floor
	} {
		b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
		if c.own > 0 {
			b.table.Use(map[string]adaptive.Settings{name: {SLO: slo, Floor: c.own}}, b.now)
		}
		for range 40 {
			b.second(10, always(time.Second), 10)
		}
		b.Status(b.now)
		b.table.Use(map[string]adaptive.Settings{name: {SLO: slo, Floor: 100}}, b.now)
		if c.own == 0 {
			b.now += 11 * second // and has not heard of the API for so long
		}
		var messages [][]byte
		for _, m := range c.others {
			messages = append(messages, at(t, m))
		}
		if unread := b.table.Hear(b.now, messages); unread != 0 {
			t.Errorf("%v: %d are not read", c.others, unread)
		}
		s, l := b.Status(b.now), b.Lowered(b.now)
		if s.Agreed != c.want || s.Others != len(c.others) || l.Shared.Part() != c.want ||
			l.Own.Part() != s.Multiplier {
			t.Errorf("%d and %v agree on %d (%+v), want %d", c.own, c.others, l.Shared.Part(), s, c.want)
		}
	}
}

// TestFewerThanHalfMoveNothing: whatever fewer than half of those who are heard say, what is agreed on lies between the
// least and the greatest of the others, and all who hear the same agree.
func TestFewerThanHalfMoveNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 8))
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 1})
	for range 2000 {
		n := 1 + random.IntN(9)
		liars := random.IntN((n + 1) / 2)
		var all [][]byte
		least, most := adaptive.Whole, 1
		for i := range n {
			m := 1 + random.IntN(adaptive.Whole)
			if all = append(all, at(t, m)); i >= liars {
				least, most = min(least, m), max(most, m)
			}
		}
		random.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		b.table.Hear(b.now, all)
		if got := b.Status(b.now).Agreed; got < least || got > most {
			t.Fatalf("%d of %d lie, and %d is agreed on; the others say %d to %d", liars, n, got, least, most)
		}
	}
}

// TestWhatIsHeardIsForgotten: one that is frozen counts for three seconds, and so does everybody if nothing is heard.
func TestWhatIsHeardIsForgotten(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	b.table.Hear(b.now, [][]byte{at(t, 200)})
	for _, after := range []int64{0, 3} {
		if got := b.Status(b.now + after*second).Agreed; got != 200 {
			t.Errorf("after %d s: %d, want 200", after, got)
		}
	}
	if s := b.Status(b.now + 4*second); s.Agreed != adaptive.Whole || s.Others != 0 {
		t.Errorf("after 4 s: %+v", s)
	}
	b.table.Hear(b.now, [][]byte{at(t, 200)})
	if s := b.Status(b.now - second); s.Others != 0 {
		t.Errorf("what was heard in a time to come counts: %+v", s)
	}
}

// TestSharedBucketsAfterAWhile: what was lowered for others' sake alone is as if nothing had been a minute after.
func TestSharedBucketsAfterAWhile(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	for range 3 {
		b.table.Hear(b.now, [][]byte{at(t, 200), at(t, 300)})
		b.second(10, always(20*time.Millisecond), 10)
	}
	if l := b.Lowered(b.now); l.Shared.Part() != 300 || l.Own != nil { // so penalties count there as ever
		t.Errorf("own %d, shared %d, want nothing and 300", l.Own.Part(), l.Shared.Part())
	}
	for range 60 {
		b.table.Hear(b.now, [][]byte{at(t, adaptive.Whole), at(t, adaptive.Whole)})
		b.second(10, always(20*time.Millisecond), 10)
	}
	b.Status(b.now + second)
	if l := b.Lowered(b.now + second); l.Shared != nil || l.Own != nil {
		t.Errorf("%+v, want nothing", l)
	}
	if len(b.events) != 0 {
		t.Errorf("told %v of what others lower", b.events)
	}
}

// FuzzHear: whatever is told, nothing panics, and what is agreed on stays between the floor and 1.
func FuzzHear(f *testing.F) {
	f.Add(at(f, 500), at(f, 1))
	f.Add([]byte{}, []byte{1})
	f.Add([]byte{2, 1}, slices.Concat(at(f, 500), at(f, 500)[1:])) // another version; one endpoint twice
	f.Add(at(f, 0), at(f, 1025))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
		unread := b.table.Hear(b.now, [][]byte{one, other})
		if s := b.Status(b.now); s.Agreed < 100 || s.Agreed > adaptive.Whole || s.Others > 2-unread {
			t.Errorf("%+v, %d unread", s, unread)
		}
	})
}

func ExampleTable_Tell() {
	settings := map[string]adaptive.Settings{"GET /work": {SLO: 100 * time.Millisecond, Floor: adaptive.Whole / 2}}
	var gateways [3]adaptive.Table
	now := int64(1000 * time.Second)
	for i := range gateways {
		gateways[i].Use(settings, now)
	}
	for range 20 { // all but the last see that the API is late
		for i := range gateways {
			took := time.Second
			if i == 2 {
				took = time.Millisecond
			}
			for caller := range uint64(50) {
				gateways[i].Named("GET /work").Sent(now, caller)
				gateways[i].Named("GET /work").Answered(now, caller, took, false)
			}
		}
		now += int64(time.Second)
		for i := range gateways {
			var others [][]byte
			for j := range gateways {
				if j != i {
					others = append(others, gateways[j].Tell(now))
				}
			}
			gateways[i].Hear(now, others)
		}
	}
	for i := range gateways {
		s := gateways[i].Statuses(now)[0]
		fmt.Println("own", s.Multiplier, "shared", s.Agreed)
	}
	// Output:
	// own 512 shared 512
	// own 512 shared 512
	// own 1024 shared 512
}
