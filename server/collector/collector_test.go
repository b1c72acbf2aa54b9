package collector

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	for inUse, want := range map[uint64]struct{ starting, started int }{
		0:         {1600, 400}, // of the 4 MiB that Go takes a heap to have at least
		1 << 20:   {1600, 400},
		4 << 20:   {1600, 400},
		8 << 20:   {800, 400},
		32 << 20:  {400, 400},
		64 << 20:  {200, 200},
		100 << 20: {128, 128},
		128 << 20: {100, 100},
		1 << 40:   {100, 100},
	} {
		if got := growth(inUse, true); got != want.starting {
			t.Errorf("growth(%d) of a process that starts = %d, want %d", inUse, got, want.starting)
		}
		if got := growth(inUse, false); got != want.started {
			t.Errorf("growth(%d) = %d, want %d", inUse, got, want.started)
		}
	}
}

// The growth follows what is in use, there and back.
func TestCollectorFollows(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	started := Relax()
	percent := func() uint64 {
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(now)
		return now[0].Value.Uint64()
	}
	if p := percent(); p <= 400 {
		t.Errorf("while a process starts the heap may grow by %d percent, want more than later", p)
	}
	if started(); percent() > 400 {
		t.Errorf("when it has started the heap may grow by %d percent, want 400 at most", percent())
	}
	await := func(ok func(uint64) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(percent()); runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("the heap may grow by %d percent after a minute of collections", percent())
			}
		}
	}
	ballast := make([]byte, 256<<20)
	await(func(p uint64) bool { return p < 120 })
	runtime.KeepAlive(ballast)
	ballast = nil
	await(func(p uint64) bool { return p > 120 })
}
