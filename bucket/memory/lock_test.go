package memory

import (
	"sync"
	"testing"
	"testing/synctest"
)

// Who waits for a shard gets it also where the clock stands still, as it does in programs that test with synctest.
func TestWaitForLockWithoutTime(t *testing.T) {
	s, err := New(Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) {
		s.shards[0].waitForLock()
		s.shards[0].mu.Unlock()
	})
}

// One goroutine at a time has a shard, however each of them came to it.
func TestWaitForLockExcludesOthers(t *testing.T) {
	s, err := New(Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	const goroutines, times = 8, 2000
	var n int // guarded by the lock alone
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for range times {
				switch g % 3 {
				case 0:
					s.shards[0].mu.Lock()
				case 1:
					s.shards[0].waitForLock()
				default:
					s.lock([]uint32{0})
				}
				n++
				s.shards[0].mu.Unlock()
			}
		})
	}
	all.Wait()
	if n != goroutines*times {
		t.Errorf("%d of %d times a goroutine had the shard for itself", n, goroutines*times)
	}
}
