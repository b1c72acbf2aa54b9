package daemon

import (
	"context"
	"time"
)

// every calls f once in each interval until ctx ends, never twice at a time.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
