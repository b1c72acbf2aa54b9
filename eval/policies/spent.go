package main

import (
	"slices"
	"time"
)

// spent is how long many decisions took, counted by nanoseconds: a list of them would grow by
// megabytes, which are copied, and collected, while others are timed.
type spent struct {
	counts [1 << 16]uint32
	long   []time.Duration // those that took longer
	n      int
}

func (s *spent) add(d time.Duration) {
	s.n++
	if d >= 0 && int(d) < len(s.counts) {
		s.counts[d]++
	} else {
		s.long = append(s.long, d)
	}
}

// Times are percentiles of one decision, in microseconds.
type Times struct {
	P50, P99, P999 float64
	Samples        int
}

// by is each percentile of t divided by that of another.
func (t Times) by(o Times) Times {
	return Times{P50: t.P50 / o.P50, P99: t.P99 / o.P99, P999: t.P999 / o.P999}
}

// medians has the median of each percentile, and all samples.
func medians(phases []Check, of func(*Check) *Times) (m Times) {
	var p50, p99, p999 []float64
	for i := range phases {
		t := of(&phases[i])
		p50, p99, p999 = append(p50, t.P50), append(p99, t.P99), append(p999, t.P999)
		m.Samples += t.Samples
	}
	m.P50, m.P99, m.P999 = median(p50), median(p99), median(p999)
	return m
}

func (s *spent) times() Times {
	slices.Sort(s.long)
	at := func(share float64) float64 { return float64(s.at(min(s.n-1, int(share*float64(s.n))))) / 1000 }
	return Times{at(0.50), at(0.99), at(0.999), s.n}
}

// at is the i-th time in ascending order.
func (s *spent) at(i int) time.Duration {
	for d, count := range s.counts {
		if i < int(count) {
			return time.Duration(d)
		}
		i -= int(count)
	}
	return s.long[i]
}
