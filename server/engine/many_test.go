//go:build long

package engine

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var howMany = flag.Int("streams", 10_000_000, "how many streams TestManyStreams makes")

// TestPlainIsReadTheSame by millions, on all processors.
func TestManyStreams(t *testing.T) {
	seed := rand.Uint64()
	const each = 100_000
	var next, plains, others atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				n := next.Add(1) - 1
				if int(n)*each >= *howMany || t.Failed() {
					return
				}
				plain, other, faults := compare(seed+uint64(n), each, none, 5)
				plains.Add(int64(plain))
				others.Add(int64(other))
				for _, fault := range faults {
					t.Errorf("seed %d: %s", seed+uint64(n), fault)
				}
			}
		})
	}
	all.Wait()
	t.Logf("seed %d: %d streams, %d of them plain", seed, plains.Load()+others.Load(), plains.Load())
}
