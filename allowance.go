package headgate

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const (
	defaultAllowances = 4096
	mostAllowances    = 1 << 20
)

// MaxAllowanceTime is the longest that an allowance may last. What should last
// longer is a rule, which survives a restart.
const MaxAllowanceTime = 31 * 24 * time.Hour

// allowance makes the burst of one bucket larger until it lapses. That is the
// whole model: a change of limit and its reversal, for one bucket, by the same
// arithmetic as a change of its rule. In any interval the bucket then admits at
// most the allowance besides what it would admit anyway, and what was used
// beyond the burst when it lapses is forgiven.
type allowance struct {
	tokens int64
	from   int64 // Unix nanoseconds, like the others
	until  int64
	gone   int64 // when no bucket can remember it any more
}

// apply restates a take for the limit of its bucket at now. Past is where it
// may write down what the allowance or its end replaced, if the take's rule
// itself has changed of late.
func (a allowance) apply(now int64, t *bucket.Take, past *rate.Past) {
	began := a.until
	if now < a.until {
		began = a.from
	}
	if began > t.Since {
		if t.Before != nil {
			*past = rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
			t.Before = past
		}
		t.Since = began
	}
	if now < a.until {
		t.Shape = t.Shape.Grow(a.tokens)
	}
}

// allowances holds those of all buckets that have one, which are few. Requests
// read a map that never changes; who changes it makes another.
type allowances struct {
	most int
	mu   sync.Mutex // held by who makes another map
	all  atomic.Pointer[allowanceMap]
}

type allowanceMap struct {
	byKey map[key.Key]allowance
	gone  int64 // the latest of all
}

func newAllowances(most int) *allowances { return &allowances{most: most} }

// apply restates takes whose bucket has an allowance. It costs one load when
// there is none.
func (a *allowances) apply(now int64, takes []bucket.Take, pasts *[]rate.Past) {
	all := a.all.Load()
	if all == nil {
		return
	}
	if now >= all.gone {
		a.all.CompareAndSwap(all, nil)
		return
	}
	if len(*pasts) < len(takes) {
		*pasts = make([]rate.Past, len(takes))
	}
	for i := range takes {
		if own, ok := all.byKey[takes[i].Key]; ok {
			own.apply(now, &takes[i], &(*pasts)[i])
		}
	}
}

// get reports the allowance that a bucket has at now.
func (a *allowances) get(k key.Key, now int64) (allowance, bool) {
	all := a.all.Load()
	if all == nil {
		return allowance{}, false
	}
	own, ok := all.byKey[k]
	return own, ok && now < own.until
}

// set gives a bucket an allowance in the place of the one it may have, or
// reports false when there is no room.
func (a *allowances) set(k key.Key, own allowance) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.copyLocked(own.from)
	if _, ok := next.byKey[k]; !ok && len(next.byKey) >= a.most {
		return false
	}
	next.byKey[k] = own
	next.gone = max(next.gone, own.gone)
	a.all.Store(next)
	return true
}

// remove ends the allowance of a bucket, if it has one.
func (a *allowances) remove(k key.Key, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if all := a.all.Load(); all == nil || all.byKey[k] == (allowance{}) {
		return
	}
	next := a.copyLocked(now)
	delete(next.byKey, k)
	a.all.Store(next)
}

// copyLocked copies what is not gone.
func (a *allowances) copyLocked(now int64) *allowanceMap {
	next := &allowanceMap{byKey: map[key.Key]allowance{}, gone: math.MinInt64}
	if all := a.all.Load(); all != nil {
		next.byKey = maps.Clone(all.byKey)
	}
	maps.DeleteFunc(next.byKey, func(_ key.Key, own allowance) bool { return now >= own.gone })
	for _, own := range next.byKey {
		next.gone = max(next.gone, own.gone)
	}
	return next
}

// goneAt is when every bucket that an allowance touched is full again, under
// the shape it gave: until then its end has to be known.
func goneAt(until int64, grown rate.Shape) int64 {
	wait := int64(grown.TimeToFull(grown.MaxDebt()))
	if until > math.MaxInt64-wait {
		return math.MaxInt64
	}
	return until + wait
}
