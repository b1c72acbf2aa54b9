package memory

import "time"

// Whoever finds a shard locked tries again after a pause. Mostly the holder waits for a slot from
// memory, and is done soon: then the pause is short. Where two processors decide about one key again
// and again, the lock is contended: a decision takes less time than to fetch the cache lines of lock
// and slot from the other processor, so more gets done if each makes many decisions before the other
// tries again, and the pause is long. A sync.Mutex tries again sooner, and parks the goroutine, which
// takes longer than either (one key from two goroutines: 100 ns a decision, 132 with Lock alone).
const (
	lockTries  = 4 // before the goroutine is parked
	shortPause = 200 * time.Nanosecond
	longPause  = 2 * time.Microsecond
	mostLooks  = 200 // at the clock in a pause: that of testing/synctest stands still meanwhile

	// A lock is contended for so long after somebody waited for it.
	contended = 4 * longPause
)

var started = time.Now()

// waitForLock locks a shard that was just found locked.
func (sh *shard) waitForLock() {
	now, pause := time.Since(started), shortPause
	if now-time.Duration(sh.waited.Load()) < contended {
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
	sh.waited.Store(int64(time.Since(started)))
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
