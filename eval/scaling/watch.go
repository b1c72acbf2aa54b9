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
				w.look(gateways())
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

// end looks a last time: on a busy machine the last look may be older than what happened since.
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

// absence is for how long gateways were without the store.
type absence struct {
	together []stay  // all of them, each time
	apart    float64 // some of them, at most, in seconds times the part of them
}

// stay is how long something lasted: what was seen of it, and with what may have been between two looks.
type stay struct{ least, most time.Duration }

// absence is what was seen.
func (w *watcher) absence() (a absence) {
	var together stay
	for i := 1; i < len(w.seen); i++ {
		before, after := w.seen[i-1], w.seen[i]
		passed := after.at.Sub(before.at)
		if allLost(before) || allLost(after) {
			together.most += passed
		}
		if allLost(before) && allLost(after) {
			together.least += passed
		}
		if together.most > 0 && (!allLost(after) || i == len(w.seen)-1) {
			a.together, together = append(a.together, together), stay{}
		}
		switch all := max(before.all, after.all); {
		case before.all == 0 || after.all == 0: // nobody said anything
			a.apart += passed.Seconds()
		case before.lost+after.lost > 0 && !(allLost(before) && allLost(after)):
			a.apart += passed.Seconds() * float64(min(all-1, max(before.lost, after.lost))) / float64(all)
		}
	}
	return a
}
