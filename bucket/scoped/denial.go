package scoped

import (
	"math"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// A bucket that denied a take denies the same one, and a dearer one, until the time that it said,
// unless tokens are given back. So the shared store need not be asked. What another process gives
// back is heard of after a second at the latest.

const (
	denialPlaces = 1 << 14
	denialLocks  = 64
	longest      = int64(time.Second)
	// of places among the requests under way, which others give back as often as they take some
	longestPlace = int64(100 * time.Millisecond)
)

// denials remembers who was denied: one bucket a place, the last one to come. What is forgotten costs a message.
type denials struct {
	shards [denialLocks]denialShard
}

type denialShard struct {
	mu     sync.Mutex
	places []denial // guarded by mu; nil until the first denial
	_      [32]byte // keeps locks off each other's cache lines
}

// denial is what a bucket said.
type denial struct {
	key   key.Key
	shape rate.Shape
	cost  int64
	since int64 // Unix nanoseconds
	until int64 // until when it is remembered
	out   bucket.Outcome
	kept  uint8 // bucket.Take.Kept: one that leaves less may be allowed
}

func (d *denials) shard(k key.Key) (*denialShard, int) {
	return &d.shards[k.Lo%denialLocks], int(k.Lo / denialLocks % (denialPlaces / denialLocks))
}

// note remembers that a take was denied at a time.
func (d *denials) note(now int64, t *bucket.Take, o *bucket.Outcome) {
	if o.RetryAfter <= 0 || t.MaxWait != 0 { // what would have to wait too long is another question
		return
	}
	most := longest
	if t.Place != 0 {
		most = longestPlace
	}
	sh, at := d.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.places == nil {
		sh.places = make([]denial, denialPlaces/denialLocks)
	}
	sh.places[at] = denial{t.Key, t.Shape, t.Cost, now, now + min(int64(o.RetryAfter), most), *o, t.Kept}
}

// find reports what is known of a take: that it is denied.
func (d *denials) find(now int64, t *bucket.Take) (o bucket.Outcome, denied bool) {
	sh, at := d.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.places == nil {
		return o, false
	}
	p := &sh.places[at]
	if p.key != t.Key || p.shape != t.Shape || p.kept != t.Kept || t.Cost < p.cost || now < p.since || now >= p.until ||
		t.MaxWait != 0 {
		return o, false
	}
	units, possible := t.Shape.Units(t.Cost - p.cost)
	met := t.Met()
	if !possible || t.Cost > met.Burst() {
		return o, false // never, which is for the store to say
	}
	if o = p.out; t.Place != 0 {
		return o, true
	}
	passed := time.Duration(now - p.since)
	o.RetryAfter = max(0, o.RetryAfter-passed)
	o.RetryAfter += min(t.Shape.TimeToFull(units), math.MaxInt64-o.RetryAfter)
	if o.ResetAfter == math.MaxInt64 { // or longer, so it says nothing of what has drained
		return o, true
	}
	o.ResetAfter = max(0, o.ResetAfter-passed)
	o.Remaining = max(o.Remaining, met.Burst()-(t.Shape.Drained(o.ResetAfter)+t.Shape.Unit-1)/t.Shape.Unit)
	return o, true
}

// forget forgets a bucket that was given something.
func (d *denials) forget(k key.Key) {
	sh, at := d.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.places != nil && sh.places[at].key == k {
		sh.places[at] = denial{}
	}
}

// remember remembers what a server of the shared store denied, and forgets what it said of buckets
// that it has charged since.
func (s *Store) remember(now int64, takes []bucket.Take, outs []bucket.Outcome, charged bool) {
	if charged {
		s.forget(takes)
		return
	}
	for i := range takes {
		if t, o := &takes[i], &outs[i]; !t.Shadow && !o.Allowed && alone(takes, i) {
			s.denials.note(now, t, o)
		}
	}
}

// forget forgets what was said of buckets that have changed since.
func (s *Store) forget(takes []bucket.Take) {
	for i := range takes {
		s.denials.forget(takes[i].Key)
	}
}

// alone reports whether no other take is from the bucket of takes[i]: what was denied then was that
// take, and not their sum.
func alone(takes []bucket.Take, i int) bool {
	for j := range takes {
		if j != i && takes[j].Key == takes[i].Key {
			return false
		}
	}
	return true
}

// remembered reports whether a take is denied that the shared store denied before.
func (s *Store) remembered(d *decision) (denied bool) {
	for i := range d.strict.takes {
		t := &d.strict.takes[i]
		if t.Shadow || !alone(d.strict.takes, i) {
			continue
		}
		if o, ok := s.denials.find(d.now, t); ok {
			d.strict.outs[i], denied = o, true
		}
	}
	if denied {
		s.counts.spared.Add(1)
	}
	return denied
}
