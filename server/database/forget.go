package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// Forget gives up the changes of all versions before one, which is the oldest
// that can be brought up from then on: it can be, and what it changed is known.
// Who did so is written down, and the lines of the history stay: those without
// their changes are short. It reports how many changes it removed.
func (s *Store) Forget(ctx context.Context, a record.Author, before int64) (removed int64, err error) {
	if s.table != nil {
		return 0, s.table.noHistory()
	}
	if err := a.Check(); err != nil {
		return 0, err
	}
	err = s.write(ctx, func(tx *tx) error {
		if _, err := s.number(ctx, tx); err != nil {
			return err
		}
		kept, err := s.versionAt(ctx, tx, before)
		if err != nil {
			return err
		}
		last, err := s.throughBefore(ctx, tx, kept)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO policy_forgotten (at, actor, why, last_change) VALUES (?, ?, ?, ?)",
			time.Now().Unix(), a.Actor, orNull(a.Why), last)
		if err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, "DELETE FROM policy_changes WHERE id <= ?", last)
		if err != nil {
			return err
		}
		removed, err = done.RowsAffected()
		return err
	})
	return removed, err
}

// checkKept reports an error about a version, if changes after through were given
// up.
func (s *Store) checkKept(ctx context.Context, tx *tx, version, through int64) error {
	rows, err := tx.QueryContext(ctx,
		"SELECT last_change, actor, at FROM policy_forgotten WHERE last_change > ? ORDER BY id DESC LIMIT 1", through)
	if err != nil {
		return err
	}
	defer rows.Close()
	r := newRow(s.db.name(), "policy_forgotten", tx)
	if rows.Next() {
		if err := rows.Scan(r.cells[:3]...); err != nil {
			return err
		}
		return fmt.Errorf("version %d: %w: %s gave up the changes before it at %s", version, record.ErrNotFound,
			r.text(1, "actor"), r.time(2, "at").Format(time.RFC3339))
	}
	return errors.Join(rows.Err(), r.err())
}
