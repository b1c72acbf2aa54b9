package database

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// File writes down a request, unless its project has most open ones already, and
// reports it with its ID. It is in the audit too.
func (s *Store) File(ctx context.Context, r record.LimitRequest, most int) (record.LimitRequest, error) {
	r.ID, r.State = newID("r_"), record.RequestOpen
	if r.Filed.IsZero() {
		r.Filed = time.Now()
	}
	r.Filed, r.Until = r.Filed.UTC().Truncate(time.Second), r.Until.UTC().Truncate(time.Second)
	r.Endpoint = record.Canonical(r.Endpoint)
	err := s.write(ctx, func(tx *tx) error {
		if err := expireRequests(ctx, tx, r.Filed); err != nil {
			return err
		}
		var open, today int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE "+tx.dialect.sameProject+
			" AND state = 'open'", r.Project).Scan(&open); err != nil {
			return err
		}
		if open >= most {
			return refusal{fmt.Errorf("%w: the project has %d open ones, want at most %d: withdraw one",
				record.ErrTooManyRequests, open, most)}
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE "+tx.dialect.sameProject+
			" AND filed_at > ?",
			r.Project, r.Filed.Add(-24*time.Hour).Unix()).Scan(&today); err != nil {
			return err
		}
		if today >= record.RequestsADay {
			return refusal{fmt.Errorf("%w: the project has filed %d in 24 hours, want at most %d",
				record.ErrTooManyRequests, today, record.RequestsADay)}
		}
		if err := insertRequest(ctx, tx, &r); err != nil {
			return err
		}
		return auditRequest(ctx, tx, record.ActionFile, r.Filed, r.Actor, r.Claimed, &r, r.Asked)
	})
	if err != nil {
		return record.LimitRequest{}, err
	}
	return r, nil
}

func insertRequest(ctx context.Context, tx *tx, r *record.LimitRequest) error {
	var until any
	if !r.Until.IsZero() {
		until = r.Until.Unix()
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO limit_requests
		(request, filed_at, actor, claimed, project_id, endpoint, subject, rps_limit, per_seconds, burst, until_at, for_seconds, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, r.Filed.Unix(), r.Actor, orNull(r.Claimed), r.Project, r.Endpoint, r.Subject.String(), r.Limit,
		int64(r.Per/time.Second), orNull(r.Burst),
		until, orNull(int64(r.For/time.Second)), r.Reason)
	return err
}

// ranOut holds for open requests that are of no use any more.
const ranOut = "state = 'open' AND (until_at <= ? OR filed_at <= ?)"

// expireRequests closes the open requests that are of no use any more.
func expireRequests(ctx context.Context, tx *tx, now time.Time) error {
	_, err := tx.ExecContext(ctx, "UPDATE limit_requests SET state = 'expired', decided_at = ? WHERE "+ranOut,
		now.Unix(), now.Unix(), now.Add(-record.RequestLife).Unix())
	return err
}

// Requests reports requests, newest first.
func (s *Store) Requests(ctx context.Context, q record.RequestQuery) (list []record.LimitRequest, err error) {
	err = s.read(ctx, func(tx *tx) (err error) {
		where, args := "WHERE 1 = 1", []any{}
		if q.Project != "" {
			where, args = where+" AND "+tx.dialect.sameProject, append(args, q.Project)
		}
		if q.Before != "" {
			where, args = where+" AND id < (SELECT id FROM limit_requests WHERE request = ?)", append(args, q.Before)
		}
		// One that ran out and that nobody has touched since is open in the table.
		now := time.Now().Unix()
		gone, life := "(until_at <= ? OR filed_at <= ?)", time.Now().Add(-record.RequestLife).Unix()
		switch q.State {
		case "":
		case record.RequestOpen:
			where, args = where+" AND state = 'open' AND NOT coalesce("+gone+", 1 = 0)", append(args, now, life)
		case record.RequestExpired:
			where, args = where+" AND (state = 'expired' OR state = 'open' AND "+gone+")", append(args, now, life)
		default:
			where, args = where+" AND state = ?", append(args, string(q.State))
		}
		list, err = s.queryRequests(ctx, tx, where+" ORDER BY id DESC LIMIT ?", append(args, q.Most)...)
		return err
	})
	return list, err
}

// Request reports one request, or ErrNotFound.
func (s *Store) Request(ctx context.Context, id string) (r record.LimitRequest, err error) {
	err = s.read(ctx, func(tx *tx) (err error) {
		r, err = s.requestIn(ctx, tx, id)
		return err
	})
	return r, err
}

// OpenRequests reports how many requests wait for a decision.
func (s *Store) OpenRequests(ctx context.Context) (n int, err error) {
	err = s.read(ctx, func(tx *tx) error {
		return tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE state = 'open' AND NOT "+
			"coalesce(until_at <= ? OR filed_at <= ?, 1 = 0)",
			time.Now().Unix(), time.Now().Add(-record.RequestLife).Unix()).Scan(&n)
	})
	return n, err
}

func (s *Store) requestIn(ctx context.Context, tx *tx, id string) (record.LimitRequest, error) {
	found, err := s.queryRequests(ctx, tx, "WHERE request = ?", id)
	switch {
	case err != nil:
		return record.LimitRequest{}, err
	case len(found) == 0 || found[0].ID != id: // MySQL ignores spaces at the end
		return record.LimitRequest{}, fmt.Errorf("request %q: %w", id, record.ErrNotFound)
	}
	return found[0], nil
}

const requestColumns = `id, request, filed_at, actor, claimed, project_id, endpoint, subject, rps_limit, per_seconds, burst, until_at, for_seconds, reason,
	state, decided_at, decided_by, decided_claimed, note, granted_limit, granted_per_seconds, granted_burst, granted_until, version`

func (s *Store) queryRequests(ctx context.Context, tx *tx, clauses string,
	args ...any) (list []record.LimitRequest, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT "+requestColumns+" FROM limit_requests "+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	r := newRow(s.db.name(), "limit_requests", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:24]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		list = append(list, r.request(time.Now()))
	}
	return list, errors.Join(rows.Err(), r.err())
}

// request reads the values of requestColumns.
func (r *row) request(now time.Time) record.LimitRequest {
	q := record.LimitRequest{
		ID: r.text(1, "request"), Filed: r.time(2, "filed_at"), Actor: r.text(3, "actor"),
		Claimed: r.text(4, "claimed"), Project: r.text(5, "project_id"),
		Asked: record.Asked{
			Endpoint: r.text(6, "endpoint"), Limit: r.whole(8, "rps_limit", math.MaxInt64),
			Per:   r.seconds(9, "per_seconds"),
			Burst: r.wholeOrNull(10, "burst", math.MaxInt64), Until: r.time(11, "until_at"),
			For: r.seconds(12, "for_seconds"),
		},
		Reason: r.text(13, "reason"), State: record.RequestState(r.text(14, "state")),
		Decided:   r.time(15, "decided_at"),
		DecidedBy: r.text(16, "decided_by"), DecidedClaimed: r.text(17, "decided_claimed"), Note: r.text(18, "note"),
		Version: r.wholeOrNull(23, "version", math.MaxInt64),
	}
	r.enum(7, "subject", &q.Subject)
	if q.State == record.RequestApproved {
		q.Granted = record.Asked{
			Endpoint: q.Endpoint, Subject: q.Subject, Limit: r.whole(19, "granted_limit", math.MaxInt64),
			Per:   r.seconds(20, "granted_per_seconds"),
			Burst: r.wholeOrNull(21, "granted_burst", math.MaxInt64), Until: r.time(22, "granted_until"),
		}
	}
	if q.State == record.RequestOpen && q.IsOver(now) {
		q.State = record.RequestExpired
	}
	return q
}

// seconds reports a duration, 0 for NULL.
func (r *row) seconds(i int, field string) time.Duration {
	return time.Duration(r.wholeOrNull(i, field, math.MaxInt64/int64(time.Second))) * time.Second
}
