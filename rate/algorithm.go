package rate

import (
	"errors"
	"fmt"
	"time"
)

// Algorithm is how a limit is counted. The zero value is the token bucket. docs/algorithms.md says
// what each is for and what it admits at worst.
type Algorithm uint8

// The algorithms. The first two count a debt that drains all the time, the others count what was
// admitted in a stretch of time.
const (
	TokenBucket Algorithm = iota // up to a burst at once
	LeakyBucket                  // the same debt as a queue: admitted at once, released at the rate
	FixedWindow                  // a count that starts again when the window ends
	// this window's count, and the part of the last one's that still lies in a window's length
	SlidingWindow
	SlidingLog // counts of short cells, all those that lie in a window's length
	algorithms
)

// Drains says whether debt drains all the time, in units; else whole tokens are counted in windows.
func (a Algorithm) Drains() bool { return a <= LeakyBucket }

// MaxWindow bounds Limit.Per for the algorithms that count in windows, so that the end of a window
// after the next can be computed.
const MaxWindow = 1 << 61

// MaxCount is the most tokens a window of a holds: what fits in the words or cells that it is counted in.
func (a Algorithm) MaxCount() int64 {
	switch a {
	case FixedWindow:
		return MaxCapacity
	case SlidingWindow:
		return 1<<31 - 1
	case SlidingLog:
		return 1<<32 - 1
	}
	return 0
}

// compileWindow is Compile for limits that are counted in windows. Tokens are the units, a window
// is the tick, and Drain tokens come back each. There is no burst beside the limit: a Burst that
// says otherwise is refused rather than ignored.
func compileWindow(l Limit) (Shape, error) {
	if l.Algorithm >= algorithms {
		return Shape{}, fmt.Errorf("Algorithm is %d, want 0 to %d", l.Algorithm, algorithms-1)
	}
	tokens := min(l.Tokens, l.Algorithm.MaxCount())
	err := errors.Join(counted("Tokens", l.Tokens, tokens), counted("Per", int64(l.Per), min(int64(l.Per), MaxWindow)),
		counted("Burst", l.Burst, tokens))
	if err != nil {
		return Shape{}, err
	}
	return Shape{Drain: l.Tokens, Unit: 1, Capacity: l.Tokens, Tick: int64(l.Per), Algorithm: l.Algorithm}, nil
}

// counted is an error unless a field of a limit is what it may be.
func counted(field string, value, limit int64) error {
	if value == limit {
		return nil
	}
	return &RangeError{Field: field, Value: value, Limit: limit, counted: true}
}

// Window is the length of the window that a shape counts in; 0 if its debt drains.
func (s Shape) Window() time.Duration {
	if s.Algorithm.Drains() {
		return 0
	}
	return time.Duration(s.Tick)
}
