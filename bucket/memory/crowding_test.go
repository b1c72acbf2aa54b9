package memory

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
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
			k.last, k.latest[kindOf(&shape).class()] = noon+int64(ahead), noon+int64(ahead)
			if got := s.Stats(noon).Crowding.FalseDenials(shape); got < c.want-0.01 || got > c.want+0.01 {
				t.Errorf("%+v: %.2f of the newcomers are expected to be denied by times %v ahead, want %.0f", limit,
					got, ahead, c.want)
			}
		}
	}
}

// TestNothingIsExpectedToBeReadLaterThanTheLatest: times are kept in units of four seconds for this limit, rounded up,
// and no reader is told a later one than any that was written. Newcomers are expected to be denied as they are.
func TestNothingIsExpectedToBeReadLaterThanTheLatest(t *testing.T) {
	shape := compiled(t, rate.Limit{Tokens: 10, Per: 12 * time.Minute, Burst: 10}) // a token less takes 648 s
	now := noon + int64(2*time.Second)                                             // between two of these units
	for _, c := range []struct {
		ahead time.Duration
		want  float64
	}{{647 * time.Second, 0}, {649 * time.Second, 1}} {
		s := newTable(t, Options{MaxBuckets: 8})
		k := &s.shards[0].traces
		for n := range uint64(10_000) {
			k.raise(spread(n), kindOf(&shape), now+int64(c.ahead), now)
		}
		take := bucket.Take{Key: key.Key{Lo: spread(1 << 20)}, Shape: shape, Cost: 1}
		if denied := k.fullAt(now, now, &take)-now > int64(648*time.Second); denied != (c.want == 1) {
			t.Errorf("traces %v ahead: a newcomer is denied: %t", c.ahead, denied)
		}
		if got := s.Stats(now).Crowding.FalseDenials(shape); got < c.want-0.01 || got > c.want+0.01 {
			t.Errorf("traces %v ahead: %.2f of the newcomers are expected to be denied, want %.0f", c.ahead, got,
				c.want)
		}
	}
}
