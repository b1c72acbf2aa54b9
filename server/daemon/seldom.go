package daemon

import (
	"log/slog"
	"sync"
	"time"
)

// seldom returns what writes a warning about an error, at most one a second:
// clients decide how often it happens.
func seldom(log *slog.Logger, message string) func(error) {
	var mu sync.Mutex
	var last time.Time
	skipped := 0
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Sub(last) < time.Second {
			skipped++
			return
		}
		log.Warn(message, "error", err, "not_logged", skipped)
		last, skipped = now, 0
	}
}
