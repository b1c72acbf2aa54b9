package once_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/once"
)

func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0) }

func TestUseIsTrueOnce(t *testing.T) {
	m := once.New(64, nil)
	for i, step := range []struct {
		holder, name string
		made         int
		fresh        bool
	}{
		{"alice", "a", 0, true}, {"alice", "a", 0, false}, {"alice", "b", 0, true},
		{"bob", "a", 0, true},   // his own
		{"alic", "ea", 0, true}, // another pair
		{"alice", "a", 0, false},
	} {
		if used := m.Used(step.holder, step.name, at(step.made), at(0)); used == step.fresh {
			t.Errorf("step %d: Used = %t", i, used)
		}
		if fresh := m.Use(step.holder, step.name, at(step.made), at(0)); fresh != step.fresh {
			t.Errorf("step %d: Use = %t, want %t", i, fresh, step.fresh)
		}
	}
}

// TestNothingIsUsedTwice floods a memory that is far too small, with names of all ages and a clock that goes to and
// fro, and compares it with one that forgets nothing.
func TestNothingIsUsedTwice(t *testing.T) {
	const seed = 20
	r := rand.New(rand.NewPCG(seed, 0))
	m, used := once.New(64, nil), map[string]bool{}
	var names []string
	made := map[string]time.Time{}
	fresh := 0
	for i := range 20_000 {
		var name string
		if r.IntN(3) == 0 && len(names) > 0 {
			name = names[r.IntN(len(names))]
		} else {
			name = fmt.Sprint(i)
			names, made[name] = append(names, name), at(i/100-r.IntN(60))
		}
		holder := name[:1]
		if m.Use(holder, name, made[name], at(i/100+r.IntN(40)-10)) {
			if used[name] {
				t.Fatalf("seed %d: %q was used twice", seed, name)
			}
			used[name] = true
			fresh++
		}
	}
	if fresh < 600 { // about 970, as chance has it that puts holders into regions
		t.Errorf("%d of %d names were used, want most of those that were made just then", fresh, len(names))
	}
}

// TestAFloodLeavesThoseThatAreNew: whoever floods with names of his own narrows how old a name may be, and not at
// all in other regions.
func TestAFloodLeavesThoseThatAreNew(t *testing.T) {
	m := once.New(1<<10, nil)
	for i := range 100_000 {
		m.Use("flood", fmt.Sprint(i), at(i/1000), at(i/1000))
	}
	if !m.Use("flood", "now", at(100), at(100)) {
		t.Error("a name that is made now is refused")
	}
	old := 0
	for i := range 256 {
		if m.Use(fmt.Sprint("holder ", i), "x", at(0), at(100)) {
			old++
		}
	}
	if old < 180 {
		t.Errorf("%d of 256 others may use a name that is older than the flood, want those of 7 regions of 8", old)
	}
}

// TestAFloodAheadOfTheClockLeavesThoseOfNow floods with names that say they will be made later: what is made now can be
// used all the same, by whomever.
func TestAFloodAheadOfTheClockLeavesThoseOfNow(t *testing.T) {
	m := once.New(1<<10, nil)
	for i := range 100_000 {
		m.Use("flood", fmt.Sprint(i), at(29), at(0))
	}
	used := 0
	for i := range 16 {
		if m.Use("flood", fmt.Sprint("now ", i), at(0), at(0)) {
			used++
		}
	}
	if used != 16 {
		t.Errorf("%d of 16 names that are made now can be used, want all", used)
	}
}

func TestOneOfManyUsesAtOnce(t *testing.T) {
	m := once.New(1<<10, nil)
	var fresh atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				if m.Use("alice", fmt.Sprint(i%10), at(0), at(0)) {
					fresh.Add(1)
				}
			}
		})
	}
	all.Wait()
	if fresh.Load() != 10 {
		t.Errorf("%d of 10 names were used, want each once", fresh.Load())
	}
}

func BenchmarkUse(b *testing.B) {
	m := once.New(1<<16, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Use("acme\x00alice", "e1j3V_bKic8-LAEB", at(i), at(i))
	}
}

// others are a memory of their own, which may be away.
type others struct {
	*once.Memory
	away  bool
	asked int
}

func (o *others) Use(holder, name string, made time.Time) (fresh, known bool) {
	o.asked++
	return !o.away && o.Memory.Use(holder, name, made, made), !o.away
}

// TestOthersAreAskedOnce: of a name that is new here alone. While they are away each process remembers for itself.
func TestOthersAreAskedOnce(t *testing.T) {
	all := &others{Memory: once.New(64, nil)}
	a, b := once.New(64, all), once.New(64, all)
	use := func(m *once.Memory, name string) bool { return m.Use("alice", name, at(0), at(0)) }
	if !use(a, "x") || use(a, "x") || use(b, "x") || use(b, "x") || all.asked != 2 {
		t.Errorf("a name is not used once, or others were asked %d times, want 2", all.asked)
	}
	all.away = true
	if !use(a, "y") || use(a, "y") || !use(b, "y") || use(b, "x") {
		t.Error("while others are away, a process does not remember for itself")
	}
	all.away = false
	if use(a, "y") || use(b, "y") || !use(b, "z") || use(a, "z") {
		t.Error("when others are back, a name is used twice, or none is")
	}
}
