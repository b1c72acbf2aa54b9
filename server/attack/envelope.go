package attack

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Limit is what somebody expects of an endpoint: Requests in each Per, and Burst at once; or so many bytes.
type Limit struct {
	Requests int64         `json:"requests"`
	Per      time.Duration `json:"per_ns"`
	Burst    int64         `json:"burst"`
}

// Envelope is the most that the limit admits in an interval of length t.
func (l Limit) Envelope(t time.Duration) float64 {
	return float64(l.Burst) + l.rate()*float64(t)
}

// rate is requests a nanosecond.
func (l Limit) rate() float64 { return float64(l.Requests) / float64(l.Per) }

// Span is when a request was decided about at the earliest and at the latest: after it was sent,
// before its effect was seen.
type Span struct{ Sent, Seen time.Duration }

// Beyond is how many requests were admitted above the envelope, in the interval in which most were:
// 0 if the limit held. It is one Lindley pass over the requests in the order in which they were
// sent; for every interval of them it counts from the first one's sending to the latest sight of
// any up to its last.
func (l Limit) Beyond(admitted []Span) int64 {
	all := make([]Moved, len(admitted))
	for i, s := range admitted {
		all[i] = Moved{s, 1}
	}
	return l.BeyondBytes(all)
}

// Moved is when so many bytes were moved at the earliest and at the latest.
type Moved struct {
	Span
	Bytes int64
}

// BeyondBytes is how many bytes were moved above the envelope: as Beyond, of a limit in bytes.
func (l Limit) BeyondBytes(moved []Moved) int64 {
	sorted := slices.SortedFunc(slices.Values(moved), func(a, b Moved) int { return cmp.Compare(a.Sent, b.Sent) })
	rate, start, latest, most, sum := l.rate(), math.Inf(-1), math.Inf(-1), 0.0, 0.0
	for _, m := range sorted {
		if m.Bytes == 0 {
			continue
		}
		start = max(start, rate*float64(m.Sent)-sum)
		latest = max(latest, float64(m.Seen))
		sum += float64(m.Bytes)
		most = max(most, start+sum-rate*latest-float64(l.Burst))
	}
	return int64(math.Ceil(most - 1e-6)) // a request is whole: half a one above is one above
}

// Took is the time from the first sending to the last sight.
func Took(spans []Span) time.Duration {
	if len(spans) == 0 {
		return 0
	}
	first, last := spans[0].Sent, spans[0].Seen
	for _, s := range spans {
		first, last = min(first, s.Sent), max(last, s.Seen)
	}
	return last - first
}
