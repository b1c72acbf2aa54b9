package peer

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

var headgate = Peer{
	Name:  "headgate",
	How:   "token bucket in integers; 128-bit keyed hash of the key",
	Exact: true,
	Bound: "table of fixed size; evicted debt is remembered",
	Open: func(keys int) (Limiter, error) {
		h, err := OpenHeadgate(memory.Options{MaxBuckets: keys * 5 / 4})
		if err != nil {
			return nil, err
		}
		return h, nil
	},
}

// Headgate is the part of the pipeline that rivals have too: it hashes the key, reads the clock,
// and takes from the table.
type Headgate struct {
	Store *memory.Store
	keys  *key.Hasher
	shape rate.Shape

	start  time.Time
	anchor int64 // start in Unix nanoseconds
}

// OpenHeadgate makes an empty table.
func OpenHeadgate(o memory.Options) (*Headgate, error) {
	store, err := memory.New(o)
	if err != nil {
		return nil, err
	}
	shape, err := rate.Compile(rate.Limit{Tokens: 1, Per: perToken, Burst: burst})
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return &Headgate{Store: store, keys: key.NewHasher(), shape: shape, start: start, anchor: start.UnixNano()}, nil
}

// Now is the clock of headgate.Limiter: the monotonic one, anchored to the time of day.
func (h *Headgate) Now() int64 { return h.anchor + int64(time.Since(h.start)) }

// Worker implements Limiter. The bytes that name a bucket, takes and outcomes live in a pooled object
// of a request; here they live as long as the goroutine, and as far from another's as there.
func (h *Headgate) Worker() Decide {
	own := new(struct {
		_     [128]byte // two cache lines, as many as are fetched together
		takes [1]bucket.Take
		outs  [1]bucket.Outcome
		room  [64]byte
		_     [128]byte
	})
	own.takes[0] = bucket.Take{Shape: h.shape, Cost: 1}
	takes, outs, ctx := own.takes[:], own.outs[:], context.Background()
	return func(key string) bool {
		takes[0].Key = h.keys.Key(1, 1, append(own.room[:0], key...))
		allowed, err := h.Store.TryConsume(ctx, h.Now(), takes, outs)
		return allowed && err == nil
	}
}

// Rules returns a way to ask for one token each of a key under several rules, all or nothing.
func (h *Headgate) Rules(rules int) Decide {
	takes, outs, ctx := make([]bucket.Take, rules), make([]bucket.Outcome, rules), context.Background()
	for i := range takes {
		takes[i] = bucket.Take{Shape: h.shape, Cost: 1}
	}
	room := make([]byte, 0, 64)
	return func(key string) bool {
		for i := range takes {
			takes[i].Key = h.keys.Key(uint64(i), 1, append(room, key...))
		}
		allowed, err := h.Store.TryConsume(ctx, h.Now(), takes, outs)
		return allowed && err == nil
	}
}

// OneOf returns a way to ask for one token of a key under one of several rules, which take turns:
// the buckets are those of Rules.
func (h *Headgate) OneOf(rules int) Decide {
	takes, outs, ctx, turn := []bucket.Take{{Shape: h.shape, Cost: 1}}, make([]bucket.Outcome, 1),
		context.Background(), 0
	room := make([]byte, 0, 64)
	return func(key string) bool {
		if turn++; turn == rules {
			turn = 0
		}
		takes[0].Key = h.keys.Key(uint64(turn), 1, append(room, key...))
		allowed, err := h.Store.TryConsume(ctx, h.Now(), takes, outs)
		return allowed && err == nil
	}
}
