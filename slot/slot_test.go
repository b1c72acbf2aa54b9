package slot_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/slot"
)

const second = int64(1e9)

var quota = key.Key{Hi: 1, Lo: 7}

// empty is a bucket of 3 tokens, one a second, that held none at now.
func empty(now int64) slot.Bucket {
	return slot.Bucket{Key: quota, Gap: second, Burst: 3, FullAt: now + 3*second}
}

func caller(t *slot.Table, name string) slot.Caller { return t.Caller([]byte(name)) }

// Callers are a token apart, and keep their times.
func TestSlotsAreSpaced(t *testing.T) {
	table := slot.New(slot.Options{})
	for i, c := range []struct {
		at   int64
		who  string
		want int64
	}{{0, "a", 1000}, {200, "b", 2000}, {300, "a", 1000}, {400, "c", 3000}, {999, "b", 2000}} {
		now := c.at * 1e6
		got := table.Refused(now, second, empty(0), 1, caller(table, c.who), false)
		if got.At != c.want*1e6 || got.Reserved {
			t.Errorf("%d: %s at %d ms may come at %d ms, reserved %v; want %d ms, spaced", i, c.who, c.at, got.At/1e6,
				got.Reserved, c.want)
		}
	}
	if s := table.Stats(); s.Spaced != 3 || s.Slots != 3 {
		t.Errorf("%+v, want 3 slots", s)
	}
}

// While the time of a caller has come and it has not, its token is nobody else's.
func TestReservedSlots(t *testing.T) {
	table := slot.New(slot.Options{Reserve: true, Grace: 2 * second})
	a, b := caller(table, "a"), caller(table, "b")
	if s := table.Refused(0, second, empty(0), 1, a, true); !s.Reserved || s.At != second {
		t.Fatalf("%+v, want a reserved slot in a second", s)
	}
	held := func(now int64, who slot.Caller) bool {
		_, _, held := table.HoldsBack(now, empty(now), 1, who, false)
		return held
	}
	if held(second/2, b) {
		t.Error("b is held back though there is nothing to keep yet: the bucket refuses it")
	}
	if !held(second, b) || !held(3*second/2, b) {
		t.Error("b may take the token that is reserved for a")
	}
	if held(3*second/2, a) {
		t.Error("a may not take its own token")
	}
	if held(2*second, b) {
		t.Error("b is held back though there are two tokens by now")
	}
	if held(4*second, b) {
		t.Error("b is held back after the grace of a is over")
	}
	if s := table.Stats(); s.NoShows != 1 || s.Slots > 1 {
		t.Errorf("%+v, want one who did not come", s)
	}
}

// Whoever has another request gets its time with the answer to this one.
func TestNextSlot(t *testing.T) {
	table := slot.New(slot.Options{Reserve: true})
	a := caller(table, "a")
	next, given := table.Taken(0, empty(0), 1, a, true)
	if !given || next.At != second || !next.Reserved {
		t.Errorf("%+v, %v, want a reserved slot in a second", next, given)
	}
	full := slot.Bucket{Key: quota, Gap: second, Burst: 3, FullAt: second}
	if _, given := table.Taken(second, full, 1, a, true); given {
		t.Error("a slot was given though there are tokens")
	}
	if s := table.Stats(); s.Kept != 1 || s.Slots != 0 {
		t.Errorf("%+v, want one slot, used", s)
	}
}

// Who did not come twice in succession gets nothing reserved for a while.
func TestNoShows(t *testing.T) {
	table := slot.New(slot.Options{Reserve: true, Grace: second})
	a, b := caller(table, "a"), caller(table, "b")
	now := int64(0)
	for i, want := range []bool{true, true, false} {
		if s := table.Refused(now, now+second, empty(now), 1, a, true); s.Reserved != want {
			t.Errorf("slot %d is reserved: %v, want %v", i, s.Reserved, want)
		}
		now += 10 * second
		table.HoldsBack(now, empty(now), 1, b, false) // finds that a did not come
	}
	now += 60 * second
	if s := table.Refused(now, now+second, empty(now), 1, a, true); !s.Reserved {
		t.Error("nothing is reserved for a after a minute")
	}
}

// The table is bounded, and tells the truth beyond its bound.
func TestBounds(t *testing.T) {
	table := slot.New(slot.Options{MaxSlots: 10, MaxAhead: 60 * second})
	for i := range 1000 {
		s := table.Refused(0, second, empty(0), 1, caller(table, fmt.Sprint(i)), false)
		if s.At < second || s.At > 60*second {
			t.Fatalf("caller %d may come at %d", i, s.At)
		}
	}
	if got := table.Stats().Slots; got != 10 {
		t.Errorf("%d slots, want 10", got)
	}
	// Slots of buckets that nobody asks for again make room.
	for i := range 1000 {
		b := empty(1000 * second)
		b.Key = key.Key{Lo: uint64(i) * 64} // all of one shard
		table.Refused(1000*second, 1001*second, b, 1, caller(table, "x"), false)
	}
	table.Forget(quota)
	if got := table.Stats().Slots; got > 10 {
		t.Errorf("%d slots, want at most 10", got)
	}
}

// bucketOf is a bucket as a list of what was taken, in the largest sense of slow.
type bucketOf struct {
	burst, gap int64
	debt       int64 // nanoseconds
	at         int64
	admitted   []int64
}

func (b *bucketOf) drain(now int64) {
	b.debt = max(0, b.debt-(now-b.at))
	b.at = now
}

func (b *bucketOf) take(now int64) (ok bool, wait int64) {
	b.drain(now)
	if over := b.debt + b.gap - b.burst*b.gap; over > 0 {
		return false, over
	}
	b.debt += b.gap
	b.admitted = append(b.admitted, now)
	return true, 0
}

func (b *bucketOf) now() slot.Bucket {
	return slot.Bucket{Key: quota, Gap: b.gap, Burst: b.burst, FullAt: b.at + b.debt}
}

// conforms is Lindley's recursion: no interval has more than the burst and what came
// back in it.
func (b *bucketOf) conforms() bool {
	level, last := int64(0), int64(0)
	for _, at := range b.admitted {
		level = max(0, level-(at-last)) + b.gap
		if last = at; level > b.burst*b.gap {
			return false
		}
	}
	return true
}

// Whatever callers do, the bucket admits what it would, times are not before the truth,
// and nobody is held back while there is a token that is not reserved.
func TestSlotsAdmitNoMore(t *testing.T) {
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 9))
		b := &bucketOf{burst: 1 + chance.Int64N(5), gap: second}
		table := slot.New(slot.Options{Reserve: chance.IntN(2) == 0, Grace: chance.Int64N(4 * second)})
		now := int64(0)
		comes := map[slot.Caller]int64{} // when a caller was told to come
		for range 400 {
			now += chance.Int64N(second)
			who := slot.Caller(chance.IntN(8))
			understands := chance.IntN(2) == 0
			if s, _, held := table.HoldsBack(now, b.now(), 1, who, understands); held {
				b.drain(now)
				ahead := table.Ahead(now, quota, who)
				if tokens := (b.burst*b.gap - b.debt) / b.gap; tokens > ahead {
					t.Fatalf("seed %d: held back at %d with %d tokens, of which %d are reserved", seed, now,
						tokens, ahead)
				}
				if s.At <= now {
					t.Fatalf("seed %d: held back at %d until %d", seed, now, s.At)
				}
				if at, told := comes[who]; told && at == now {
					t.Fatalf("seed %d: held back at its own time", seed)
				}
				continue
			}
			ok, wait := b.take(now)
			if !ok {
				s := table.Refused(now, now+wait, b.now(), 1, who, understands)
				if s.At < now+wait {
					t.Fatalf("seed %d: told to come at %d, before %d, when there is room", seed, s.At, now+wait)
				}
				comes[who] = s.At
				continue
			}
			table.Taken(now, b.now(), 1, who, chance.IntN(2) == 0)
		}
		if !b.conforms() {
			t.Fatalf("seed %d: more was admitted than the bucket allows", seed)
		}
		if s := table.Stats(); s.Slots < 0 || s.Slots > 8 {
			t.Fatalf("seed %d: %d slots of 8 callers", seed, s.Slots)
		}
	}
}

// If everybody comes when told to and reservations are kept, nobody is refused twice.
func TestObedientCallersAreServed(t *testing.T) {
	table := slot.New(slot.Options{Reserve: true})
	b := &bucketOf{burst: 2, gap: second}
	type visit struct {
		at  int64
		who slot.Caller
		n   int
	}
	var visits []visit
	for who := range 20 {
		visits = append(visits, visit{int64(who) * 1e6, slot.Caller(who), 0})
	}
	served := 0
	for len(visits) > 0 {
		slices.SortStableFunc(visits, func(a, b visit) int { return int(a.at - b.at) })
		v := visits[0]
		visits = visits[1:]
		if s, _, held := table.HoldsBack(v.at, b.now(), 1, v.who, true); held {
			visits = append(visits, visit{s.At, v.who, v.n + 1})
			continue
		}
		if ok, wait := b.take(v.at); !ok {
			if v.n > 0 {
				t.Fatalf("caller %d is refused again at its time %d", v.who, v.at)
			}
			s := table.Refused(v.at, v.at+wait, b.now(), 1, v.who, true)
			visits = append(visits, visit{s.At, v.who, v.n + 1})
			continue
		}
		table.Taken(v.at, b.now(), 1, v.who, false)
		served++
	}
	if last := b.admitted[len(b.admitted)-1]; served != 20 || last > 19*second {
		t.Errorf("%d served, the last at %d ms; want 20 by 18 s, as there are tokens", served, last/1e6)
	}
}

// A rate that is lowered meanwhile, or raised again, is no other limit: who has a time keeps it, and has it to itself.
func TestSlotsOutliveALoweredRate(t *testing.T) {
	table := slot.New(slot.Options{Reserve: true, Grace: 2 * second})
	a, b := caller(table, "a"), caller(table, "b")
	if s := table.Refused(0, 2*second, empty(0), 1, a, true); s.At != 2*second || !s.Reserved {
		t.Fatalf("%+v, want a reserved slot in two seconds", s)
	}
	lowered := slot.Bucket{Key: quota, Gap: 2 * second, FullGap: second, Burst: 3, FullAt: second + 6*second}
	if s := table.Refused(second, 3*second, lowered, 1, b, true); s.At != 5*second {
		t.Errorf("%+v, want one behind a's, at 5 s", s)
	}
	now := 3 * second // which is when there is a token for a, and nobody else
	if v, refused := table.Look(now, now, lowered, 1, b, true); !refused || !v.HeldBack {
		t.Errorf("b would be told %+v, %v", v, refused)
	}
	if _, _, held := table.HoldsBack(now, lowered, 1, b, true); !held {
		t.Error("b may take the token that is reserved for a")
	}
	other := lowered
	other.FullGap = 2 * second
	if _, _, held := table.HoldsBack(now, other, 1, b, true); held {
		t.Error("b is held back for what was promised under another limit")
	}
}

func BenchmarkRefused(b *testing.B) {
	table := slot.New(slot.Options{})
	who := make([]slot.Caller, 1000)
	for i := range who {
		who[i] = table.Caller([]byte(fmt.Sprint(i)))
	}
	b.ReportAllocs()
	now := int64(0)
	for i := 0; b.Loop(); i++ {
		now += second / 10
		table.Refused(now, now+second, empty(now), 1, who[i%1000], false)
	}
}
