package key_test

import (
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/key"
)

func TestKeyDependsOnEveryPart(t *testing.T) {
	h := key.NewHasher()
	base := h.Key(1, 2, []byte("subject"))
	if got := h.Key(1, 2, []byte("subject")); got != base {
		t.Fatalf("Key of the same parts = %v, want %v", got, base)
	}
	for name, other := range map[string]key.Key{
		"rule":     h.Key(2, 2, []byte("subject")),
		"endpoint": h.Key(1, 3, []byte("subject")),
		"subject":  h.Key(1, 2, []byte("subjecT")),
		"empty":    h.Key(1, 2, nil),
		"secret":   key.NewHasher().Key(1, 2, []byte("subject")),
	} {
		if other == base {
			t.Errorf("a different %s gives the same key %v", name, base)
		}
	}
}

// Bytes that move from one part into its neighbour must name another bucket:
// the separator bug of limiters that join strings.
func TestKeyIsInjectiveAcrossParts(t *testing.T) {
	h := key.NewHasher()
	seen := map[key.Key]string{}
	for rule := range uint64(8) {
		for endpoint := range uint64(8) {
			for length := range 24 {
				for fill := range byte(4) {
					subject := make([]byte, length)
					for i := range subject {
						subject[i] = fill
					}
					name := fmt.Sprint(rule, endpoint, subject)
					k := h.Key(rule, endpoint, subject)
					if before, ok := seen[k]; ok && before != name {
						t.Fatalf("%s and %s share the key %v", before, name, k)
					}
					seen[k] = name
				}
			}
		}
	}
}

func FuzzKeyTellsSubjectsApart(f *testing.F) {
	f.Add(uint64(1), uint64(2), []byte("a"), uint64(1), uint64(2), []byte("b"))
	h := key.NewHasher()
	f.Fuzz(func(t *testing.T, r1 uint64, e1 uint64, s1 []byte, r2 uint64, e2 uint64, s2 []byte) {
		same := r1 == r2 && e1 == e2 && string(s1) == string(s2)
		if got := h.Key(r1, e1, s1) == h.Key(r2, e2, s2); got != same {
			t.Errorf("keys of (%d,%d,%q) and (%d,%d,%q) equal = %v, want %v", r1, e1, s1, r2, e2, s2, got, same)
		}
	})
}

func TestKeyAllocatesNothing(t *testing.T) {
	h := key.NewHasher()
	for _, length := range []int{0, 17, 40, 128} {
		subject := make([]byte, length)
		if n := testing.AllocsPerRun(100, func() { h.Key(1, 2, subject) }); n != 0 {
			t.Errorf("Key of a %d-byte subject allocates %v times, want 0", length, n)
		}
	}
}

func BenchmarkKey(b *testing.B) {
	for name, length := range map[string]int{"address": 17, "apikey": 40} {
		for kind, h := range map[string]*key.Hasher{"": key.NewHasher(),
			",lasting": key.NewLasting([key.SeedSize]byte{1})} {
			b.Run(name+kind, func(b *testing.B) {
				subject := make([]byte, length)
				b.ReportAllocs()
				for b.Loop() {
					h.Key(1, 2, subject)
				}
			})
		}
	}
}
