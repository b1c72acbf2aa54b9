package main

import (
	"container/list"
	"context"
	"encoding/binary"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// store is a bounded limiter on a simulated clock, with one limit for all keys.
type store interface {
	take(at time.Duration, id uint64) bool

	// evictedInDebt is how many buckets were forgotten that were not full; -1 if there is no telling.
	evictedInDebt() int
}

// contender is a way to bound the number of buckets.
type contender struct {
	name string
	open func(slots int) (store, error)
}

var contenders = []contender{
	{"headgate", openTable},
	{"LRU twin", openLRU},
	{"throttled, LRU", openThrottled},
}

// start is when attacks begin, in Unix nanoseconds.
const start = int64(1_795_176_000_000_000_000)

func shape() (rate.Shape, error) {
	return rate.Compile(rate.Limit{Tokens: perSecond, Per: time.Second, Burst: burst})
}

// table is Headgate's, with the default sketch.
type table struct {
	*memory.Store
	take1 []bucket.Take
	outs  []bucket.Outcome
}

func openTable(slots int) (store, error) {
	s, err := memory.New(memory.Options{MaxBuckets: slots})
	if err != nil {
		return nil, err
	}
	sh, err := shape()
	return &table{s, []bucket.Take{{Shape: sh, Cost: 1}}, make([]bucket.Outcome, 1)}, err
}

func (t *table) take(at time.Duration, id uint64) bool {
	// Fixed mixing instead of a secret hash, so that a run can be repeated.
	t.take1[0].Key = key.Key{Hi: mix(id), Lo: mix(id ^ 0x5851f42d4c957f2d)}
	allowed, err := t.TryConsume(context.Background(), start+int64(at), t.take1, t.outs)
	return allowed && err == nil
}

func (t *table) evictedInDebt() int { return int(t.Stats(start).EvictedInDebt) }

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// lru keeps the same buckets as table, with the same arithmetic, and forgets what was not used for
// longest: how bounded tables are usually made.
type lru struct {
	shape   rate.Shape
	most    int
	order   *list.List // of *lruEntry, the latest first
	entries map[uint64]*list.Element
	lossy   int
}

type lruEntry struct {
	id    uint64
	state bucket.State
}

func openLRU(slots int) (store, error) {
	sh, err := shape()
	return &lru{shape: sh, most: slots, order: list.New(), entries: map[uint64]*list.Element{}}, err
}

func (l *lru) take(at time.Duration, id uint64) bool {
	e, ok := l.entries[id]
	switch {
	case ok:
		l.order.MoveToFront(e)
	case l.order.Len() < l.most:
		e = l.order.PushFront(&lruEntry{id: id})
		l.entries[id] = e
	default:
		e = l.order.Back()
		entry := e.Value.(*lruEntry)
		if entry.state.FullAt(l.shape) > start+int64(at) {
			l.lossy++
		}
		delete(l.entries, entry.id)
		*entry = lruEntry{id: id}
		l.order.MoveToFront(e)
		l.entries[id] = e
	}
	entry := e.Value.(*lruEntry)
	var o bucket.Outcome
	entry.state, o = entry.state.Take(start+int64(at), l.shape, 1)
	return o.Allowed
}

func (l *lru) evictedInDebt() int { return l.lossy }

// throttledLRU is the limiter of that name with the bound that it offers. Its store takes a clock.
type throttledLRU struct {
	gcra *throttled.GCRARateLimiterCtx
	at   time.Duration
}

func openThrottled(slots int) (store, error) {
	s, err := memstore.New(slots)
	if err != nil {
		return nil, err
	}
	l := &throttledLRU{}
	s.SetTimeNow(func() time.Time { return time.Unix(0, start+int64(l.at)) })
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(perSecond), MaxBurst: burst - 1}
	l.gcra, err = throttled.NewGCRARateLimiterCtx(throttled.WrapStoreWithContext(s), quota)
	return l, err
}

func (l *throttledLRU) take(at time.Duration, id uint64) bool {
	l.at = at
	var name [8]byte
	binary.LittleEndian.PutUint64(name[:], id)
	limited, _, err := l.gcra.RateLimitCtx(context.Background(), string(name[:]), 1)
	return !limited && err == nil
}

func (l *throttledLRU) evictedInDebt() int { return -1 }
