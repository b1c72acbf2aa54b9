package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

const (
	useWindow = 5 * time.Minute
	useParts  = 32 // that a burst is divided into
)

// use is how full requests found the buckets of a rule, within the last five to ten minutes: 0 is a bucket from which
// nothing is taken, useParts one that denied. Two halves are filled one after the other, so that what is old is
// forgotten by forgetting the older one. The hot path reads no clock: whoever reads the metrics turns the halves.
type use struct {
	half   atomic.Uint32
	counts [2][useParts + 1]atomic.Uint32
}

// note counts what one request found.
func (u *use) note(burst, cost int64, found *bucket.Outcome, allowed bool) {
	left := found.Remaining
	if allowed {
		left += cost // before it took anything
	}
	part := int64(useParts)
	if found.Allowed && burst > 0 {
		used := float64(max(0, burst-left)) / float64(burst) // by floats: products of bursts overflow
		part = min(int64(used*useParts), useParts-1)
	}
	u.counts[u.half.Load()&1][part].Add(1)
}

// turn forgets the older half.
func (u *use) turn() {
	next := (u.half.Load() + 1) & 1
	for i := range u.counts[next] {
		u.counts[next][i].Store(0)
	}
	u.half.Store(next)
}

// p95 is the part of the burst that 95 of 100 requests found in use, or less of it; false if there was no request.
func (u *use) p95() (float64, bool) {
	var sums [useParts + 1]uint64
	var total uint64
	for part := range sums {
		sums[part] = uint64(u.counts[0][part].Load()) + uint64(u.counts[1][part].Load())
		total += sums[part]
	}
	if total == 0 {
		return 0, false
	}
	var below uint64
	for part, n := range sums {
		if below += n; below*100 >= total*95 {
			return float64(part) / useParts, true
		}
	}
	return 1, true // unreachable: below is total
}

var descUse = describe("limit_use_p95_ratio", "Part of the burst that 95 of 100 requests of the last minutes found "+
	"in use, or less of it; 1 is a request that was denied.", "rule")

// useGauges tells how limits are used, by rule.
type useGauges struct {
	meter *Meter

	mu     sync.Mutex
	turned time.Time // guarded by mu
}

func (g *useGauges) write(out series) {
	g.meter.mu.Lock()
	titles := maps.Clone(g.meter.titles)
	g.meter.mu.Unlock()
	for title, counters := range titles {
		if part, any := counters.use.p95(); any {
			out.gauge(descUse, part, title)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.meter.now()
	if g.turned.IsZero() {
		g.turned = now
	}
	if now.Sub(g.turned) >= useWindow {
		g.turned = now
		for _, counters := range titles {
			counters.use.turn()
		}
	}
}
