package gossip

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// What can be read is what would be written, and the longest fits where room was kept for it.
func FuzzMessage(f *testing.F) {
	for _, l := range []rate.Limit{{Tokens: 1, Per: time.Second, Burst: 1},
		{Tokens: 7, Per: 24 * time.Hour, Burst: 1 << 35}, {Tokens: 1 << 32, Per: time.Second, Burst: 1 << 20}} {
		sh, err := rate.Compile(l)
		if err != nil {
			f.Fatal(err)
		}
		m := appendHead(nil, &head{kind: telling, from: 1, to: 2, number: 300, unheard: never})
		m = appendEntry(m, telling, key.Key{Hi: 3, Lo: math.MaxUint64},
			&Entry{Shape: sh, Nth: 9, Admitted: 1 << 40, Returned: 1 << 20, Own: 7})
		f.Add(m)
		m = appendHead(nil, &head{kind: copying, from: 1})
		m = appendEntry(m, copying, key.Key{}, &Entry{Shape: sh, Nth: math.MaxUint32,
			Admitted: rate.MaxCapacity, Returned: rate.MaxCapacity, Own: 7, Owed: rate.MaxCapacity})
		f.Add(appendCounts(m, []Count{{1, 2, 3, 1},
			{math.MaxUint64, math.MaxUint32, rate.MaxCapacity, rate.MaxCapacity}}))
	}
	f.Add([]byte{version, 0})
	f.Add(append(appendHead(nil, &head{}), bytes.Repeat([]byte{0xff}, 40)...))
	f.Fuzz(func(t *testing.T, message []byte) {
		h, rest, err := readHead(message)
		if err != nil {
			return
		}
		again := appendHead(nil, &h)
		if h2, _, err := readHead(again); err != nil || h2 != h || len(again) > headRoom {
			t.Fatalf("%+v is written as %x, and read as %+v, %v", h, again, h2, err)
		}
		for len(rest) > 0 {
			k, e, after, err := readEntry(rest, h.kind)
			if err != nil {
				return
			}
			b := appendEntry(nil, h.kind, k, &e)
			k2, e2, left, err := readEntry(b, h.kind)
			if err != nil || k2 != k || e2 != e || len(left) > 0 || len(b) > entryRoom {
				t.Fatalf("%v %+v is written as %x, and read as %v %+v, %v", k, e, b, k2, e2, err)
			}
			if h.kind == copying {
				var known []Count
				if known, after, err = readCounts(after); err != nil {
					return
				}
				b := appendCounts(nil, known)
				again, left, err := readCounts(b)
				if err != nil || !slices.Equal(known, again) || len(left) > 0 || len(b) > 10+len(known)*countRoom {
					t.Fatalf("%v is written as %x, and read as %v, %v", known, b, again, err)
				}
			}
			// No arithmetic on it leaves an int64.
			a := Open(1, e.Shape, 1)
			v := &Silence{Replicas: 3, Silent: []Silent{{Name: 5, Since: 1}}, After: time.Second}
			for i, now := range []int64{1, 2, 1 << 30, 1 << 62} {
				a.Hear(now, v, Teller{Name: uint64(6 + i%2), Most: 100, Back: i == 2}, &e)
				a.Take(now, v, 1)
				if owed := a.Look(now); owed.Owed < 0 || owed.Own < 0 || a.state.Debt < 0 ||
					a.state.Debt > mostOwed(&e.Shape, 3) {
					t.Fatalf("after %+v at %d: %+v, state %+v", e, now, owed, a.state)
				}
			}
			rest = after
		}
	})
}

// A message that ends anywhere, or says what no limit can be, is refused.
func TestMessagesThatAreWrong(t *testing.T) {
	sh, err := rate.Compile(rate.Limit{Tokens: 100, Per: time.Second, Burst: 50})
	if err != nil {
		t.Fatal(err)
	}
	whole := appendEntry(nil, telling, key.Key{Hi: 1}, &Entry{Shape: sh, Nth: 1, Admitted: 5, Own: 5})
	for n := 1; n < len(whole); n++ {
		if _, _, _, err := readEntry(whole[:n], telling); err == nil {
			t.Errorf("an entry of %d of %d bytes is read", n, len(whole))
		}
	}
	for _, wrong := range []rate.Shape{
		{Drain: 0, Unit: 1, Capacity: 1, Tick: 1}, {Drain: 1, Unit: 1, Capacity: 0, Tick: 1},
		{Drain: 1, Unit: 1, Capacity: 1, Tick: 2},
		{Drain: rate.MaxDrain + 1, Unit: 1, Capacity: 1, Tick: 1},
	} {
		if _, _, _, err := readEntry(appendEntry(nil, telling, key.Key{}, &Entry{Shape: wrong}), telling); err == nil {
			t.Errorf("a limit of %+v is read", wrong)
		}
	}
}
