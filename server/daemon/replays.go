package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	buckets "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/agents"
	"github.com/headgate-io/headgate/server/once"
	"github.com/headgate-io/headgate/server/token"
)

// replays is what was shown that is good once. It outlives every reload, also one by which nothing is looked at for a
// time.
type replays struct {
	proofs, nonces func() *once.Memory // made when they are first asked for
	together       [2]*together
}

func newReplays(log *slog.Logger) *replays {
	proofs, nonces := &together{what: "proofs", log: logger(log)}, &together{what: "nonces", log: logger(log)}
	return &replays{
		proofs:   sync.OnceValue(func() *once.Memory { return once.New(token.RememberedProofs, proofs) }),
		nonces:   sync.OnceValue(func() *once.Memory { return once.New(agents.RememberedNonces, nonces) }),
		together: [2]*together{proofs, nonces},
	}
}

// many is how often what one gateway remembers fits into the memory that all of them fill: the sooner it is full, the
// sooner what was just made counts as shown.
const many = 4

// share has all gateways on a store remember together. By CL.THROTTLE, or if s is nil, each does for itself.
func (r *replays) share(s *shared) error {
	if s == nil || !s.conf.SharesReplays() {
		return nil
	}
	for i, o := range [2]buckets.ReplaysOptions{
		{Kind: "proofs", Names: many * token.RememberedProofs, Keep: token.LastingProof},
		{Kind: "nonces", Names: many * agents.RememberedNonces, Keep: agents.LastingNonce},
	} {
		at, err := buckets.NewReplays(s.replayed, o)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		r.together[i].at.Store(&replaysAt{at, s.replaySecret, s.conf.Deadline})
	}
	return nil
}

// together are all gateways on a store, which remember together while it answers in time.
type together struct {
	what string
	log  *slog.Logger
	at   atomic.Pointer[replaysAt] // nil: each gateway for itself

	mu    sync.Mutex
	fails int       // guarded by mu; in a row
	again time.Time // guarded by mu; when the store is asked next, after too many of them
}

type replaysAt struct {
	*buckets.Replays
	secret   []byte
	deadline time.Duration
}

// name is a keyed hash: the server learns no holder and no name.
func (a *replaysAt) name(parts ...string) key.Key {
	h := hmac.New(sha256.New, a.secret)
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	sum := h.Sum(nil)
	return key.Key{Hi: binary.BigEndian.Uint64(sum), Lo: binary.BigEndian.Uint64(sum[8:])}
}

// After so many failures in a row nobody waits for the store any more, but for one request in each such time.
const (
	replayFails = 5
	replayAgain = time.Second
)

// Use asks the store, once.Others has it.
func (t *together) Use(holder, name string, made time.Time) (fresh, known bool) {
	at := t.at.Load()
	if at == nil || !t.asks(time.Now()) {
		return false, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), at.deadline)
	defer cancel()
	fresh, err := at.Replays.Use(ctx, at.name(holder), at.name(holder, name), made)
	t.answered(err, time.Now())
	return fresh, err == nil
}

// asks reports whether to ask the store.
func (t *together) asks(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fails < replayFails {
		return true
	}
	if now.Before(t.again) {
		return false
	}
	t.again = now.Add(replayAgain) // one, whatever comes of it
	return true
}

func (t *together) answered(err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.fails
	if err == nil {
		t.fails = 0
	} else if t.fails < replayFails {
		t.fails, t.again = t.fails+1, now.Add(replayAgain)
	}
	switch {
	case before == replayFails && err == nil:
		t.log.Info("what is good once is remembered by all gateways together again", "what", t.what)
	case before < replayFails && t.fails == replayFails:
		t.log.Warn("the store cannot be asked what was shown elsewhere: until it can, what is good once is good once "+
			"at each gateway", "what", t.what, "error", err)
	}
}
