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
