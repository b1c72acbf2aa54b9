package database

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/server/record"
)

// Append writes down a change, and reports its ID. Once it returns, the entry
// survives kill -9 and loss of power. ID is ignored, and a zero At is now.
func (s *Store) Append(ctx context.Context, a record.Audit) (id int64, err error) {
	if a.At.IsZero() {
		a.At = time.Now()
	}
	var amount, expires any
	if a.Amount > 0 {
		amount = a.Amount
	}
	if !a.Expires.IsZero() {
		expires = a.Expires.Unix()
	}
	err = s.write(ctx, func(tx *tx) (err error) {
		id, err = tx.insert(ctx, `INSERT INTO audit (at, actor, claimed, action, rule, endpoint, subject, whose, amount, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			a.At.Unix(), cut(a.Actor), orNull(cut(a.Claimed)), a.Action, cut(a.Rule), cut(a.Endpoint), cut(a.Subject),
			cut(a.Whose), amount, expires)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the audit: %w", err)
	}
	return id, nil
}

// cut is a text as it is kept, with U+FFFD for what is not printable.
func cut(text string) string {
	return clip.To(strings.Map(func(r rune) rune {
		if record.Unprintable(r) {
			return utf8.RuneError
		}
		return r
	}, text), record.MaxText)
}

// ListAudit reports the newest entries, at most most of them, newest first.
func (s *Store) ListAudit(ctx context.Context, most int) ([]record.Audit, error) {
	return s.AuditBefore(ctx, 0, most)
}

// AuditBefore is ListAudit of the entries before the one with an ID; 0 is all.
func (s *Store) AuditBefore(ctx context.Context, before int64, most int) (list []record.Audit, err error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		list, err = s.queryAudit(ctx, tx, before, most)
		return err
	})
	return list, err
}

func (s *Store) queryAudit(ctx context.Context, tx *tx, before int64, most int) ([]record.Audit, error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT id, at, actor, claimed, action, rule, endpoint, subject, whose, amount, expires_at
		FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?`, before, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []record.Audit
	r := newRow(s.db.name(), "audit", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:11]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		list = append(list, record.Audit{
			ID:       r.wholeOrNull(0, "id", math.MaxInt64),
			At:       r.time(1, "at"),
			Actor:    r.text(2, "actor"),
			Claimed:  r.text(3, "claimed"),
			Action:   r.text(4, "action"),
			Rule:     r.text(5, "rule"),
			Endpoint: r.text(6, "endpoint"),
			Subject:  r.text(7, "subject"),
			Whose:    r.text(8, "whose"),
			Amount:   r.wholeOrNull(9, "amount", math.MaxInt64),
			Expires:  r.time(10, "expires_at"),
		})
	}
	return list, errors.Join(rows.Err(), r.err())
}
