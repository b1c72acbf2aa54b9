// Package admin is the operator's HTTP door: metrics, health, the rules, and
// explanations. It never stands on the listener that clients reach.
//
// openapi.yaml describes every operation; operations.go has the same ones in a
// table.
package admin

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/page"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/revert"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/usage"
	"github.com/headgate-io/headgate/server/warnings"
)

// Rules is where rules, the tiers of projects, and the history of both are kept.
// *database.Store is one.
type Rules interface {
	rules.Editor
	Get(ctx context.Context, k record.RuleKey) (policy.Rule, error)
	Page(ctx context.Context, after int64, most int) (record.Page, error)
	Projects(ctx context.Context, after string, most int) (list []record.ProjectTier, version int64, err error)
	Tier(ctx context.Context, project string) (tier string, version int64, err error)
}

// Options configures the door. What is about tokens and the record of calls,
// Warnings and Now may be left out; all others are required.
type Options struct {
	Limiter  *headgate.Limiter
	Bodies   *httplimit.Calls // that are read; nil if none are
	Policies *policy.Cache

	// Database is where rules are kept, or why it cannot be used now. Compare reports
	// what is different in one document of it from another.
	Database func(context.Context) (Rules, error)
	Compare  func(before, after policy.Document) []record.Change

	Compile func() policy.CompileOptions // of the rules in force
	Metrics http.Handler
	Ready   func() error
	Audit   Auditor
	FindKey FindKey
	Fleet   func(context.Context) (fleet.Report, error)

	// Reload reads the configuration and its documents again. Nil means that there is none: POST /v1/reload reads the
	// rules alone.
	Reload func(context.Context) (record.Reload, error)

	// Reverted reports that a change was taken back, or nil. Nil means that
	// none ever is.
	Reverted func() *revert.Reverted

	Log *slog.Logger

	// Budgets tells what is left to a caller.
	Budgets developers.Reporter

	// Activity remembers what was decided of late, and Try has other rules decide it. Nil means that nothing is
	// remembered.
	Activity *activity.Table
	Try      Trier

	// Scored are the callers with the highest scores. Nil means that none is remembered.
	Scored *activity.Scored

	// Usage counts what callers did, by the day. Nil means that nobody does.
	Usage *usage.Days

	// Gateway names this gateway, and ActiveWarnings lists the warnings that are not over, at most so many of them, and
	// says how many there are. Nil means that nothing is watched.
	Gateway        string
	ActiveWarnings func(most int) ([]warnings.Event, int)

	// LimitRequests keeps requests for a higher limit.
	LimitRequests Requests

	// Warnings are what Ready's answer says besides, without being less ready.
	// Nil means none.
	Warnings func() []string

	// Access says who may call; Door.Use puts another in its place.
	Access Access

	// Tokens finds those of the database. Nil means none.
	Tokens TokenFinder

	// TokenStore is where the database's are made and ended.
	TokenStore TokenStore

	// KeyStore is where API keys are made and ended.
	KeyStore KeyStore

	// Calls is where calls are written down. Nil means nowhere.
	Calls CallStore

	// Observe is told of every call: its operation, "none" where there is none
	// of the kind, and the status of the answer. Nil means nobody.
	Observe func(operation string, status int)

	// Unrecorded is told of every call that changed nothing and could not be
	// written down, because too many wait. Nil means nobody.
	Unrecorded func()

	Now func() time.Time // default time.Now
}

// Access says who may call, and for how long it is remembered that they did.
type Access struct {
	// NeedToken is whether a request without a token is refused. False is for
	// loopback listeners alone.
	NeedToken bool

	// Token is one that lets its bearer do everything; empty means that there
	// is none. TokenName is what the audit calls it.
	Token     string
	TokenName string

	// Calls older than KeepCalls are forgotten, and so are the oldest beyond MostCalls that
	// changed nothing, and beyond MostChanges of the others.
	KeepCalls   time.Duration
	MostCalls   int64
	MostChanges int64
}

// Door is an http.Handler. Run keeps its record.
type Door struct {
	Options
	access   atomic.Pointer[Access]
	failures *failures
	record   *recorder
	past     past
	repeats  repeats
	handler  http.Handler

	edits, documents turn // large bodies of changes, and of what is only looked at
	looks            turn // work on many rules that changes nothing
}

// New returns the door.
func New(o Options) (*Door, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(string, int) {}
	}
	if o.Unrecorded == nil {
		o.Unrecorded = func() {}
	}
	d := &Door{Options: o, failures: newFailures(), edits: newTurn(), documents: newTurn(), looks: newTurn()}
	d.Use(o.Access)
	d.record = newRecorder(o, d.access.Load)
	d.handler = d.build()
	return d, nil
}

// Use puts another Access in force, for calls that come from then on.
func (d *Door) Use(a Access) { d.access.Store(&a) }

var _ http.Handler = (*Door)(nil)

// ServeHTTP serves one request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Run writes down calls and forgets what is old, until ctx ends.
func (d *Door) Run(ctx context.Context) {
	d.record.run(ctx, func() { d.past.forget(d.Now()) })
}

// build puts the operations behind their paths, and those that anybody may call
// before the question who calls.
func (d *Door) build() http.Handler {
	open, guarded := http.NewServeMux(), http.NewServeMux()
	for i := range operations {
		op := &operations[i]
		mux, handler := guarded, d.serve(op)
		if op.access == anybody {
			mux, handler = open, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.perform(op, w, r) })
		}
		mux.Handle(op.method+" "+op.path, handler)
	}
	open.Handle("GET "+page.Path, page.Handler())
	// A page in the operator's browser must not reach a listener on loopback:
	// neither by a form (cross-origin), nor by a name that resolves to it.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, strangeOrigin,
			errors.New("The request comes from a page of another origin: use a program, or that listener's own pages."))
	}))
	open.Handle("/", sameOrigin.Handler(d.authenticated(d.orProblem(guarded))))
	return open
}

// perform checks path and query and serves.
func (d *Door) perform(op *operation, w http.ResponseWriter, r *http.Request) {
	if isNoText(r.URL.Path) {
		refuse(w, r, invalidRequest, errors.New("The path is no text, want UTF-8 without NUL."))
		return
	}
	if err := op.checkQuery(r); err != nil {
		refuse(w, r, invalidRequest, err)
		return
	}
	op.serve(d, w, r)
}

// orProblem is mux, with problem details for what it does not have.
func (d *Door) orProblem(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		d.recorded(none, w, r, func(w http.ResponseWriter, r *http.Request) {
			has := methods(mux, r)
			if has == nil {
				refuse(w, r, noSuchPath, errors.New("Nothing is here; GET /v1/openapi.yaml says what there is."))
				return
			}
			w.Header().Set("Allow", strings.Join(has, ", "))
			refuse(w, r, methodNotAllowed, errors.New("This path takes "+strings.Join(has, " and ")+"."))
		})
	})
}

// none stands for what is no operation.
var none = &operation{id: "none"}

// methods are those that the path of r takes.
func methods(mux *http.ServeMux, r *http.Request) (has []string) {
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut} {
		if _, pattern := mux.Handler(&http.Request{Method: method, Host: r.Host, URL: r.URL}); pattern != "" {
			has = append(has, method)
		}
	}
	return has
}

// refuseError answers an error: as the problem that it says it is, else as one
// of kind k.
func refuseError(w http.ResponseWriter, r *http.Request, k kind, err error) {
	var f fault
	if errors.As(err, &f) {
		k = f.kind
	}
	refuse(w, r, k, err)
}

func (d *Door) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

func (d *Door) ready(w http.ResponseWriter, r *http.Request) {
	if err := d.Ready(); err != nil {
		refuse(w, r, unavailable, errors.New("Not ready: "+err.Error()+"."))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ready\n")
	if d.Warnings != nil {
		for _, warning := range d.Warnings() {
			_, _ = fmt.Fprintf(w, "warning: %s\n", warning)
		}
	}
}

func (d *Door) metrics(w http.ResponseWriter, r *http.Request) { d.Metrics.ServeHTTP(w, r) }

// Description is the OpenAPI document of the door.
//
//go:embed openapi.yaml
var Description []byte

func (d *Door) description(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(Description)
}

// unrecorded are operations that are called all the time by machines, and
// counted alone.
var unrecorded = []string{"getMetrics", "getActivity", "getActivitySeries", "none"}

func (op *operation) isRecorded() bool { return !slices.Contains(unrecorded, op.id) }
