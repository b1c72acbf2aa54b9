package database

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
)

var _ policy.Numberer = (*Store)(nil)

// NumberOf reports the number of the rules of a version, as Version reports it:
// 0 if they have none yet, or there is another version by now. What has none is
// numbered meanwhile, for whoever asks again.
func (s *Store) NumberOf(ctx context.Context, version string) (id int64, err error) {
	if s.table != nil {
		return 0, nil
	}
	found, err := s.db.load(ctx, func(tx *tx) (err error) {
		id, err = s.versionOf(ctx, tx)
		return err
	})
	if err != nil {
		return 0, explain(ctx, s.db, err)
	}
	if id == 0 && !s.readOnly {
		s.later.begin(s.Number)
	}
	// What load saw may be newer than the version it reports, but not if that
	// is the version still.
	now, err := s.version(ctx)
	if err != nil || found != version || now != version {
		return 0, err
	}
	return id, nil
}

// What failed is tried again after tryAgain, and each time after twice the time
// until it is tryLater: it may have read much, in vain, because somebody is still
// changing rules.
const (
	tryAgain = time.Second
	tryLater = time.Minute
)

// later is what goes on while nobody waits for it, one thing at a time.
type later struct {
	mu     sync.Mutex
	cancel context.CancelFunc // guarded by mu; nil unless something goes on
	until  time.Time          // guarded by mu; nothing begins before
	pause  time.Duration      // guarded by mu; after the next failure
	closed bool               // guarded by mu
	ended  sync.WaitGroup
}

// begin begins something, unless something goes on or failed a short time ago.
func (l *later) begin(do func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.cancel != nil || time.Now().Before(l.until) {
		return
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	l.ended.Go(func() {
		err := do(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cancel()
		l.cancel = nil
		if err == nil {
			l.pause = 0
			return
		}
		l.pause = min(max(2*l.pause, tryAgain), tryLater)
		l.until = time.Now().Add(l.pause)
	})
}

// close gives up what goes on, and waits for its end.
func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	l.ended.Wait()
}
