package database

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Withdraw closes an open request of a project. One of another project is not
// found.
func (s *Store) Withdraw(ctx context.Context, id, project, actor, claimed string) (record.LimitRequest, error) {
	return s.close(ctx, id, project, record.RequestWithdrawn, record.ActionWithdraw, actor, claimed, "")
}

// Decline closes an open request with a note to those who filed it.
func (s *Store) Decline(ctx context.Context, id, actor, claimed, note string) (record.LimitRequest, error) {
	return s.close(ctx, id, "", record.RequestDeclined, record.ActionDecline, actor, claimed, note)
}

// Approve makes a rule of an open request and closes it, both or neither. The
// version of the rules says why: it names the request.
func (s *Store) Approve(ctx context.Context, id string, g record.Grant) (r record.LimitRequest,
	v record.Version, err error) {
	if s.table != nil {
		return record.LimitRequest{}, record.Version{}, s.table.refuse()
	}
	now := time.Now().UTC().Truncate(time.Second)
	err = s.write(ctx, func(tx *tx) error {
		if r, err = s.openIn(ctx, tx, id, "", now); err != nil {
			return err
		}
		doc, err := s.readDocument(ctx, tx)
		if err != nil {
			return err
		}
		rule, err := g.Rule(r, doc)
		if err != nil {
			return refusal{err}
		}
		rule = normal(rule)
		author := record.Author{Actor: g.Actor, Claimed: g.Claimed, Why: "request " + r.ID}
		edit := record.Edit{Set: []policy.Rule{rule}, Action: record.ActionRequest, Check: g.Check}
		if err := errors.Join(author.Check(), checkEdit(&edit)); err != nil {
			return refusal{err}
		}
		if v, err = s.apply(ctx, tx, author, edit, 0); err != nil {
			return err
		}
		r.State, r.Decided, r.DecidedBy, r.DecidedClaimed, r.Note, r.Version = record.RequestApproved, now, g.Actor,
			g.Claimed, g.Note, v.ID
		r.Granted = record.Asked{
			Endpoint: r.Endpoint,
			Subject:  r.Subject,
			Limit:    rule.Limit,
			Per:      rule.Per,
			Burst:    rule.Burst,
			Until:    rule.Expires,
		}
		if err := updateRequest(ctx, tx, &r); err != nil {
			return err
		}
		return auditRequest(ctx, tx, record.ActionApprove, now, g.Actor, g.Claimed, &r, r.Granted)
	})
	if err != nil {
		return record.LimitRequest{}, record.Version{}, err
	}
	return r, v, nil
}

// close ends an open request without changing a rule.
func (s *Store) close(ctx context.Context, id, project string, state record.RequestState,
	action, actor, claimed, note string) (r record.LimitRequest, err error) {
	now := time.Now().UTC().Truncate(time.Second)
	err = s.write(ctx, func(tx *tx) (err error) {
		if r, err = s.openIn(ctx, tx, id, project, now); err != nil {
			return err
		}
		r.State, r.Decided, r.DecidedBy, r.DecidedClaimed, r.Note = state, now, actor, claimed, note
		if err := updateRequest(ctx, tx, &r); err != nil {
			return err
		}
		return auditRequest(ctx, tx, action, now, actor, claimed, &r, r.Asked)
	})
	return r, err
}

// openIn finds a request that is open.
func (s *Store) openIn(ctx context.Context, tx *tx, id, project string, now time.Time) (record.LimitRequest, error) {
	r, err := s.requestIn(ctx, tx, id)
	switch {
	case err != nil:
		return r, err
	case project != "" && r.Project != project:
		return r, fmt.Errorf("request %q: %w", id, record.ErrNotFound)
	case r.State != record.RequestOpen:
		return r, refusal{&record.DecidedError{Request: r}}
	}
	return r, nil
}

// updateRequest writes what was decided, unless somebody else was faster.
func updateRequest(ctx context.Context, tx *tx, r *record.LimitRequest) error {
	var until any
	if !r.Granted.Until.IsZero() {
		until = r.Granted.Until.Unix()
	}
	done, err := tx.ExecContext(ctx,
		`UPDATE limit_requests SET state = ?, decided_at = ?, decided_by = ?, decided_claimed = ?, note = ?,
		granted_limit = ?, granted_per_seconds = ?, granted_burst = ?, granted_until = ?, version = ? WHERE request = ? AND state = 'open'`,
		string(r.State), r.Decided.Unix(), r.DecidedBy, orNull(r.DecidedClaimed), orNull(r.Note),
		orNull(r.Granted.Limit), orNull(int64(r.Granted.Per/time.Second)), orNull(r.Granted.Burst), until,
		orNull(r.Version), r.ID)
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err == nil && n != 1 {
		err = errors.New("the request was changed by a transaction beside this one")
	}
	return err
}

// auditRequest writes down what was done with a request, in its transaction.
func auditRequest(ctx context.Context, tx *tx, action string, at time.Time, actor, claimed string,
	r *record.LimitRequest, limit record.Asked) error {
	var expires any
	if !limit.Until.IsZero() {
		expires = limit.Until.Unix()
	}
	what := "request " + r.ID + ": " + policy.Rule{Limit: limit.Limit, Per: limit.Per}.Rate()
	if limit.Burst > 0 {
		what += ", burst " + strconv.FormatInt(limit.Burst, 10)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO audit (at, actor, claimed, action, rule, endpoint, subject, whose, amount, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		at.Unix(), cut(actor), orNull(cut(claimed)), action, what, cut(r.Endpoint), r.Subject.String(),
		cut("project "+r.Project), nil, expires)
	return err
}
