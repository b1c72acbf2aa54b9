package adaptive

import (
	"slices"
	"time"
)

// MaxCallers is how many callers of a window are heard. Of more it is a random sample: those with the smallest hashes,
// by a secret that is another one in each window.
const MaxCallers = 64

// callers are those that are heard in a window.
type callers struct {
	secret uint64
	n      int
	hashes [MaxCallers]uint64 // apart from what is counted, as all are looked through
	counts [MaxCallers]counts
}

// counts are what one caller saw.
type counts struct {
	first int64 // when it first sent a request
	sent  uint32
	done  uint32 // answers
	slow  uint32 // of them, above 0.6 of the objective
	late  uint32 // above all of it
	fails uint32
	took  int64 // by all answers together, in nanoseconds
}

// answered counts an answer; nil counts nothing.
func (c *counts) answered(took time.Duration, slow, late, failed bool) {
	if c == nil {
		return
	}
	c.done++
	c.took += int64(took)
	if slow {
		c.slow++
	}
	if late {
		c.late++
	}
	if failed {
		c.fails++
	}
}

// of is where a caller is counted; nil if it is not heard. One that is heard at the end was heard from its first
// request on: the largest hash that is heard only falls.
func (c *callers) of(caller uint64) *counts {
	h := mix(caller ^ c.secret)
	if i := slices.Index(c.hashes[:c.n], h); i >= 0 {
		return &c.counts[i]
	}
	if c.n < MaxCallers {
		c.hashes[c.n] = h
		c.n++
		c.counts[c.n-1] = counts{}
		return &c.counts[c.n-1]
	}
	last := 0
	for i := range c.hashes {
		if c.hashes[i] > c.hashes[last] {
			last = i
		}
	}
	if c.hashes[last] < h {
		return nil
	}
	c.hashes[last], c.counts[last] = h, counts{}
	return &c.counts[last]
}

// mix is a permutation of 64 bits in which each depends on all (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Voices are what the callers of a window saw: how many of them there are, of how many the 95th percentile is above 0.6
// of the objective, and above all of it, and of how many more than 5 % of the answers are failures. Usual is what an
// answer takes: the median of what it takes for each on average, the lower one of two.
type Voices struct {
	Callers, Slow, Late, Failed int

	Usual time.Duration
}

// voices counts them at a time, with how many of their requests are overdue.
func (c *callers) voices(slo, until int64) (v Voices, overdue int64) {
	var means [MaxCallers]int64
	for i := range c.n {
		mean := int64(0)
		switch o := &c.counts[i]; {
		case o.done > 0:
			// The 95th percentile is above a time if more than a twentieth of the answers is.
			v.Slow += voice(20*o.slow > o.done)
			v.Late += voice(20*o.late > o.done)
			v.Failed += voice(100*o.fails > failedPercent*o.done)
			mean = o.took / int64(o.done)
		case o.sent > 0 && until-o.first >= slo: // nothing that it sent was answered in time
			v.Slow, v.Late, overdue = v.Slow+1, v.Late+1, overdue+int64(o.sent)
			mean = until - o.first
		default:
			continue
		}
		means[v.Callers] = mean
		v.Callers++
	}
	if v.Callers > 0 {
		slices.Sort(means[:v.Callers])
		v.Usual = time.Duration(means[(v.Callers-1)/2])
	}
	return v, overdue
}

func voice(given bool) int {
	if given {
		return 1
	}
	return 0
}
