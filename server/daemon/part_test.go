package daemon

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// Whatever is put into a part is run, one after the other, however soon something else takes its place: a log of
// decisions that was there between two reloads has lines to write.
func TestWhatIsThereForAMomentIsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPart[int]()
		var mu sync.Mutex
		var began, ended []int
		run := func(ctx context.Context, n *int) {
			mu.Lock()
			began = append(began, *n)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, *n)
		}
		put := func(n int) { p.put(&n) }
		ctx, stop := context.WithCancel(t.Context())
		put(1) // before anything runs
		var done sync.WaitGroup
		done.Go(func() { p.run(ctx, run) })
		synctest.Wait()
		for n := 2; n <= 4; n++ { // with no pause
			put(n)
		}
		p.put(nil)
		put(5)
		synctest.Wait()
		if now := p.get(); now == nil || *now != 5 || !slices.Equal(began, []int{1, 2, 3, 4, 5}) ||
			!slices.Equal(ended, []int{1, 2, 3, 4}) {
			t.Errorf("%v is there, %v began and %v ended, want 5, 1 to 5 and 1 to 4", now, began, ended)
		}
		put(6) // beside the stop
		stop()
		done.Wait()
		if !slices.Equal(began, []int{1, 2, 3, 4, 5, 6}) || !slices.Equal(ended, began) {
			t.Errorf("%v began and %v ended, want all", began, ended)
		}
	})
}
