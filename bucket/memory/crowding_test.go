package memory

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// TestSpilledTimesDenyWhoReadsThemLateEnough: all that a table remembers is spilled and ends at one time, of which a
// limit's newcomers are denied only if it lies further ahead than their bucket takes to drain all but a token.
func TestSpilledTimesDenyWhoReadsThemLateEnough(t *testing.T) {
	for _, limit := range []rate.Limit{
		{Tokens: 20, Per: time.Second, Burst: 20}, {Tokens: 60, Per: time.Minute, Burst: 60},
		{Tokens: 24, Per: 24 * time.Hour, Burst: 24},
	} {
		shape := compiled(t, limit)
		enough := shape.TimeToFull(shape.Capacity - shape.Unit)
		for _, c := range []struct {
			percent time.Duration // of that, which the times lie ahead
			want    float64
		}{{90, 0}, {95, 0}, {105, 1}} {
			s := newTable(t, Options{MaxBuckets: 8})
			k := &s.shards[0].traces
			ahead := enough * c.percent / 100
			k.raise(1, kindOf(&shape), noon+1, noon) // sets the clock
			for n := range uint64(1000) {
				k.spill(k.ledger.pairOf(spread(n)), kindOf(&shape), noon+int64(ahead))
			}
			k.last = noon + int64(ahead)
			if got := s.Stats(noon).Crowding.FalseDenials(shape); got < c.want-0.01 || got > c.want+0.01 {
				t.Errorf("%+v: %.2f of the newcomers are expected to be denied by times %v ahead, want %.0f", limit,
					got, ahead, c.want)
			}
		}
	}
}
