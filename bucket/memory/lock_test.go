package memory

import (
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
