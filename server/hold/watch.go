package hold

import (
	"sync"
	"time"
)

// watch waits for a client on one side of a request, its body or its answer, and
// cuts it off if it is too slow. The timer runs on while nobody waits, since to
// set it costs more than to look, now and then, that there is nothing to do.
type watch struct {
	pace Pace
	cut  func() // called once at most, and never after over

	mu    sync.Mutex
	left  time.Duration // guarded by mu: see Pace.Spend
	since time.Time     // guarded by mu: the wait began; zero if nobody waits
	timer *time.Timer   // guarded by mu: nil before the first wait
	armed bool          // guarded by mu
	ended bool          // guarded by mu

	// silent, if set, returns how long it is since anything passed on either side,
	// and how long that may be; 0 if the pace counts instead. It is asked with mu
	// held.
	silent func() (since, most time.Duration)
}

// begin is called before a wait.
func (w *watch) begin() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since = now; !w.armed && !w.ended {
		w.arm(w.left)
	}
}

// end is called after it, with the bytes that came or went.
func (w *watch) end(bytes int) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left = w.pace.Spend(w.left, now.Sub(w.since), int64(bytes)); w.left <= 0 {
		w.left = time.Millisecond // it was in time: the timer is the judge
	}
	w.since = time.Time{}
}

func (w *watch) arm(after time.Duration) {
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.fire)
	} else {
		w.timer.Reset(after)
	}
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.ended {
		return
	}
	if most := w.mostSilent(); most > 0 {
		if since, _ := w.silent(); since < most {
			w.arm(most - since)
			return
		}
	} else {
		if w.since.IsZero() {
			return
		}
		if waited := time.Since(w.since); waited < w.left {
			w.arm(w.left - waited)
			return
		}
	}
	w.ended = true
	w.cut()
}

func (w *watch) mostSilent() time.Duration {
	if w.silent == nil {
		return 0
	}
	_, most := w.silent()
	return most
}

// over ends the watch: what it would cut belongs to somebody else now.
func (w *watch) over() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
