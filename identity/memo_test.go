package identity

import (
	"encoding/binary"
	"encoding/hex"
	"sync"
	"testing"
)

// The answers are those of OpenSSL 3 (openssl mac -macopt size:16 SIPHASH) for
// the key 00 01 … 0f and the text 00 01 … of each length; the first two are
// also the first of the reference implementation's vectors.
func TestMemoHashIsSipHash(t *testing.T) {
	m := &memo{k0: 0x0706050403020100, k1: 0x0f0e0d0c0b0a0908}
	for n, want := range sipVectors {
		text := make([]byte, n)
		for i := range text {
			text[i] = byte(i)
		}
		got := m.hash(text)
		var out [16]byte
		binary.LittleEndian.PutUint64(out[:], got.lo)
		binary.LittleEndian.PutUint64(out[8:], got.hi)
		if hex.EncodeToString(out[:]) != want {
			t.Errorf("hash of %d bytes = %x, want %s", n, out, want)
		}
	}
}

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

var sipVectors = map[int]string{
	0:  "a3817f04ba25a8e66df67214c7550293",
	1:  "da87c1d86b99af44347659119b22fc45",
	7:  "a1f1ebbed8dbc153c0b84aa61ff08239",
	8:  "3b62a9ba6258f5610f83e264f31497b4",
	15: "5493e99933b0a8117e08ec0f97cfc3d9",
	16: "6ee2a4ca67b054bbfd3315bf85230577",
	52: "2c97325cbd06b36eb2133dd08b3a017c",
	63: "5150d1772f50834a503e069a973fbd7c",
}
