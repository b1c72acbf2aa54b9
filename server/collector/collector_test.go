package collector

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	for inUse, want := range map[uint64]int{0: 400, 1 << 20: 400, 32 << 20: 400, 64 << 20: 200, 100 << 20: 128, 128 << 20: 100, 1 << 40: 100} {
		if got := growth(inUse); got != want {
			t.Errorf("growth(%d) = %d, want %d", inUse, got, want)
		}
	}
}

// The growth follows what is in use, there and back.
func TestCollectorFollows(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	Relax()
	percent := func() uint64 {
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(now)
		return now[0].Value.Uint64()
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
