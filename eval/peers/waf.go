package peers

import (
	"sync"
	"time"
)

// WAF is a model of a rate-based rule of AWS WAF, which cannot be had: it counts the requests of
// each address over a window of one minute, the shortest that there is, and looks at the counts
// every ten seconds. Until it has looked, everybody passes; who was over the limit then does not,
// until a look finds fewer. The numbers are those of the AWS WAF Developer Guide, "Rate-based rule
// caveats". It has no burst: a limit a second is sixty times as much a minute.
type WAF struct {
	most int64
	now  func() time.Time

	mu      sync.Mutex
	looked  time.Time              // guarded by mu
	came    map[string][]time.Time // guarded by mu; of the last window, blocked ones too
	blocked map[string]bool        // guarded by mu
}

const (
	wafWindow = time.Minute
	wafLook   = 10 * time.Second
)

// NewWAF makes a rule for a limit.
func NewWAF(l Limit, now func() time.Time) *WAF {
	return &WAF{
		most:    max(10, l.Rate*int64(wafWindow/time.Second)),
		now:     now,
		looked:  now(),
		came:    map[string][]time.Time{},
		blocked: map[string]bool{},
	}
}

// Allowed counts a request of an address.
func (w *WAF) Allowed(address string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Sub(w.looked) >= wafLook {
		w.look(now)
	}
	w.came[address] = append(w.came[address], now)
	return !w.blocked[address]
}

func (w *WAF) look(now time.Time) {
	w.looked = now
	for address, times := range w.came {
		for len(times) > 0 && now.Sub(times[0]) > wafWindow {
			times = times[1:]
		}
		w.came[address] = times
		if w.blocked[address] = int64(len(times)) > w.most; len(times) == 0 {
			delete(w.came, address)
			delete(w.blocked, address)
		}
	}
}
