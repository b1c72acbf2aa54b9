package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket/memory"
)

// When the bucket table counts as too small: more than one bucket in a hundred
// that came since the last look drove out another in debt, or more than one new
// key in a hundred is estimated to find less than a full bucket. Nobody is given
// a token too many by either; some are denied what is theirs.
const (
	tooManyLossy  = 0.01
	tooManyDenied = 0.01
	fewest        = 100 // lossy evictions, below which a share of them means nothing

	pressureInterval = 30 * time.Second
)

// pressure watches whether the bucket table is large enough. What it finds is
// told and never makes the process less ready: another one would fare no
// better.
type pressure struct {
	stats func() memory.Stats
	log   *slog.Logger

	mu      sync.Mutex
	last    memory.Stats // guarded by mu
	warning string       // guarded by mu; empty if all is well
}

func newPressure(stats func() memory.Stats, log *slog.Logger) *pressure {
	if log == nil {
		log = slog.Default()
	}
	return &pressure{stats: stats, log: log}
}

func (p *pressure) run(ctx context.Context) {
	ticker := time.NewTicker(pressureInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.look(p.stats())
		}
	}
}

// look compares the table with the last look, and logs when it begins or ceases
// to be too small.
func (p *pressure) look(now memory.Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	warning := tooSmall(p.last, now)
	was := p.warning
	p.last, p.warning = now, warning
	switch {
	case warning != "" && was == "":
		p.log.Warn("the bucket table is too small: give it more by max_buckets or max_bytes", "finding", warning,
			"occupancy", now.Occupancy, "slots", now.Capacity, "evicted_in_debt", now.EvictedInDebt, "false_denials", now.FalseDenials)
	case warning == "" && was != "":
		p.log.Info("the bucket table is large enough again", "occupancy", now.Occupancy)
	}
}

func (p *pressure) warnings() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.warning == "" {
		return nil
	}
	return []string{"the bucket table is too small: " + p.warning}
}

// tooSmall says what is wrong with a table, or "".
func tooSmall(last, now memory.Stats) string {
	lossy, created := now.EvictedInDebt-last.EvictedInDebt, now.Created-last.Created
	switch {
	case now.FalseDenials > tooManyDenied:
		return fmt.Sprintf("%.1f %% of new clients find less than a full bucket", 100*now.FalseDenials)
	case lossy >= fewest && float64(lossy) > tooManyLossy*float64(created):
		return fmt.Sprintf("%d of %d new buckets drove out one in debt", lossy, created)
	}
	return ""
}
