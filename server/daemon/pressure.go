package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// When the bucket table counts as too small: more than one bucket in a hundred
// that came since the last look drove out another in debt, or more than one new
// client in a hundred of some rule is estimated to be denied its first token.
// Nobody is given a token too many by either; some are denied what is theirs.
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
	rules func() *policy.Set
	log   *slog.Logger

	mu      sync.Mutex
	last    memory.Stats // guarded by mu
	warning string       // guarded by mu; empty if all is well
}

func newPressure(stats func() memory.Stats, rules func() *policy.Set, log *slog.Logger) *pressure {
	if log == nil {
		log = slog.Default()
	}
	return &pressure{stats: stats, rules: rules, log: log}
}

// mostDenied is the rule in force whose new clients are denied most often
// because of what other buckets left, and the estimated part of them. It is
// nobody's, and 0, as long as no bucket was evicted in debt.
func mostDenied(set *policy.Set, table memory.Stats) (title string, part float64) {
	if set == nil || table.EvictedInDebt == 0 {
		return "", 0
	}
	worst, seen := policy.RuleID(0), map[rate.Shape]bool{}
	for id := range policy.RuleID(set.Bound()) {
		shape := set.Terms(id).Shape
		if seen[shape] {
			continue
		}
		seen[shape] = true
		if denied := table.Crowding.FalseDenials(shape); denied > part {
			worst, part = id, denied
		}
	}
	if part == 0 {
		return "", 0
	}
	return set.Rule(worst).Title(), part
}

func (p *pressure) run(ctx context.Context) {
	every(ctx, pressureInterval, func() { p.look(p.stats()) })
}

// look compares the table with the last look, and logs when it begins or ceases
// to be too small.
func (p *pressure) look(now memory.Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rule, denied := mostDenied(p.rules(), now)
	warning := tooSmall(p.last, now, rule, denied)
	was := p.warning
	p.last, p.warning = now, warning
	switch {
	case warning != "" && was == "":
		p.log.Warn("the bucket table is too small: give it more by max_buckets or max_bytes", "finding", warning,
			"occupancy", now.Occupancy, "slots", now.Capacity, "evicted_in_debt", now.EvictedInDebt, "false_denials",
			denied, "rule", rule)
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

// tooSmall says what is wrong with a table in which a part of the new clients of
// some rule is denied, or "".
func tooSmall(last, now memory.Stats, rule string, denied float64) string {
	lossy, created := now.EvictedInDebt-last.EvictedInDebt, now.Created-last.Created
	switch {
	case denied > tooManyDenied:
		return fmt.Sprintf("%.1f %% of new clients under rule %q are denied their first request", 100*denied, rule)
	case lossy >= fewest && float64(lossy) > tooManyLossy*float64(created):
		return fmt.Sprintf("%d of %d new buckets drove out one in debt", lossy, created)
	}
	return ""
}
