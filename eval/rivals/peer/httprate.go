package peer

import (
	"math"
	"sync"
	"time"

	"github.com/go-chi/httprate"
)

// httprate itself decides in a function that writes response headers. This is the same decision
// without them, from its public parts: the same two readings of the clock, the same lock around
// both, the same estimate.
var httpratePeer = Peer{
	Name:   "httprate",
	Module: "github.com/go-chi/httprate",
	How:    "sliding-window estimate from two windows; 64-bit hash without a key, and a count",
	Bound:  "none; keys go with their window",
	Open: func(int) (Limiter, error) {
		const window = 24 * time.Hour
		l := httprate.NewRateLimiter(burst, window, httprate.WithLimitCounter(httprate.NewLocalLimitCounter(window)))
		var mu sync.Mutex
		return shared(func(key string) bool {
			now := time.Now().UTC().Truncate(window)
			mu.Lock()
			defer mu.Unlock()
			_, rate, err := l.Status(key)
			if err != nil || int(math.Round(rate))+1 > burst {
				return false
			}
			return l.Counter().IncrementBy(key, now, 1) == nil
		}), nil
	},
}
