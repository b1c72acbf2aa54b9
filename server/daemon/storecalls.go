package daemon

import (
	"context"
	"sync/atomic"
	"time"

	buckets "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/server/metrics"
)

// calls counts what the store is asked, and how long it takes to answer.
type calls struct {
	to interface {
		buckets.Evaler
		buckets.Throttler
	}
	failed  atomic.Uint64
	nanos   atomic.Uint64
	classes [len(callBounds) + 1]atomic.Uint64 // by time, each without the ones before
}

// callBounds are the classes of times. Their number is fixed, and most are
// around the deadline.
var callBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond,
	5 * time.Millisecond,
	10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// Eval asks, and counts.
func (c *calls) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	start := time.Now()
	answer, err := c.to.Eval(ctx, command, script, keys, args)
	c.count(time.Since(start), err != nil && !buckets.Unlearnt(err))
	return answer, err
}

// Throttle asks, and counts.
func (c *calls) Throttle(ctx context.Context, key string, args ...string) (any, error) {
	start := time.Now()
	answer, err := c.to.Throttle(ctx, key, args...)
	c.count(time.Since(start), err != nil)
	return answer, err
}

func (c *calls) count(took time.Duration, failed bool) {
	class := 0
	for class < len(callBounds) && took > callBounds[class] {
		class++
	}
	c.classes[class].Add(1)
	c.nanos.Add(uint64(took))
	if failed {
		c.failed.Add(1)
	}
}

// status tells the metrics of the store, if there is one.
func (s *shared) status() func() metrics.StoreStatus {
	if s == nil {
		return nil
	}
	return func() metrics.StoreStatus {
		s.mu.Lock()
		answers, since := s.fault == nil, s.since
		s.mu.Unlock()
		m := metrics.StoreStatus{
			Answers: answers, Since: since, Replicas: s.members.Count(), Divisor: s.members.Replicas(),
			Strangers: s.members.Strangers(),
			Calls:     map[float64]uint64{}, Sum: time.Duration(s.calls.nanos.Load()), Failed: s.calls.failed.Load(),
		}
		s.lost(&m)
		s.observed(&m)
		for i := range s.calls.classes {
			m.Count += s.calls.classes[i].Load()
			if i < len(callBounds) {
				m.Calls[callBounds[i].Seconds()] = m.Count
			}
		}
		return m
	}
}
