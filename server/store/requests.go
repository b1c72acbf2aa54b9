package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// RequestState is what became of a request for a higher limit.
type RequestState string

// The states. Only an open request goes over into another one.
const (
	RequestOpen      RequestState = "open"
	RequestApproved  RequestState = "approved"
	RequestDeclined  RequestState = "declined"
	RequestWithdrawn RequestState = "withdrawn"
	RequestExpired   RequestState = "expired" // nobody decided before it was of no use any more
)

// RequestStates are all of them.
var RequestStates = []RequestState{RequestOpen, RequestApproved, RequestDeclined, RequestWithdrawn, RequestExpired}

// Asked is the limit that a caller asks for.
type Asked struct {
	Endpoint string
	Subject  policy.Subject
	Limit    int64
	Per      time.Duration
	Burst    int64 // 0 leaves it to the operator's default

	// Until is when the limit is to end, or For how long it is to last from the
	// approval on. One of the two.
	Until time.Time
	For   time.Duration
}

// LimitRequest is a request for a higher limit, and what became of it. Times are
// whole seconds.
type LimitRequest struct {
	ID      string
	Filed   time.Time
	Actor   string // who filed it, as far as proven: "api_key k_…", or a digest of a token's subject
	Claimed string // who they say they are
	Project string
	Asked
	Reason string

	State          RequestState
	Decided        time.Time
	DecidedBy      string
	DecidedClaimed string
	Note           string

	// Granted is what an approval made of it, with Until and without For, and
	// Version the version of the rules that it is in.
	Granted Asked
	Version int64
}

// Bounds of what is kept of requests.
const (
	// RequestsADay is how many requests a project may file in 24 hours, whatever
	// became of them.
	RequestsADay = 20

	// RequestLife is after how long an open request expires.
	RequestLife = 90 * 24 * time.Hour
)

// ErrTooManyRequests is what File returns when a project has filed too many
// requests to file another one now.
var ErrTooManyRequests = errors.New("too many requests for a higher limit")

// File writes down a request, unless its project has most open ones already, and
// reports it with its ID. It is in the audit too.
func (s *Store) File(ctx context.Context, r LimitRequest, most int) (LimitRequest, error) {
	r.ID, r.State = newID("r_"), RequestOpen
	if r.Filed.IsZero() {
		r.Filed = time.Now()
	}
	r.Filed, r.Until = r.Filed.UTC().Truncate(time.Second), r.Until.UTC().Truncate(time.Second)
	r.Endpoint = canonical(r.Endpoint)
	err := s.write(ctx, func(tx *tx) error {
		if err := expireRequests(ctx, tx, r.Filed); err != nil {
			return err
		}
		var open, today int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE "+tx.dialect.sameProject+" AND state = 'open'", r.Project).Scan(&open); err != nil {
			return err
		}
		if open >= most {
			return refusal{fmt.Errorf("%w: the project has %d open ones, want at most %d: withdraw one", ErrTooManyRequests, open, most)}
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE "+tx.dialect.sameProject+" AND filed_at > ?",
			r.Project, r.Filed.Add(-24*time.Hour).Unix()).Scan(&today); err != nil {
			return err
		}
		if today >= RequestsADay {
			return refusal{fmt.Errorf("%w: the project has filed %d in 24 hours, want at most %d", ErrTooManyRequests, today, RequestsADay)}
		}
		if err := insertRequest(ctx, tx, &r); err != nil {
			return err
		}
		return auditRequest(ctx, tx, ActionFile, r.Filed, r.Actor, r.Claimed, &r, r.Asked)
	})
	if err != nil {
		return LimitRequest{}, err
	}
	return r, nil
}

func insertRequest(ctx context.Context, tx *tx, r *LimitRequest) error {
	var until any
	if !r.Until.IsZero() {
		until = r.Until.Unix()
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO limit_requests
		(request, filed_at, actor, claimed, project_id, endpoint, subject, rps_limit, per_seconds, burst, until_at, for_seconds, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, r.Filed.Unix(), r.Actor, orNull(r.Claimed), r.Project, r.Endpoint, r.Subject.String(), r.Limit, int64(r.Per/time.Second), orNull(r.Burst),
		until, orNull(int64(r.For/time.Second)), r.Reason)
	return err
}

// ranOut holds for open requests that are of no use any more.
const ranOut = "state = 'open' AND (until_at <= ? OR filed_at <= ?)"

// expireRequests closes the open requests that are of no use any more.
func expireRequests(ctx context.Context, tx *tx, now time.Time) error {
	_, err := tx.ExecContext(ctx, "UPDATE limit_requests SET state = 'expired', decided_at = ? WHERE "+ranOut,
		now.Unix(), now.Unix(), now.Add(-RequestLife).Unix())
	return err
}

// RequestQuery says which requests are meant. Empty fields are any.
type RequestQuery struct {
	Project string
	State   RequestState
	Before  string // the ID of a request: those filed before it
	Most    int    // 1 or more
}

// Requests reports requests, newest first.
func (s *Store) Requests(ctx context.Context, q RequestQuery) (list []LimitRequest, err error) {
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
		gone, life := "(until_at <= ? OR filed_at <= ?)", time.Now().Add(-RequestLife).Unix()
		switch q.State {
		case "":
		case RequestOpen:
			where, args = where+" AND state = 'open' AND NOT coalesce("+gone+", 1 = 0)", append(args, now, life)
		case RequestExpired:
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
func (s *Store) Request(ctx context.Context, id string) (r LimitRequest, err error) {
	err = s.read(ctx, func(tx *tx) (err error) {
		r, err = s.requestIn(ctx, tx, id)
		return err
	})
	return r, err
}

// OpenRequests reports how many requests wait for a decision.
func (s *Store) OpenRequests(ctx context.Context) (n int, err error) {
	err = s.read(ctx, func(tx *tx) error {
		return tx.QueryRowContext(ctx, "SELECT count(*) FROM limit_requests WHERE state = 'open' AND NOT coalesce(until_at <= ? OR filed_at <= ?, 1 = 0)",
			time.Now().Unix(), time.Now().Add(-RequestLife).Unix()).Scan(&n)
	})
	return n, err
}

func (s *Store) requestIn(ctx context.Context, tx *tx, id string) (LimitRequest, error) {
	found, err := s.queryRequests(ctx, tx, "WHERE request = ?", id)
	switch {
	case err != nil:
		return LimitRequest{}, err
	case len(found) == 0 || found[0].ID != id: // MySQL ignores spaces at the end
		return LimitRequest{}, fmt.Errorf("request %q: %w", id, ErrNotFound)
	}
	return found[0], nil
}

const requestColumns = `id, request, filed_at, actor, claimed, project_id, endpoint, subject, rps_limit, per_seconds, burst, until_at, for_seconds, reason,
	state, decided_at, decided_by, decided_claimed, note, granted_limit, granted_per_seconds, granted_burst, granted_until, version`

func (s *Store) queryRequests(ctx context.Context, tx *tx, clauses string, args ...any) (list []LimitRequest, err error) {
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
func (r *row) request(now time.Time) LimitRequest {
	q := LimitRequest{
		ID: r.text(1, "request"), Filed: r.time(2, "filed_at"), Actor: r.text(3, "actor"), Claimed: r.text(4, "claimed"), Project: r.text(5, "project_id"),
		Asked: Asked{
			Endpoint: r.text(6, "endpoint"), Limit: r.whole(8, "rps_limit", math.MaxInt64), Per: r.seconds(9, "per_seconds"),
			Burst: r.wholeOrNull(10, "burst", math.MaxInt64), Until: r.time(11, "until_at"), For: r.seconds(12, "for_seconds"),
		},
		Reason: r.text(13, "reason"), State: RequestState(r.text(14, "state")), Decided: r.time(15, "decided_at"),
		DecidedBy: r.text(16, "decided_by"), DecidedClaimed: r.text(17, "decided_claimed"), Note: r.text(18, "note"),
		Version: r.wholeOrNull(23, "version", math.MaxInt64),
	}
	r.enum(7, "subject", &q.Subject)
	if q.State == RequestApproved {
		q.Granted = Asked{
			Endpoint: q.Endpoint, Subject: q.Subject, Limit: r.whole(19, "granted_limit", math.MaxInt64), Per: r.seconds(20, "granted_per_seconds"),
			Burst: r.wholeOrNull(21, "granted_burst", math.MaxInt64), Until: r.time(22, "granted_until"),
		}
	}
	if q.State == RequestOpen && q.isOver(now) {
		q.State = RequestExpired
	}
	return q
}

// isOver reports whether a request that is open can be of no use any more.
func (q *LimitRequest) isOver(now time.Time) bool {
	return !q.Until.IsZero() && !q.Until.After(now) || !q.Filed.Add(RequestLife).After(now)
}

// seconds reports a duration, 0 for NULL.
func (r *row) seconds(i int, field string) time.Duration {
	return time.Duration(r.wholeOrNull(i, field, math.MaxInt64/int64(time.Second))) * time.Second
}
