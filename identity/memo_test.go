package identity

import (
	"encoding/binary"
	"sync"
	"testing"
)

func TestMemo(t *testing.T) {
	m := newMemo()
	one, other := tag{hi: 1, lo: 5}, tag{hi: 2, lo: 5 + memoSlots} // of one slot
	if _, ok := m.get(tag{}); ok {
		t.Error("an empty memo knows the zero tag")
	}
	d, e := Digest{1, 31: 9}, Digest{2}
	m.put(one, &d)
	if got, ok := m.get(one); !ok || got != d {
		t.Errorf("get = %x, %v, want what was put", got, ok)
	}
	if _, ok := m.get(other); ok {
		t.Error("a tag is taken for another of its slot")
	}
	if _, ok := m.get(tag{hi: 2, lo: 5}); ok {
		t.Error("half a tag is enough")
	}
	for range 1000 { // one in memoReplace is kept
		m.put(other, &e)
	}
	if got, ok := m.get(other); !ok || got != e {
		t.Errorf("get after many puts = %x, %v, want the last", got, ok)
	}
	if _, ok := m.get(one); ok {
		t.Error("what was driven out is still known")
	}
}

// Who reads while others write gets a digest of the tag asked for, or none.
func TestMemoIsNeverTorn(t *testing.T) {
	m := newMemo()
	of := func(i uint64) (tag, Digest) {
		var d Digest
		for j := range 4 {
			binary.LittleEndian.PutUint64(d[8*j:], i)
		}
		return tag{hi: i, lo: memoSlots * i}, d // all in one slot
	}
	var all sync.WaitGroup
	for w := range uint64(4) {
		all.Go(func() {
			for i := range uint64(20_000) {
				x := (i + w) % 3
				at, d := of(x)
				m.put(at, &d)
				if got, ok := m.get(at); ok && got != d {
					t.Errorf("get of %d = %x", x, got)
					return
				}
			}
		})
	}
	all.Wait()
}
