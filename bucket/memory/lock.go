package memory

import "time"

// Whoever finds a shard locked by another processor asks again after a while. Mostly the other one waits for a slot
// from memory, and is done soon. If two decide about one key again and again, neither waits for memory, but each
// fetches the lock's cache line and the slot's from the other, which takes longer than the decision: then more gets
// done while nobody asks for them. A sync.Mutex does neither, and sleeps for longer than either takes (one key from
// two goroutines: 100 ns a decision, 132 with Lock alone).
const (
	lockTries  = 4 // before a sleep
	shortPause = 200 * time.Nanosecond
	longPause  = 2 * time.Microsecond
	mostLooks  = 200 // at the clock in a pause: that of testing/synctest stands still meanwhile

	// A shard is crowded for so long after somebody waited for it.
	crowded = 4 * longPause
)

var started = time.Now()

// waitForLock locks a shard that was just found locked.
func (sh *shard) waitForLock() {
	now, pause := time.Since(started), shortPause
	if now-time.Duration(sh.waited.Load()) < crowded {
		pause = longPause
	}
	for range lockTries {
		until := now + pause
		for looks := 0; now < until && looks < mostLooks; looks++ {
			now = time.Since(started)
		}
		if sh.mu.TryLock() {
			sh.waited.Store(int64(now))
			return
		}
		pause = longPause
	}
	sh.mu.Lock()
}

func (s *Store) lock(shards []uint32) {
	for _, i := range shards {
		if sh := &s.shards[i]; !sh.mu.TryLock() {
			sh.waitForLock()
		}
	}
}

func (s *Store) unlock(shards []uint32) {
	for _, i := range shards {
		s.shards[i].mu.Unlock()
	}
}
