package charge

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
	// DefaultAllowances stands for a MaxAllowances of 0, which is MostAllowances at most.
	DefaultAllowances = 4096
	MostAllowances    = 1 << 20
)

// MaxAllowanceTime is the longest that an allowance may last. What should last
// longer is a rule, which survives a restart.
const MaxAllowanceTime = 31 * 24 * time.Hour

// Allowance makes the burst of one bucket larger until it lapses. That is the
// whole model: a change of limit and its reversal, for one bucket, by the same
// arithmetic as a change of its rule. In any interval the bucket then admits at
// most the allowance besides what it would admit anyway, and what was used
// beyond the burst when it lapses is forgiven.
type Allowance struct {
	Tokens int64
	From   int64 // Unix nanoseconds, like the others
	Until  int64

	gone int64 // when no bucket can remember it any more
}

// apply restates a take for the limit of its bucket at now. Past is where it
// may write down what the allowance or its end replaced, if the take's rule
// itself has changed of late.
func (a Allowance) apply(now int64, t *bucket.Take, past *rate.Past) {
	began := a.Until
	if now < a.Until {
		began = a.From
	}
	if began > t.Since {
		if t.Before != nil {
			*past = rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
			t.Before = past
		}
		t.Since = began
	}
	if now < a.Until {
		t.Shape = t.Shape.Grow(a.Tokens)
	}
}

// Allowances holds those of all buckets that have one, which are few. Requests
// read a map that never changes; who changes it makes another.
type Allowances struct {
	most int
	mu   sync.Mutex // held by who makes another map
	all  atomic.Pointer[allowanceMap]
}

type allowanceMap struct {
	byKey map[key.Key]Allowance
	gone  int64 // the latest of all
}

func newAllowances(most int) *Allowances {
	if most == 0 {
		most = DefaultAllowances
	}
	return &Allowances{most: most}
}

// Most is how many buckets may have one.
func (a *Allowances) Most() int { return a.most }

// Restate is a take as it is at now, with the allowance that its bucket may have.
func (a *Allowances) Restate(now int64, take bucket.Take) bucket.Take {
	one := [1]bucket.Take{take}
	a.apply(now, one[:], new([]rate.Past))
	return one[0]
}

// apply restates takes whose bucket has an allowance. It costs one load when
// there is none. What came before goes behind what pasts holds, to which other
// takes point.
func (a *Allowances) apply(now int64, takes []bucket.Take, pasts *[]rate.Past) {
	all := a.all.Load()
	if all == nil {
		return
	}
	if now >= all.gone {
		a.all.CompareAndSwap(all, nil)
		return
	}
	for i := range takes {
		if own, ok := all.byKey[takes[i].Key]; ok {
			*pasts = append(*pasts, rate.Past{})
			own.apply(now, &takes[i], &(*pasts)[len(*pasts)-1])
		}
	}
}

// Get reports the allowance that a bucket has at now.
func (a *Allowances) Get(k key.Key, now int64) (Allowance, bool) {
	all := a.all.Load()
	if all == nil {
		return Allowance{}, false
	}
	own, ok := all.byKey[k]
	return own, ok && now < own.Until
}

// Set makes the burst of a bucket whose rule has a shape larger by so many tokens, in place of what
// it may have been given before. It reports false when there is no room.
func (a *Allowances) Set(k key.Key, own Allowance, sh rate.Shape) bool {
	own.gone = goneAt(own.Until, sh.Grow(own.Tokens))
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.copyLocked(own.From)
	if _, ok := next.byKey[k]; !ok && len(next.byKey) >= a.most {
		return false
	}
	next.byKey[k] = own
	next.gone = max(next.gone, own.gone)
	a.all.Store(next)
	return true
}

// Remove ends the allowance of a bucket, if it has one.
func (a *Allowances) Remove(k key.Key, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if all := a.all.Load(); all == nil || all.byKey[k] == (Allowance{}) {
		return
	}
	next := a.copyLocked(now)
	delete(next.byKey, k)
	a.all.Store(next)
}

// copyLocked copies what is not gone.
func (a *Allowances) copyLocked(now int64) *allowanceMap {
	next := &allowanceMap{byKey: map[key.Key]Allowance{}, gone: math.MinInt64}
	if all := a.all.Load(); all != nil {
		next.byKey = maps.Clone(all.byKey)
	}
	maps.DeleteFunc(next.byKey, func(_ key.Key, own Allowance) bool { return now >= own.gone })
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
