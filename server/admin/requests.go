package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// Requests keeps requests for a higher limit. *database.Store does.
type Requests interface {
	rules.Approver
	Requests(ctx context.Context, q record.RequestQuery) ([]record.LimitRequest, error)
	Request(ctx context.Context, id string) (record.LimitRequest, error)
	Decline(ctx context.Context, id, actor, claimed, note string) (record.LimitRequest, error)
}

// LimitRequest is a request as operators see it.
type LimitRequest struct {
	developers.Request
	DecidedBy   string `json:"decided_by,omitempty"`
	DecidedName string `json:"decided_name,omitempty"` // who they said they are
	Version     int64  `json:"version,omitempty"`      // of the rules, that the approval made
}

// LimitRequests is a page of them, newest first.
type LimitRequests struct {
	Requests []LimitRequest `json:"requests"`
	Next     string         `json:"next,omitempty"` // cursor of the following page
}

// RequestApproval is the body of an approval. What is left out of the limit is
// as it was asked for.
type RequestApproval struct {
	Limit int64        `json:"limit,omitempty"`
	Per   file.Seconds `json:"per,omitzero"`
	Burst int64        `json:"burst,omitempty"`
	Until time.Time    `json:"until,omitzero"`
	For   string       `json:"for,omitempty"` // a duration from now on
	Note  string       `json:"note,omitempty"`
	By    string       `json:"by,omitempty"` // who says they decide
}

// RequestDecline is the body of a decline.
type RequestDecline struct {
	Note string `json:"note"`
	By   string `json:"by,omitempty"`
}

// Approved is the answer to an approval.
type Approved struct {
	Request  LimitRequest `json:"request"`
	Findings []string     `json:"findings,omitempty"` // what lint has to say of the rule
}

// maxNote bounds a note, in bytes.
const maxNote = 1000

// LimitRequestOf is what operators see of a request.
func LimitRequestOf(r record.LimitRequest) LimitRequest {
	return LimitRequest{developers.RequestOf(r), r.DecidedBy, r.DecidedClaimed, r.Version}
}

// Stored is the request that r tells of.
func (r LimitRequest) Stored() (record.LimitRequest, error) {
	var subject policy.Subject
	if err := subject.UnmarshalText([]byte(r.Subject)); err != nil {
		return record.LimitRequest{}, fmt.Errorf("request %s: %w", r.ID, err)
	}
	seconds := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	out := record.LimitRequest{
		ID: r.ID, Filed: r.Filed, Actor: r.By, Claimed: r.Name, Project: r.Project, Reason: r.Reason,
		Asked: record.Asked{
			Endpoint: r.Endpoint,
			Subject:  subject,
			Limit:    r.Limit,
			Per:      seconds(r.PerSeconds),
			Burst:    r.Burst,
			Until:    r.Until,
			For:      seconds(r.ForSeconds),
		},
		State: record.RequestState(r.State), Decided: r.Decided, DecidedBy: r.DecidedBy, DecidedClaimed: r.DecidedName,
		Note: r.Note, Version: r.Version,
	}
	if g := r.Granted; g != nil {
		out.Granted = record.Asked{
			Endpoint: r.Endpoint,
			Subject:  subject,
			Limit:    g.Limit,
			Per:      seconds(g.PerSeconds),
			Burst:    g.Burst,
			Until:    g.Until,
		}
	}
	return out, nil
}

// Check reports what is wrong with an approval by itself, and translates it.
func (b *RequestApproval) Check() (rules.Approval, error) {
	a := rules.Approval{
		Note:    b.Note,
		Claimed: b.By,
		Limit:   b.Limit,
		Per:     time.Duration(b.Per),
		Burst:   b.Burst,
		Until:   b.Until,
	}
	var errs []error
	for _, n := range []struct {
		field string
		value int64
	}{{"limit", b.Limit}, {"burst", b.Burst}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 or more", n.field, n.value))
		}
	}
	if b.For != "" {
		var err error
		if a.For, err = policy.ParseDuration(b.For); err != nil || a.For < time.Second {
			errs = append(errs, fmt.Errorf("for is %q, want a duration such as 48h", asSent(b.For)))
		}
	}
	errs = append(errs, line("note", b.Note, 0, maxNote), line("by", b.By, 0, record.MaxWhy))
	return a, errors.Join(errs...)
}

// Check reports what is wrong with a decline.
func (b *RequestDecline) Check() error {
	return errors.Join(line("note", b.Note, 1, maxNote), line("by", b.By, 0, record.MaxWhy))
}

// line refuses what is not one line of printable text.
func line(field, text string, least, most int) error {
	if len(text) < least || len(text) > most || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s has %d bytes, want %d to %d of printable text on one line", field, len(text), least, most)
	}
	return nil
}

// requestCursor is what the cursor of a page of requests looks like: the ID of
// the last one before it.
var requestCursor = regexp.MustCompile(`^r_[0-9a-f]{20}$`)

func (d *Door) listRequests(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	q, err := developers.QueryOf(query.Get("state"), "", "")
	most, errLimit := pageLimit(r)
	q.Project, q.Before, q.Most = query.Get("project"), query.Get("cursor"), most
	var errCursor error
	if q.Before != "" && !requestCursor.MatchString(q.Before) {
		errCursor = fmt.Errorf("cursor is %q, want the next of the page before", asSent(q.Before))
	}
	if err := errors.Join(err, errLimit, errCursor); err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	found, err := d.LimitRequests.Requests(r.Context(), q)
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	page := LimitRequests{Requests: make([]LimitRequest, len(found))}
	for i := range found {
		page.Requests[i] = LimitRequestOf(found[i])
	}
	if len(found) == q.Most {
		page.Next = found[len(found)-1].ID
	}
	answer(w, http.StatusOK, page)
}

func (d *Door) showRequest(w http.ResponseWriter, r *http.Request) {
	found, err := d.LimitRequests.Request(r.Context(), r.PathValue("id"))
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	answer(w, http.StatusOK, LimitRequestOf(found))
}

func (d *Door) approveRequest(w http.ResponseWriter, r *http.Request) {
	var body RequestApproval
	err := decode(w, r, &body)
	var approval rules.Approval
	if err == nil {
		approval, err = body.Check()
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	end := approval.Until
	if approval.For > 0 {
		end = d.Now().Add(approval.For)
	}
	if err := d.soon(r, end); err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	approval.Actor = callerOf(r).actor
	about(r, "request "+asSent(r.PathValue("id")))
	ctx := context.WithoutCancel(r.Context()) // as any change: once begun it is brought to its end
	done, version, findings, err := rules.Approve(ctx, d.LimitRequests, r.PathValue("id"), approval, d.Compile())
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	d.Log.Info("request for a higher limit approved", "request", done.ID, "actor", done.DecidedBy,
		"version", version.ID)
	if err := d.Policies.Reload(ctx); err != nil {
		refuse(w, r, notInForce, fmt.Errorf("The request is approved and its limit is not in force: %w.", err))
		return
	}
	answered := Approved{Request: LimitRequestOf(done)}
	for _, f := range findings {
		answered.Findings = append(answered.Findings, f.Error())
	}
	answer(w, http.StatusOK, answered)
}

func (d *Door) declineRequest(w http.ResponseWriter, r *http.Request) {
	var body RequestDecline
	err := decode(w, r, &body)
	if err == nil {
		err = body.Check()
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	about(r, "request "+asSent(r.PathValue("id")))
	done, err := d.LimitRequests.Decline(context.WithoutCancel(r.Context()), r.PathValue("id"), callerOf(r).actor,
		body.By, body.Note)
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	d.Log.Info("request for a higher limit declined", "request", done.ID, "actor", done.DecidedBy)
	answer(w, http.StatusOK, LimitRequestOf(done))
}

// refuseRequest answers an error about a request.
func (d *Door) refuseRequest(w http.ResponseWriter, r *http.Request, err error) {
	var decided *record.DecidedError
	var wrong policy.Problem
	var approval *rules.ApprovalError
	var f fault
	switch {
	case errors.As(err, &f):
		refuse(w, r, f.kind, err)
	case errors.Is(err, record.ErrNotFound):
		refuse(w, r, notFound, errors.New("There is no such request; GET /v1/requests lists them."))
	case errors.As(err, &decided):
		refuse(w, r, alreadyDecided, err)
	case errors.As(err, &wrong), errors.As(err, &approval), errors.Is(err, record.ErrTable):
		refuse(w, r, unacceptable, err)
	default:
		d.Log.Error("requests for a higher limit are not available", "error", err)
		refuse(w, r, unavailable, fmt.Errorf("Requests cannot be read or written: %w.", err))
	}
}
