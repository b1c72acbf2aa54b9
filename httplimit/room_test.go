package httplimit

import (
	"sync"
	"testing"
)

// Whoever asks a room for more than it has takes nothing of it from others meanwhile.
func TestWhoFindsNoRoomTakesNone(t *testing.T) {
	r := room{most: 100}
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 20_000 {
				if r.take(101) {
					t.Error("101 bytes are taken of 100")
				}
			}
		})
	}
	for range 20_000 {
		if !r.take(60) {
			t.Fatal("there is no room for 60 of 100 bytes, of which nobody has any")
		}
		r.held.Add(-60)
	}
	done.Wait()
}
