package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
)

// requests keeps requests for a higher limit in the database, as soon as that
// can be opened, and knows how many are open.
type requests struct {
	db   *policyDatabase
	keep func() time.Duration
	log  *slog.Logger
	open atomic.Int64
}

var (
	_ developers.Requests = (*requests)(nil)
	_ admin.Requests      = (*requests)(nil)
)

// requestsInterval is how often the open requests are counted.
// Those that were decided long ago are looked for less often.
const (
	requestsInterval = 15 * time.Second
	requestsPrune    = time.Hour
)

// run counts the open requests: other gateways and operators file and decide
// them too. While the database cannot be read, the last number stands.
func (q *requests) run(ctx context.Context) {
	ticker := time.NewTicker(requestsInterval)
	defer ticker.Stop()
	prune := time.NewTicker(requestsPrune)
	defer prune.Stop()
	for {
		q.count(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-prune.C:
			q.prune(ctx)
		}
	}
}

// prune gives up the requests that were decided long ago. Another gateway may do
// so as well.
func (q *requests) prune(ctx context.Context) {
	s := q.db.opened()
	if s == nil {
		return
	}
	gone, err := s.PruneRequests(ctx, time.Now().Add(-q.keep()))
	switch {
	case err != nil && ctx.Err() == nil:
		q.log.Warn("old requests for a higher limit could not be deleted", "error", err)
	case gone > 0:
		q.log.Info("old requests for a higher limit were deleted", "requests", gone)
	}
}

func (q *requests) count(ctx context.Context) {
	if s := q.db.opened(); s != nil {
		if n, err := s.OpenRequests(ctx); err == nil {
			q.open.Store(int64(n))
		}
	}
}

// opened is how many requests are open.
func (q *requests) opened() int { return int(q.open.Load()) }

func (q *requests) File(ctx context.Context, r record.LimitRequest, most int) (record.LimitRequest, error) {
	return changed(ctx, q, func(s *database.Store) (record.LimitRequest, error) { return s.File(ctx, r, most) })
}

func (q *requests) Withdraw(ctx context.Context, id, project, actor, claimed string) (record.LimitRequest, error) {
	return changed(ctx, q, func(s *database.Store) (record.LimitRequest, error) {
		return s.Withdraw(ctx, id, project, actor, claimed)
	})
}

func (q *requests) Decline(ctx context.Context, id, actor, claimed, note string) (record.LimitRequest, error) {
	return changed(ctx, q, func(s *database.Store) (record.LimitRequest, error) {
		return s.Decline(ctx, id, actor, claimed, note)
	})
}

func (q *requests) Approve(ctx context.Context, id string, g record.Grant) (r record.LimitRequest,
	v record.Version, err error) {
	r, err = changed(ctx, q, func(s *database.Store) (record.LimitRequest, error) {
		r, v, err = s.Approve(ctx, id, g)
		return r, err
	})
	return r, v, err
}

func (q *requests) Requests(ctx context.Context, query record.RequestQuery) ([]record.LimitRequest, error) {
	s, err := q.db.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Requests(ctx, query)
}

func (q *requests) Request(ctx context.Context, id string) (record.LimitRequest, error) {
	s, err := q.db.get(ctx)
	if err != nil {
		return record.LimitRequest{}, err
	}
	return s.Request(ctx, id)
}

// changed makes a change and counts again.
func changed(ctx context.Context, q *requests,
	do func(*database.Store) (record.LimitRequest, error)) (record.LimitRequest, error) {
	s, err := q.db.get(ctx)
	if err != nil {
		return record.LimitRequest{}, err
	}
	r, err := do(s)
	if err == nil {
		q.count(ctx)
	}
	return r, err
}
