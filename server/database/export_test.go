package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"time"

	"github.com/headgate-io/headgate/policy"
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

// ReadCut cuts the connection of a transaction, and reads on until that fails, and once more: then
// the driver knows.
func (s *Store) ReadCut(ctx context.Context, cut func()) error {
	return s.read(ctx, func(tx *tx) (err error) {
		read := func() error { return tx.each(ctx, "SELECT 1", nil, []any{new(any)}, func() {}) }
		for err == nil {
			cut()
			err = read()
		}
		return errors.Join(err, read())
	})
}

// Quiet makes Watch try its connection after another time without news.
func (s *Store) Quiet(d time.Duration) {
	if p, ok := s.db.(*server).kind.(*postgres); ok {
		p.quiet = d
	}
}

// ExplainWideRules reports how SQLite or PostgreSQL finds the rules with more
// than three columns.
func (s *Store) ExplainWideRules(ctx context.Context) (plan string, err error) {
	query := "SELECT " + ruleColumns + " FROM policies WHERE NOT (" + isPlain + ")"
	err = s.read(ctx, func(tx *tx) error {
		if !tx.dialect.wire {
			var id, parent, unused int
			return tx.QueryRowContext(ctx, "EXPLAIN QUERY PLAN "+query).Scan(&id, &parent, &unused, &plan)
		}
		restore, err := tx.preferIndexes(ctx)
		if err != nil {
			return err
		}
		return errors.Join(tx.QueryRowContext(ctx, "EXPLAIN (FORMAT JSON) "+query).Scan(&plan), restore())
	})
	return plan, err
}

// ReadSlowly reads all rules in full width, row by row in order, each as if it were the only one: the twin of
// what Load does.
func (s *Store) ReadSlowly(ctx context.Context) (rules []policy.Rule, err error) {
	err = s.read(ctx, func(tx *tx) error {
		r := newRow(s.db.name(), "policies", tx)
		err := s.scanRules(ctx, tx, r, ruleColumns, "ORDER BY rowid", nil, func(int64) {
			r.parsed.known = false
			rules = append(rules, r.rule())
		})
		return errors.Join(err, r.err())
	})
	return rules, err
}

// NumberAmid is Number with something that goes on between the reading of the
// changes and the writing of their versions.
func (s *Store) NumberAmid(ctx context.Context, between func()) error {
	found, err := s.readUnwritten(ctx, math.MaxInt64)
	if err != nil || found == nil {
		return err
	}
	between()
	return s.writeUnwritten(ctx, found)
}

// AwaitLater waits until nothing goes on that nobody waits for.
func (s *Store) AwaitLater() { s.later.ended.Wait() }

// NumberedSoon is how many changes by SQL a load gives their number.
const NumberedSoon = numberedSoon

// Arrange puts what was read from the rows with these ids into their order.
func Arrange(rules []policy.Rule, ids []int64) { arrange(rules, sortSpots(ids)) }

// About is how many rules the Store thinks that it has before it reads them.
func (s *Store) About(ctx context.Context) (about int64, err error) {
	err = s.read(ctx, func(tx *tx) error { return tx.QueryRowContext(ctx, tx.dialect.about).Scan(&about) })
	return about, err
}

// RecentSlots reports how many texts are kept of so many rows' worth.
func RecentSlots(rows int) int { return len(newRecent(rows).slots) }
