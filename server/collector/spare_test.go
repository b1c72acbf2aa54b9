package collector

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// Memory is given back when the process is quiet, if there is some, and not again before there is more.
func TestGiveBack(t *testing.T) {
	const mib = 1 << 20
	var s spare
	for i, step := range []struct {
		what string
		now  held
		want bool
	}{
		{"the first look knows nothing", held{made: 100 * mib}, false},
		{"quiet after the start", held{made: 100 * mib}, true},
		{"nothing has changed", held{made: 100 * mib}, false},
		{"little is made", held{made: 101*mib - 1}, false},
		{"busy", held{made: 300 * mib, live: 40 * mib, stacks: 70 * mib}, false},
		{"busy", held{made: 500 * mib, live: 40 * mib, stacks: 90 * mib}, false},
		{"quiet", held{made: 500 * mib, live: 40 * mib, stacks: 90 * mib}, true},
		{"goroutines have ended", held{made: 500 * mib, live: 40 * mib, stacks: 70 * mib}, true},
		{"and are still gone", held{made: 500 * mib, live: 40 * mib, stacks: 70 * mib}, false},
		{"busy", held{made: 520 * mib, live: 400 * mib}, false},
		{"too little for so much that is alive", held{made: 520 * mib, live: 400 * mib, stacks: 1}, false},
	} {
		gave := false
		s.look(step.now, func() { gave = true })
		if gave != step.want {
			t.Errorf("step %d, %s: gave back %v, want %v", i, step.what, gave, step.want)
		}
	}
}

var kept []byte

// What was measured is there, and is given back.
func TestMemoryGoesBack(t *testing.T) {
	kept = make([]byte, 64<<20)
	for i := 0; i < len(kept); i += 4 << 10 {
		kept[i] = 1
	}
	if runtime.GC(); measure().live < 64<<20 {
		t.Errorf("measured %+v, want 64 MiB alive", measure())
	}
	kept = nil
	var s spare
	s.look(measure(), collect)
	before := measure()
	gave := false
	s.look(before, func() { gave = true; collect() })
	if after := measure(); !gave || after.live > before.live-60<<20 {
		t.Errorf("gave back %v, from %+v to %+v", gave, before, after)
	}
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	if metrics.Read(free); free[0].Value.Uint64() > 8<<20 {
		t.Errorf("%d bytes are free and not given back", free[0].Value.Uint64())
	}
}
