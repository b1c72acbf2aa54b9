package hold

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever has requests refused is read one connection after the other, at the pace at which they are refused; and at
// once again when that is over. Who was refused a few notices nothing.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := turn{start: time.Now()}
		at := func() time.Duration { return time.Since(u.start) }
		always := func() bool { return true }
		if !u.wait(always) || at() != 0 {
			t.Fatalf("whose requests are not refused waits for %v", at())
		}
		time.Sleep(time.Second)
		began := at()
		for range 200 { // 40 ms
			u.refused()
		}
		if !u.wait(always) || at() != began {
			t.Errorf("after 200 refused requests a read waits for %v, want none", at()-began)
		}
		time.Sleep(time.Second)

		began = at()
		for range 5000 { // 1 s
			u.refused()
		}
		var wg sync.WaitGroup
		var reads atomic.Int64
		for range 20 {
			wg.Go(func() {
				if u.wait(always) {
					reads.Add(1)
				}
			})
		}
		time.Sleep(time.Second - brim - time.Millisecond)
		synctest.Wait()
		if n := reads.Load(); n != 0 {
			t.Errorf("%d reads before what was refused is made up for, want none", n)
		}
		wg.Wait()
		// The first comes at 950 ms, and what each costs has to pass before the next.
		if took, want := at()-began, time.Second-brim+19*costOfRead; reads.Load() != 20 || took < want ||
			took > want+20*slice {
			t.Errorf("%d reads took %v, want 20 in %v", reads.Load(), took, want)
		}
		time.Sleep(time.Second)
		if began = at(); !u.wait(always) || at() != began {
			t.Errorf("a second later a read waits for %v, want none", at()-began)
		}

		for range 1_000_000 {
			u.refused()
		}
		gone := at() + 300*time.Millisecond
		if u.wait(func() bool { return at() < gone }) || at() > gone+slice {
			t.Errorf("a connection that ends waits until %v, want %v", at(), gone)
		}
		if !u.wait(always) || at() > gone+longest {
			t.Errorf("a read waits until %v, want a minute at most", at())
		}
	})
}
