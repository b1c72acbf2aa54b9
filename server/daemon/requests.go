package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/store"
)

// requests keeps requests for a higher limit in the database, as soon as that
// can be opened, and knows how many are open.
type requests struct {
	db   *database
	open atomic.Int64
}

var (
	_ developers.Requests = (*requests)(nil)
	_ admin.Requests      = (*requests)(nil)
)

// requestsInterval is how often the open requests are counted.
const requestsInterval = 15 * time.Second

// run counts the open requests: other gateways and operators file and decide
// them too. While the database cannot be read, the last number stands.
func (q *requests) run(ctx context.Context) {
	ticker := time.NewTicker(requestsInterval)
	defer ticker.Stop()
	for {
		q.count(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
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

func (q *requests) File(ctx context.Context, r store.LimitRequest, most int) (store.LimitRequest, error) {
	return changed(ctx, q, func(s *store.Store) (store.LimitRequest, error) { return s.File(ctx, r, most) })
}

func (q *requests) Withdraw(ctx context.Context, id, project, actor, claimed string) (store.LimitRequest, error) {
	return changed(ctx, q, func(s *store.Store) (store.LimitRequest, error) { return s.Withdraw(ctx, id, project, actor, claimed) })
}

func (q *requests) Decline(ctx context.Context, id, actor, claimed, note string) (store.LimitRequest, error) {
	return changed(ctx, q, func(s *store.Store) (store.LimitRequest, error) { return s.Decline(ctx, id, actor, claimed, note) })
}

func (q *requests) Approve(ctx context.Context, id string, g store.Grant) (r store.LimitRequest, v store.Version, err error) {
	r, err = changed(ctx, q, func(s *store.Store) (store.LimitRequest, error) {
		r, v, err = s.Approve(ctx, id, g)
		return r, err
	})
	return r, v, err
}

func (q *requests) Requests(ctx context.Context, query store.RequestQuery) ([]store.LimitRequest, error) {
	s, err := q.db.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Requests(ctx, query)
}

func (q *requests) Request(ctx context.Context, id string) (store.LimitRequest, error) {
	s, err := q.db.get(ctx)
	if err != nil {
		return store.LimitRequest{}, err
	}
	return s.Request(ctx, id)
}

// changed makes a change and counts again.
func changed(ctx context.Context, q *requests, do func(*store.Store) (store.LimitRequest, error)) (store.LimitRequest, error) {
	s, err := q.db.get(ctx)
	if err != nil {
		return store.LimitRequest{}, err
	}
	r, err := do(s)
	if err == nil {
		q.count(ctx)
	}
	return r, err
}
