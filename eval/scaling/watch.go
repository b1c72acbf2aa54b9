package main

import (
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// watcher looks again and again which gateways decide without the store.
type watcher struct {
	every time.Duration
	stop  chan struct{}
	done  sync.WaitGroup

	seen []sight // read it after end
}

// sight is how many of the gateways that answered had lost the store at a time.
type sight struct {
	at        time.Time
	lost, all int
}

// watch begins to watch the gateways that are there when it looks.
func watch(gateways func() []*harness.Gateway) *watcher {
	w := &watcher{every: 10 * time.Millisecond, stop: make(chan struct{})}
	w.done.Go(func() {
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for {
			w.look(gateways())
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

func (w *watcher) look(gateways []*harness.Gateway) {
	var s sight
	for _, g := range gateways {
		lost, err := metric(g, "headgate_store_lost")
		if err != nil {
			continue // it was killed meanwhile
		}
		s.all++
		s.lost += int(lost)
	}
	s.at = time.Now()
	w.seen = append(w.seen, s)
}

// end looks a last time.
func (w *watcher) end() {
	close(w.stop)
	w.done.Wait()
}

// first is how long after a time it came to be; below zero if it never did.
func (w *watcher) first(since time.Time, ok func(sight) bool) time.Duration {
	for _, s := range w.seen {
		if !s.at.Before(since) && ok(s) {
			return s.at.Sub(since)
		}
	}
	return -1
}

func allLost(s sight) bool  { return s.lost == s.all && s.all > 0 }
func noneLost(s sight) bool { return s.lost == 0 && s.all > 0 }

// apart is for how long some had lost the store while others asked it, at most: whatever happened between two looks counts.
func (w *watcher) apart() (sum time.Duration) {
	for i := 1; i < len(w.seen); i++ {
		before, after := w.seen[i-1], w.seen[i]
		if noneLost(before) && noneLost(after) || allLost(before) && allLost(after) {
			continue
		}
		sum += after.at.Sub(before.at)
	}
	return sum
}
