package daemon

import (
	"time"

	"github.com/headgate-io/headgate/server/metrics"
)

// places is how many requests are under way by the titles of the rules that limit it, at most as many as
// metrics tell of. Rules of projects and tiers are not told, as with envelopes.
func (p *parts) places() map[string]int64 {
	set := p.rules.Set()
	if set == nil || !set.LimitsConcurrency() {
		return nil
	}
	taken, told := p.limiter.Places(), map[string]int64{}
	for id := range set.ForEverybody(time.Now().UnixNano()) {
		terms := set.Terms(id)
		if !terms.Concurrent {
			continue
		}
		title := set.Rule(id).Title()
		if _, known := told[title]; known || len(told) < metrics.MaxEnvelopes {
			told[title] += taken[terms.ID]
		}
	}
	return told
}
