package store

import (
	"context"
	"database/sql/driver"
	"time"
)

// OpenWithin is Open with another time to wait for locks.
func OpenWithin(ctx context.Context, dsn string, wait time.Duration) (*Store, error) {
	db, err := openEmbedded(ctx, dsn, false, wait)
	return &Store{db: db}, err
}

// BreakWatch makes the connection that Version asks unusable, as a driver does
// when it finds it broken.
func (s *Store) BreakWatch() {
	f := s.db.(*embedded).file
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.watch.Raw(func(any) error { return driver.ErrBadConn })
}

// Quiet makes Watch try its connection after another time without news.
func (s *Store) Quiet(d time.Duration) {
	if p, ok := s.db.(*server).kind.(*postgres); ok {
		p.quiet = d
	}
}

// ExplainWideRules reports how SQLite finds the rules with more than three
// columns.
func (s *Store) ExplainWideRules(ctx context.Context) (plan string, err error) {
	err = s.read(ctx, func(tx *tx) error {
		var id, parent, unused int
		return tx.QueryRowContext(ctx, "EXPLAIN QUERY PLAN SELECT "+ruleColumns+" FROM policies WHERE NOT ("+isPlain+")").
			Scan(&id, &parent, &unused, &plan)
	})
	return plan, err
}
