package database

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// BeginCall writes down a call that is about to change something, and reports
// its ID. Once it returns, the entry survives kill -9 and loss of power.
func (s *Store) BeginCall(ctx context.Context, c record.Call) (id int64, err error) {
	err = s.write(ctx, func(tx *tx) (err error) {
		id, err = insertCall(ctx, tx, c)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the record of calls: %w", err)
	}
	return id, nil
}

// EndCall adds to a call that was begun how it ended. That can be said once.
func (s *Store) EndCall(ctx context.Context, id int64, c record.Call) error {
	err := s.write(ctx, func(tx *tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE api_calls SET about = ?, status = ?, micros = ? WHERE id = ?",
			orNull(cut(c.About)), c.Status, micros(c.Took), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("write the record of calls: %w", err)
	}
	return nil
}

// AppendCalls writes down calls that have ended, all or none.
func (s *Store) AppendCalls(ctx context.Context, calls []record.Call) error {
	err := s.write(ctx, func(tx *tx) error {
		for _, c := range calls {
			if _, err := insertCall(ctx, tx, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the record of calls: %w", err)
	}
	return nil
}

func insertCall(ctx context.Context, tx *tx, c record.Call) (int64, error) {
	changes, took := 0, any(nil)
	if c.Changes {
		changes = 1
	}
	if c.Status != 0 {
		took = micros(c.Took)
	}
	return tx.insert(ctx, "INSERT INTO api_calls (at, actor, token_id, peer, operation, changes, about, status, "+
		"micros) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		c.At.Unix(), cut(c.Actor), orNull(c.Token), c.Peer, c.Operation, changes, orNull(cut(c.About)),
		orNull(c.Status), took)
}

// micros is a time that is never 0: nothing takes none.
func micros(d time.Duration) int64 { return max(1, d.Microseconds()) }

// ListCalls reports the newest calls before the one with an ID, at most most of
// them, newest first. before is 0 for all.
func (s *Store) ListCalls(ctx context.Context, before int64, most int) (list []record.Call, err error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		list, err = s.queryCalls(ctx, tx, before, most)
		return err
	})
	return list, err
}

func (s *Store) queryCalls(ctx context.Context, tx *tx, before int64, most int) ([]record.Call, error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, at, actor, token_id, peer, operation, changes, about, status, micros
		FROM api_calls WHERE id < ? ORDER BY id DESC LIMIT ?`, before, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []record.Call
	r := newRow(s.db.name(), "api_calls", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:10]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		list = append(list, record.Call{
			ID:        r.whole(0, "id", math.MaxInt64),
			At:        r.time(1, "at"),
			Actor:     r.text(2, "actor"),
			Token:     r.text(3, "token_id"),
			Peer:      r.text(4, "peer"),
			Operation: r.text(5, "operation"),
			Changes:   r.values[6] == int64(1),
			About:     r.text(7, "about"),
			Status:    int(r.wholeOrNull(8, "status", 599)),
			Took: time.Duration(r.wholeOrNull(9, "micros", math.MaxInt64/int64(time.Microsecond))) *
				time.Microsecond,
		})
	}
	return list, errors.Join(rows.Err(), r.err())
}

// pruneBatch is how many calls go in one transaction, so that none holds the
// database for long.
const pruneBatch = 10_000

// PruneCalls deletes the calls from before a time, of those that changed nothing
// the oldest beyond looks, and of the others the oldest beyond changes: whoever
// may only look cannot crowd out the record of what was changed. It reports how
// many went.
func (s *Store) PruneCalls(ctx context.Context, before time.Time, looks, changes int64) (gone int64, err error) {
	for {
		n, err := s.pruneCalls(ctx, before, looks, changes)
		gone += n
		if err != nil || n < pruneBatch {
			return gone, err
		}
	}
}

func (s *Store) pruneCalls(ctx context.Context, before time.Time, looks, changes int64) (gone int64, err error) {
	const old = "(at < ? OR (changes = 0 AND id <= ?) OR (changes = 1 AND id <= ?))"
	var low [2]int64 // the newest look, and the newest change, that is one too many
	var last int64
	// To find that nothing is old takes a look at every call, during which others
	// shall write.
	err = s.read(ctx, func(tx *tx) error {
		for kind, most := range []int64{looks, changes} {
			row := tx.QueryRowContext(ctx,
				"SELECT coalesce((SELECT id FROM api_calls WHERE changes = ? ORDER BY id DESC LIMIT 1 OFFSET "+
					number(most)+"), 0)", kind)
			if err := row.Scan(&low[kind]); err != nil {
				return err
			}
		}
		// The bound of a batch first: not every database has LIMIT in DELETE.
		return tx.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM api_calls WHERE "+old+
			" ORDER BY id LIMIT "+number(pruneBatch)+") AS old",
			before.Unix(), low[0], low[1]).Scan(&last)
	})
	if err != nil || last == 0 {
		return 0, err
	}
	err = s.write(ctx, func(tx *tx) error {
		done, err := tx.ExecContext(ctx, "DELETE FROM api_calls WHERE id <= ? AND "+old, last, before.Unix(),
			low[0], low[1])
		if err != nil {
			return err
		}
		gone, err = done.RowsAffected()
		return err
	})
	return gone, err
}
