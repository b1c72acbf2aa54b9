package database

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// PruneRequests deletes the requests for a higher limit that were decided before
// a time, and at least KeepRequests ago by the database's clock, and reports how
// many: a gateway's clock may be ahead. Open ones that ran out
// are closed first, and go when they have been closed for as long. What was done
// with each stays in the audit, and what it was granted in the history of the
// rules.
func (s *Store) PruneRequests(ctx context.Context, before time.Time) (gone int64, err error) {
	if s.table != nil {
		return 0, nil
	}
	for {
		n, err := s.pruneRequests(ctx, before)
		gone += n
		if err != nil || n < pruneBatch {
			return gone, err
		}
	}
}

func (s *Store) pruneRequests(ctx context.Context, before time.Time) (gone int64, err error) {
	const old = "state <> 'open' AND decided_at < ?"
	var last int64
	over := 0
	// To find that nothing is old may take a look at every request, during which
	// others shall write.
	err = s.read(ctx, func(tx *tx) error {
		var clock int64
		if err := tx.QueryRowContext(ctx, "SELECT "+tx.dialect.clock).Scan(&clock); err != nil {
			return err
		}
		if most := time.UnixMilli(clock).Add(-record.KeepRequests); before.After(most) {
			before = most
		}
		now := time.Now()
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE "+ranOut, now.Unix(),
			now.Add(-record.RequestLife).Unix()).Scan(&over); err != nil {
			return err
		}
		// The bound of a batch first: not every database has LIMIT in DELETE.
		return tx.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM limit_requests WHERE "+old+
			" ORDER BY id LIMIT "+number(pruneBatch)+") AS old",
			before.Unix()).Scan(&last)
	})
	if err != nil || last == 0 && over == 0 {
		return 0, err
	}
	err = s.write(ctx, func(tx *tx) error {
		gone = 0
		if err := expireRequests(ctx, tx, time.Now()); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, "DELETE FROM limit_requests WHERE id <= ? AND "+old, last, before.Unix())
		if err != nil {
			return err
		}
		gone, err = done.RowsAffected()
		return err
	})
	return gone, err
}
