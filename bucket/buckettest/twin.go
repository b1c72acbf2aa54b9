package buckettest

import (
	"context"
	"errors"
	"math"
	"math/big"
	"sync"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Twin is a store without a bound, a second lock, or a clever line: what others are compared with.
// The zero Twin is empty.
type Twin struct {
	mu      sync.Mutex
	buckets map[key.Key]held // guarded by mu
}

type held struct {
	counter
	shape rate.Shape
	idle  bool // nothing was taken since the limit became shape
}

// counter is a bucket of any algorithm.
type counter struct {
	state bucket.State
	log   bucket.Log // if the algorithm is a sliding log
}

func (c counter) take(now int64, sh rate.Shape, cost int64) (counter, bucket.Outcome) {
	var o bucket.Outcome
	if sh.Algorithm == rate.SlidingLog {
		c.log, o = c.log.Take(now, sh, cost)
	} else {
		c.state, o = c.state.Take(now, sh, cost)
	}
	return c, o
}

// TryConsume takes from all buckets named or from none.
func (w *Twin) TryConsume(_ context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return w.decide(now, takes, outs, true)
}

// Peek answers what TryConsume would, and changes nothing.
func (w *Twin) Peek(_ context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return w.decide(now, takes, outs, false)
}

// Len is how many buckets were ever charged.
func (w *Twin) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.buckets)
}

func (w *Twin) decide(now int64, takes []bucket.Take, outs []bucket.Outcome, commit bool) (bool, error) {
	if err := w.valid(takes, outs); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()

	before, after, allowed := map[key.Key]counter{}, map[key.Key]counter{}, true
	for _, t := range takes {
		before[t.Key] = w.find(now, t)
		after[t.Key] = before[t.Key]
	}
	for _, t := range takes {
		if t.Shadow {
			continue
		}
		var got bucket.Outcome
		after[t.Key], got = try(before[t.Key], now, first(takes, t.Key), sum(takes, t.Key, false))
		allowed = allowed && got.Allowed
	}
	if !allowed {
		after = before
	}
	final := map[key.Key]counter{}
	for _, t := range takes {
		got := bucket.Outcome{}
		if final[t.Key], got = try(after[t.Key], now, first(takes, t.Key), sum(takes, t.Key, true)); !got.Allowed ||
			!allowed {
			final[t.Key] = after[t.Key]
		}
	}

	for i, t := range takes {
		from := before
		if t.Shadow {
			from = after
		}
		_, outs[i] = try(from[t.Key], now, first(takes, t.Key), sum(takes, t.Key, t.Shadow))
		if outs[i].Allowed {
			wait := outs[i].Wait
			named := first(takes, t.Key)
			_, outs[i] = final[t.Key].take(now, named.Met(), 0)
			if allowed {
				outs[i].Wait = wait
			}
		}
		if allowed && commit && final[t.Key] != before[t.Key] {
			if w.buckets == nil {
				w.buckets = map[key.Key]held{}
			}
			w.buckets[t.Key] = held{counter: final[t.Key], shape: t.Shape}
		}
	}
	return allowed, nil
}

// try is a take that may have to wait: until what was owed before it is back, which is when the
// bucket would be full without it.
func try(s counter, now int64, t bucket.Take, cost int64) (counter, bucket.Outcome) {
	after, o := s.take(now, t.Met(), cost)
	if t.Shape.Algorithm != rate.LeakyBucket || cost == 0 || o.Never {
		return after, o
	}
	_, before := s.take(now, t.Met(), 0)
	excess := before.ResetAfter - max(0, t.MaxWait)
	if t.MaxWait == 0 || excess <= 0 {
		return after, o
	}
	retry := max(o.RetryAfter, excess)
	o = before
	o.Allowed, o.RetryAfter = false, retry
	return s, o
}

// first is the first take that names a bucket.
func first(takes []bucket.Take, k key.Key) bucket.Take {
	for _, t := range takes {
		if t.Key == k {
			return t
		}
	}
	return bucket.Take{}
}

func (w *Twin) valid(takes []bucket.Take, outs []bucket.Outcome) error {
	if len(outs) < len(takes) {
		return errors.New("too few outcomes")
	}
	shapes := map[key.Key]rate.Shape{}
	for _, t := range takes {
		if shape, ok := shapes[t.Key]; ok && shape != t.Shape {
			return errors.New("one bucket with two shapes")
		}
		shapes[t.Key] = t.Shape
	}
	return nil
}

func (w *Twin) find(now int64, t bucket.Take) counter {
	h, ok := w.buckets[t.Key]
	switch {
	case !ok && t.Shape.Algorithm == rate.SlidingLog:
		return counter{log: bucket.FullLog(t.Key, &t.Shape)}
	case !ok:
		return counter{state: bucket.Full(t.Key, &t.Shape)}
	}
	own := &rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
	found := h.under(t.Key, now, own, true)
	if t.Shape.Algorithm != rate.SlidingLog {
		found.state = found.state.Align(t.Key, &t.Shape)
	}
	return found.counter
}

// under is h when limit has just taken effect: what it was under the limit before, at that time, and then converted.
func (h held) under(k key.Key, now int64, limit *rate.Past, last bool) held {
	first, until := h.counter.written(&h.shape)
	since := min(limit.Since, now)
	if since <= until && sameCounts(h.shape, limit.Shape) {
		h.shape = limit.Shape
		return h
	}
	if since > first && limit.Before != nil {
		if p := limit.Before; p.Shape == (rate.Shape{}) {
			return h.forgotten(k, min(p.Since, now), since, limit.Shape, p.Window > 0)
		}
		h = h.under(k, now, limit.Before, false)
	} else if since <= first && !last && h.shape.Algorithm.Drains() {
		// it had an allowance that this limit knows nothing of, or was written late
		return h.convert(k, wide(limit.Shape), since)
	}
	return h.convert(k, limit.Shape, since)
}

// wide is a shape that holds all it can.
func wide(sh rate.Shape) rate.Shape {
	if sh.Algorithm.Drains() {
		sh.Capacity = rate.MaxCapacity
	}
	return sh
}

// written is when a counter was last charged: then or in between.
func (c counter) written(sh *rate.Shape) (first, last int64) {
	first = c.state.Stamp
	switch sh.Algorithm {
	case rate.SlidingLog:
		first = c.log.Stamp
		return first, first + (sh.Tick+bucket.LogCells-1)/bucket.LogCells - 1
	case rate.FixedWindow, rate.SlidingWindow:
		return first, first + sh.Tick - 1
	}
	return first, first
}

func sameCounts(a, b rate.Shape) bool {
	if a.Algorithm == rate.SlidingLog && b.Algorithm == rate.SlidingLog {
		return a.Tick == b.Tick
	}
	return a == b
}

// convert is h when its limit changes to another.
func (h held) convert(k key.Key, to rate.Shape, at int64) held {
	first, _ := h.counter.written(&h.shape)
	switch {
	case sameCounts(h.shape, to):
		h.shape = to
		return h
	case h.shape.Algorithm.Drains() && to.Algorithm.Drains(), h.shape.Algorithm == to.Algorithm &&
		h.shape.Tick == to.Tick:
		return held{counter{state: h.state.Convert(h.shape, to, at)}, to, true}
	}
	owed := h.owed(max(at, first))
	after := owing(k, to, owed, max(at, first))
	if h.shape.Algorithm == rate.SlidingLog && to.Algorithm == rate.SlidingLog {
		after.log.Counts[0] = uint32(min(owed, math.MaxUint32)) // as where the window stays
	}
	return after
}

func (h held) owed(at int64) int64 {
	switch {
	case h.shape.Algorithm == rate.SlidingLog:
		return h.log.Owed(&h.shape, at)
	case h.shape.Algorithm == rate.FixedWindow && h.idle:
		// Nothing was taken in the window before that of the change, so what is owed slides away over the one after it.
		left := new(big.Int).Sub(big.NewInt(h.state.Stamp), big.NewInt(at))
		left.Add(left, big.NewInt(2*h.shape.Tick))
		if left.Sign() <= 0 {
			return 0
		}
		count, rest := new(big.Int).DivMod(left.Mul(left, big.NewInt(h.state.Debt)),
			big.NewInt(h.shape.Tick), new(big.Int))
		if rest.Sign() > 0 {
			count.Add(count, big.NewInt(1))
		}
		if most := big.NewInt(h.state.Debt); count.Cmp(most) > 0 {
			count = most
		}
		return count.Int64()
	}
	return h.state.Owed(&h.shape, at)
}

func owing(k key.Key, sh rate.Shape, tokens, at int64) held {
	if sh.Algorithm == rate.SlidingLog {
		return held{counter{log: bucket.OwingLog(k, &sh, tokens, at)}, sh, true}
	}
	return held{counter{state: bucket.Owing(&sh, tokens, at)}, sh, true}
}

// forgotten is h when a limit takes effect until which, from some time on, nobody knows what drained.
func (h held) forgotten(k key.Key, from, until int64, to rate.Shape, whole bool) held {
	first, _ := h.counter.written(&h.shape)
	if h.shape.Algorithm.Drains() && to.Algorithm.Drains() && !whole {
		h.state = h.state.Convert(h.shape, wide(h.shape), from)
		h.state.Stamp = max(first, until)
		return h.convert(k, to, until)
	}
	from = max(from, first)
	return owing(k, to, h.owed(from), max(from, until))
}

// sum is what the takes of a bucket cost together, shadows or the others; what cannot be had at all
// is the largest number.
func sum(takes []bucket.Take, k key.Key, shadow bool) int64 {
	total := int64(0)
	for _, t := range takes {
		if t.Key != k || t.Shadow != shadow {
			continue
		}
		if t.Cost < 0 || t.Cost > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += t.Cost
	}
	return total
}
