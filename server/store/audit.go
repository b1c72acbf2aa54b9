package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Actions of the audit.
const (
	ActionReset  = "reset"
	ActionGrant  = "grant"
	ActionFailed = "failed" // the change recorded before it was not made
)

// Audit is one change that an operator made to a bucket. It holds no secret.
type Audit struct {
	ID       int64 // in order; nothing is ever left out
	At       time.Time
	Actor    string // who it was, as far as proven: an admin token's name, or a local connection
	Claimed  string // who they say they are; empty if they do not
	Action   string
	Rule     string // its title
	Endpoint string
	Subject  string
	Whose    string    // in words
	Amount   int64     // tokens; 0 for a reset
	Expires  time.Time // zero: given once
}

// maxAuditText bounds each text of an Audit, in bytes. Longer ones are cut, and
// what is not printable is replaced: what was done must not be hidden by making
// it such that it cannot be written down, or not be read on a terminal.
const maxAuditText = 512

// Append writes down a change, and reports its ID. Once it returns, the entry
// survives kill -9 and loss of power. ID is ignored, and a zero At is now.
func (s *Store) Append(ctx context.Context, a Audit) (id int64, err error) {
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
			a.At.Unix(), cut(a.Actor), orNull(cut(a.Claimed)), a.Action, cut(a.Rule), cut(a.Endpoint), cut(a.Subject), cut(a.Whose), amount, expires)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the audit: %w", err)
	}
	return id, nil
}

// cut is a text as it is kept, with U+FFFD for what is not printable.
func cut(text string) string {
	return cutTo(maxAuditText, strings.Map(func(r rune) rune {
		if isUnprintable(r) {
			return utf8.RuneError
		}
		return r
	}, text))
}

// cutTo is a text of at most most bytes, and a mark if it was longer.
func cutTo(most int, text string) string {
	if len(text) <= most {
		return text
	}
	text = text[:most]
	for !utf8.ValidString(text) && len(text) > most-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// ListAudit reports the newest entries, at most most of them, newest first.
func (s *Store) ListAudit(ctx context.Context, most int) ([]Audit, error) {
	return s.AuditBefore(ctx, 0, most)
}

// AuditBefore is ListAudit of the entries before the one with an ID; 0 is all.
func (s *Store) AuditBefore(ctx context.Context, before int64, most int) (list []Audit, err error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		list, err = s.queryAudit(ctx, tx, before, most)
		return err
	})
	return list, err
}

func (s *Store) queryAudit(ctx context.Context, tx *tx, before int64, most int) ([]Audit, error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, at, actor, claimed, action, rule, endpoint, subject, whose, amount, expires_at
		FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?`, before, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Audit
	r := newRow(s.db.name(), "audit", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:11]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		list = append(list, Audit{
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
