package developers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Requests keeps requests for a higher limit. *database.Store does.
type Requests interface {
	File(ctx context.Context, r record.LimitRequest, most int) (record.LimitRequest, error)
	Requests(ctx context.Context, q record.RequestQuery) ([]record.LimitRequest, error)
	Request(ctx context.Context, id string) (record.LimitRequest, error)
	Withdraw(ctx context.Context, id, project, actor, claimed string) (record.LimitRequest, error)
}

// Request is a request as those who filed it see it.
type Request struct {
	ID         string    `json:"id"`
	Filed      time.Time `json:"filed"`
	By         string    `json:"by"` // as far as proven
	Name       string    `json:"name,omitempty"`
	Project    string    `json:"project"`
	Endpoint   string    `json:"endpoint"`
	Subject    string    `json:"subject"`
	Limit      int64     `json:"limit"`
	PerSeconds int64     `json:"per_seconds"`
	Burst      int64     `json:"burst,omitempty"`
	ForSeconds int64     `json:"for_seconds,omitempty"`
	Until      time.Time `json:"until,omitzero"`
	Reason     string    `json:"reason"`

	State   string    `json:"state"`
	Decided time.Time `json:"decided,omitzero"`
	Note    string    `json:"note,omitempty"`
	Granted *Granted  `json:"granted,omitempty"`
}

// Granted is what an approval made of a request.
type Granted struct {
	Limit      int64     `json:"limit"`
	PerSeconds int64     `json:"per_seconds"`
	Burst      int64     `json:"burst,omitempty"`
	Until      time.Time `json:"until"`
}

// RequestList is a page of requests, newest first.
type RequestList struct {
	Requests []Request `json:"requests"`
	Next     string    `json:"next,omitempty"` // before, for the next page
}

// RequestOf is what callers see of a request: not who decided.
func RequestOf(r record.LimitRequest) Request {
	out := Request{
		ID: r.ID, Filed: r.Filed.UTC(), By: r.Actor, Name: r.Claimed, Project: r.Project,
		Endpoint: r.Endpoint, Subject: r.Subject.String(), Limit: r.Limit, PerSeconds: int64(r.Per / time.Second),
		Burst:      r.Burst,
		ForSeconds: int64(r.For / time.Second), Until: utc(r.Until), Reason: r.Reason,
		State: string(r.State), Decided: utc(r.Decided), Note: r.Note,
	}
	if g := r.Granted; r.State == record.RequestApproved {
		out.Granted = &Granted{g.Limit, int64(g.Per / time.Second), g.Burst, utc(g.Until)}
	}
	return out
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// Pages of requests.
const (
	DefaultPage = 50
	MaxPage     = 500
)

var requestID = regexp.MustCompile(`^r_[0-9a-f]{20}$`)

// QueryOf reads which requests a page is to show.
func QueryOf(state, before, limit string) (record.RequestQuery, error) {
	q := record.RequestQuery{State: record.RequestState(state), Before: before, Most: DefaultPage}
	var errs []error
	if state != "" && !slices.Contains(record.RequestStates, q.State) {
		errs = append(errs, fmt.Errorf("state is %.40q, want open, approved, declined, withdrawn or expired", state))
	}
	if before != "" && !requestID.MatchString(before) {
		errs = append(errs, fmt.Errorf("before is %.40q, want the ID of a request", before))
	}
	if limit != "" {
		var err error
		if q.Most, err = strconv.Atoi(limit); err != nil || q.Most < 1 || q.Most > MaxPage {
			errs = append(errs, fmt.Errorf("limit is %.40q, want 1 to %d", limit, MaxPage))
		}
	}
	return q, errors.Join(errs...)
}

// list answers with the requests of the caller's project.
func (d *Door) list(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	query := r.URL.Query()
	q, err := QueryOf(query.Get("state"), query.Get("before"), query.Get("limit"))
	if err != nil {
		refuse(w, r, http.StatusBadRequest, oneLine(err))
		return
	}
	if !d.mayAsk(w, r, who) {
		return
	}
	q.Project = who.Project
	found, err := d.options.Requests.Requests(r.Context(), q)
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	page := RequestList{Requests: make([]Request, len(found))}
	for i := range found {
		page.Requests[i] = RequestOf(found[i])
	}
	if len(found) == q.Most {
		page.Next = found[len(found)-1].ID
	}
	answer(w, http.StatusOK, page)
}

// file writes down a request of the caller's project.
func (d *Door) file(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	if !d.mayAsk(w, r, who) {
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		refuse(w, r, http.StatusUnsupportedMediaType, "The body has to be application/json.")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFiling))
	if err != nil {
		refuse(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("The body could not be read, or has more than %d bytes.", maxFiling))
		return
	}
	asked, err := ParseFiling(body, time.Now())
	if err != nil {
		refuse(w, r, http.StatusBadRequest, oneLine(err))
		return
	}
	if err := d.isHigher(r.Context(), who, asked.Asked); err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	if err := d.hasRoom(r.Context(), who.Project); err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	asked.Actor, asked.Project = actor(&who), who.Project
	filed, err := d.options.Requests.File(r.Context(), asked, d.options.MaxRequests)
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	d.options.Log.Info("a request for a higher limit was filed", "request", filed.ID, "by", filed.Actor)
	w.Header().Set("Location", d.options.Path+"/v1/requests/"+filed.ID)
	answer(w, http.StatusCreated, RequestOf(filed))
}

// hasRoom refuses a project that has too many open requests, as File would in its
// turn among those who change rules: a flood must not take turns.
func (d *Door) hasRoom(ctx context.Context, project string) error {
	open, err := d.options.Requests.Requests(ctx, record.RequestQuery{Project: project, State: record.RequestOpen,
		Most: d.options.MaxRequests})
	if err == nil && len(open) >= d.options.MaxRequests {
		err = fmt.Errorf("%w: the project has %d open ones, want at most %d: withdraw one", record.ErrTooManyRequests,
			len(open), d.options.MaxRequests)
	}
	return err
}

// get answers with one request of the caller's project.
func (d *Door) get(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	if !d.mayAsk(w, r, who) {
		return
	}
	found, err := d.ofProject(r, who.Project)
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	answer(w, http.StatusOK, RequestOf(found))
}

// ofProject finds the request in the path, if it is a project's.
func (d *Door) ofProject(r *http.Request, project string) (record.LimitRequest, error) {
	found, err := d.options.Requests.Request(r.Context(), d.lastSegment(r))
	if err == nil && found.Project != project {
		return record.LimitRequest{}, record.ErrNotFound
	}
	return found, err
}

// withdraw closes one request of the caller's project. A key with scopes speaks
// for a part of it: it withdraws what it filed itself.
func (d *Door) withdraw(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	if !d.mayAsk(w, r, who) {
		return
	}
	// Looked for first: what is not there must cost no turn among those who
	// change rules.
	found, err := d.ofProject(r, who.Project)
	if err == nil && len(who.Scopes.List()) > 0 && found.Actor != actor(&who) {
		refuse(w, r, http.StatusForbidden,
			"A key with scopes can withdraw what it filed itself; another key of the project has to.")
		return
	}
	var done record.LimitRequest
	if err == nil {
		done, err = d.options.Requests.Withdraw(r.Context(), found.ID, who.Project, actor(&who), "")
	}
	if err != nil {
		d.refuseRequest(w, r, err)
		return
	}
	d.options.Log.Info("a request for a higher limit was withdrawn", "request", done.ID, "by", done.DecidedBy)
	answer(w, http.StatusOK, RequestOf(done))
}

// mayAsk refuses callers whose requests would be nobody's.
func (d *Door) mayAsk(w http.ResponseWriter, r *http.Request, who identity.Principal) bool {
	switch {
	case d.options.Requests == nil || d.options.MaxRequests == 0:
		refuse(w, r, http.StatusNotFound, "Requests for a higher limit are not taken at "+d.options.Path+".")
	case who.Project == "":
		refuse(w, r, http.StatusForbidden, "Your credential belongs to no project, and a higher limit is a project's.")
	default:
		return true
	}
	return false
}

// lastSegment is the ID in the path.
func (d *Door) lastSegment(r *http.Request) string {
	canonical, _ := d.endpoints.Canonical(httplimit.Target(r))
	return path.Base(canonical)
}

// actor names a caller as far as proven, without what a token may say of a
// person: its subject is often an address of mail.
func actor(who *identity.Principal) string {
	if who.Kind == identity.APIKey {
		return "api_key " + who.ID
	}
	sum := sha256.Sum256(who.AppendSubject(nil))
	return who.Kind.String() + " " + hex.EncodeToString(sum[:10])
}

// notHigher is what is wrong with what was asked for.
type notHigher struct{ text string }

func (e *notHigher) Error() string { return e.text }

// isHigher refuses what is not higher than a limit in force: where no limit is,
// nobody has to be asked, and a lower one is no use to who asks.
func (d *Door) isHigher(ctx context.Context, who identity.Principal, asked record.Asked) error {
	if asked.Subject.Named() {
		return &notHigher{
			fmt.Sprintf("a limit for each %s is asked for, which is not your project's alone: want one of another "+
				"subject that GET %s/v1/budgets shows", asked.Subject, d.options.Path)}
	}
	at := asked.Endpoint
	if at == policy.Default {
		at = "" // whichever endpoints it is for
	}
	found, err := inspect.BudgetsOf(ctx, d.options.Reporter.Limiter, who, at)
	if err != nil {
		return err
	}
	for _, b := range found.Rules {
		if b.Rule.Subject != asked.Subject || b.Shadow || hidden(b) ||
			at != "" && (at == policy.All) != b.Level.EveryEndpoint() {
			continue
		}
		if at != "" && !more(asked.Limit, asked.Per, b.Rule.Limit, b.Rule.Per) && asked.Burst <= b.Rule.Burst {
			return &notHigher{fmt.Sprintf("the limit is %s with a burst of %d already, want a higher one",
				b.Rule.Rate(), b.Rule.Burst)}
		}
		return nil
	}
	return &notHigher{fmt.Sprintf("no limit for each %s holds for you at %q, want one that GET %s/v1/budgets shows",
		asked.Subject, asked.Endpoint, d.options.Path)}
}

// more reports whether a per p is faster than b per q.
func more(a int64, p time.Duration, b int64, q time.Duration) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(max(q, time.Second)))
	hi2, lo2 := bits.Mul64(uint64(b), uint64(max(p, time.Second)))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}

// refuseRequest answers an error about a request.
func (d *Door) refuseRequest(w http.ResponseWriter, r *http.Request, err error) {
	var query *inspect.QueryError
	var wrong *notHigher
	var decided *record.DecidedError
	switch {
	case errors.As(err, &query), errors.As(err, &wrong):
		refuse(w, r, http.StatusUnprocessableEntity, err.Error())
	case errors.Is(err, record.ErrNotFound):
		refuse(w, r, http.StatusNotFound, "Your project has no such request.")
	case errors.As(err, &decided):
		refuse(w, r, http.StatusConflict, "The request is "+string(decided.Request.State)+" already.")
	case errors.Is(err, record.ErrTooManyRequests):
		refuse(w, r, http.StatusConflict, err.Error())
	default:
		d.options.Log.Error("requests for a higher limit are not available", "error", err)
		refuse(w, r, http.StatusServiceUnavailable,
			"Requests for a higher limit cannot be read or written at the moment.")
	}
}
