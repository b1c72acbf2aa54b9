// Package admin is the operator's HTTP door: metrics, health, the rules, and
// explanations. It never stands on the listener that clients reach.
//
//	GET    /healthz              the process runs
//	GET    /readyz               it has rules and is not shutting down
//	GET    /metrics              Prometheus
//	GET    /v1/policies          the rules in force
//	PUT    /v1/policies          one rule: added, or replacing its predecessor
//	DELETE /v1/policies          ?endpoint=…&project=…&tier=…&subject=…
//	POST   /v1/policies/lint     what is wrong with a policy document; changes nothing
//	POST   /v1/reload            read the database now
//	POST   /v1/explain           an ExplainRequest; also GET ?method=…&target=…
//	GET    /v1/fleet             all replicas, and which rules each has
//	GET    /v1/buckets           ?endpoint=…&key=…; POST /v1/buckets/inspect with evidence
//	POST   /v1/buckets/reset     a BucketRequest: its one bucket becomes full
//	POST   /v1/buckets/grant     a BucketRequest with amount, and expires if for a time
//	POST   /v1/budgets           a BucketRequest that names a caller: every rule that applies to it
//	GET    /v1/requests          ?state=open; requests for a higher limit, and /v1/requests/{id}
//	POST   /v1/requests/{id}/approve  a RequestApproval: the request becomes a temporary rule
//	POST   /v1/requests/{id}/decline  a RequestDecline
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/revert"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/store"
)

// Options configures the door. All but Token, TokenName and Warnings are
// required.
type Options struct {
	Limiter  *headgate.Limiter
	Policies *policy.Cache
	Rules    rules.Store
	Compile  policy.CompileOptions
	Metrics  http.Handler
	Ready    func() error
	Audit    Auditor
	FindKey  FindKey
	Fleet    func(context.Context) (fleet.Report, error)

	// Reverted reports that a change was taken back, or nil. Nil means that
	// none ever is.
	Reverted func() *revert.Reverted
	Log      *slog.Logger

	// Budgets tells what is left to a caller.
	Budgets developers.Reporter

	// LimitRequests keeps requests for a higher limit.
	LimitRequests Requests

	// Warnings are what Ready's answer says besides, without being less ready.
	// Nil means none.
	Warnings func() []string

	// Token is what every request but those for health must bear. Empty means
	// that none is asked for, which is for loopback listeners alone.
	Token string

	// TokenName is what the audit calls the token.
	TokenName string
}

// maxBody bounds what a request may send, in bytes.
const maxBody = 1 << 20

// New returns the door.
func New(o Options) (http.Handler, error) {
	a := &api{o}
	guarded := http.NewServeMux()
	guarded.Handle("GET /metrics", o.Metrics)
	guarded.HandleFunc("GET /v1/policies", a.list)
	guarded.HandleFunc("PUT /v1/policies", a.put)
	guarded.HandleFunc("DELETE /v1/policies", a.delete)
	guarded.HandleFunc("POST /v1/policies/lint", a.lint)
	guarded.HandleFunc("POST /v1/reload", a.reload)
	guarded.HandleFunc("POST /v1/explain", a.explain)
	guarded.HandleFunc("GET /v1/explain", a.explain)
	guarded.HandleFunc("GET /v1/fleet", a.fleet)
	a.buckets(guarded)
	guarded.HandleFunc("POST /v1/budgets", a.budgets)
	a.requests(guarded)

	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	open.HandleFunc("GET /readyz", a.ready)
	// A page in the operator's browser must not reach a listener on loopback:
	// neither by a form (cross-origin), nor by a name that resolves to it.
	open.Handle("/", http.NewCrossOriginProtection().Handler(a.authenticated(orProblem(guarded))))
	return open, nil
}

type api struct{ Options }

func (a *api) authenticated(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + a.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Token == "" {
			if !localName(r.Host) {
				refuse(w, r, http.StatusForbidden, "This listener answers to localhost and to addresses alone.")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		// Hashed first, so that the comparison takes the same time whatever
		// the lengths.
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="headgate admin"`)
			refuse(w, r, http.StatusUnauthorized, "The admin token is missing or wrong: send Authorization: Bearer TOKEN.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// orProblem is mux, with problem details for what it does not have.
func orProblem(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		var has []string
		for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut} {
			if _, pattern := mux.Handler(&http.Request{Method: method, Host: r.Host, URL: r.URL}); pattern != "" {
				has = append(has, method)
			}
		}
		if has == nil {
			refuse(w, r, http.StatusNotFound, "Nothing is here. There are /metrics, /healthz, /readyz, /v1/policies, /v1/reload, /v1/explain, /v1/fleet, /v1/buckets, /v1/budgets and /v1/requests.")
			return
		}
		w.Header().Set("Allow", strings.Join(has, ", "))
		refuse(w, r, http.StatusMethodNotAllowed, "This path takes "+strings.Join(has, " and ")+".")
	})
}

// localName reports whether a Host header names this machine without asking
// the DNS, which an attacker may answer.
func localName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	if err := a.Ready(); err != nil {
		refuse(w, r, http.StatusServiceUnavailable, "Not ready: "+err.Error()+".")
		return
	}
	_, _ = io.WriteString(w, "ready\n")
	if a.Warnings != nil {
		for _, warning := range a.Warnings() {
			_, _ = fmt.Fprintf(w, "warning: %s\n", warning)
		}
	}
}

// State is how the rules in force came to be.
type State struct {
	Version      string  `json:"version"`
	Rules        int     `json:"rules"`
	StaleSeconds float64 `json:"stale_seconds"`
	FromDisk     bool    `json:"from_disk,omitempty"`
	LastError    string  `json:"last_error,omitempty"`

	// AutoReverted says that these are the rules from before a change that was
	// taken back; absent if they are not.
	AutoReverted *revert.Reverted `json:"auto_reverted,omitempty"`
}

func (a *api) state() State {
	s := a.Policies.Status()
	state := State{Version: s.Version, Rules: s.Rules, StaleSeconds: s.Stale.Seconds(), FromDisk: s.FromDisk, LastError: s.LastError}
	if a.Reverted != nil {
		state.AutoReverted = a.Reverted()
	}
	return state
}

// Listing is the answer to GET /v1/policies.
type Listing struct {
	State
	Policies []file.Entry `json:"policies"`
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	listing := Listing{State: a.state(), Policies: []file.Entry{}}
	if set := a.Policies.Set(); set != nil {
		doc := policy.Document{Rules: make([]policy.Rule, set.Len())}
		for i := range doc.Rules {
			doc.Rules[i] = set.Rule(policy.RuleID(i))
		}
		listing.Policies = file.From(doc).Rules
	}
	answer(w, http.StatusOK, listing)
}

func (a *api) put(w http.ResponseWriter, r *http.Request) {
	rule, err := readRule(w, r)
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err.Error())
		return
	}
	a.change(w, r, "put", rule, func(ctx context.Context) error {
		_, err := rules.Set(ctx, a.Rules, store.Author{Actor: a.actor()}, rule, a.Compile)
		return err
	})
}

func (a *api) delete(w http.ResponseWriter, r *http.Request) {
	rule, err := ruleNamed(r)
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err.Error())
		return
	}
	a.change(w, r, "delete", rule, func(ctx context.Context) error {
		_, err := rules.Delete(ctx, a.Rules, store.Author{Actor: a.actor()}, store.KeyOf(rule))
		return err
	})
}

// change makes a change and puts it in force before answering.
func (a *api) change(w http.ResponseWriter, r *http.Request, verb string, rule policy.Rule, do func(context.Context) error) {
	err := do(r.Context())
	var wrong policy.Problem
	switch {
	case errors.Is(err, store.ErrNotFound):
		refuse(w, r, http.StatusNotFound, "There is no such rule; GET /v1/policies lists them.")
		return
	case errors.As(err, &wrong):
		refuse(w, r, http.StatusUnprocessableEntity, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	case err != nil:
		a.Log.Error("policy change failed", "verb", verb, "error", err)
		refuse(w, r, http.StatusServiceUnavailable, "The change could not be written: "+err.Error()+".")
		return
	}
	a.Log.Info("policy changed", "verb", verb, "rule", rule.Title())
	if err := a.Policies.Reload(r.Context()); err != nil {
		refuse(w, r, http.StatusConflict, "The change is written and not in force: "+err.Error()+".")
		return
	}
	answer(w, http.StatusOK, a.state())
}

func (a *api) reload(w http.ResponseWriter, r *http.Request) {
	if err := a.Policies.Reload(r.Context()); err != nil {
		refuse(w, r, http.StatusConflict, "The last good rules stay in force: "+strings.ReplaceAll(err.Error(), "\n", "; ")+".")
		return
	}
	answer(w, http.StatusOK, a.state())
}

func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	request, err := readExplain(w, r)
	if err == nil {
		err = request.Check()
	}
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err.Error())
		return
	}
	answer(w, http.StatusOK, a.Limiter.Explain(r.Context(), request.Request()))
}

// readJSON reads the body, which must be one JSON value. Only a script can
// send one across origins, and only with the listener's leave.
func readJSON(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return nil, fmt.Errorf("Content-Type is %q, want application/json", clip(r.Header.Get("Content-Type")))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if !json.Valid(body) {
		return nil, errors.New("body is not JSON, want one JSON object")
	}
	return body, nil
}

// readRule reads one rule as policy files write it.
func readRule(w http.ResponseWriter, r *http.Request) (policy.Rule, error) {
	body, err := readJSON(w, r)
	if err != nil {
		return policy.Rule{}, err
	}
	doc, err := file.Decode([]byte(`{"rules":[`+string(body)+`]}`), "body")
	if err != nil {
		return policy.Rule{}, err
	}
	return doc.Rules[0], nil
}

// ruleNamed reads which rule a query means.
func ruleNamed(r *http.Request) (policy.Rule, error) {
	query := r.URL.Query()
	rule := policy.Rule{Endpoint: query.Get("endpoint"), Project: query.Get("project"), Tier: query.Get("tier")}
	for name := range query {
		switch name {
		case "endpoint", "project", "tier", "subject":
		default:
			return rule, fmt.Errorf("query has %q, want endpoint, project, tier or subject", clip(name))
		}
	}
	if rule.Endpoint == "" {
		return rule, errors.New("endpoint is missing from the query, want the rule's endpoint")
	}
	if subject := query.Get("subject"); subject != "" {
		return rule, rule.Subject.UnmarshalText([]byte(subject))
	}
	return rule, nil
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // the client is gone if this fails
}

func refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	problem.Write(w, r, problem.Details{Status: status, Detail: detail})
}

// clip shortens what a message repeats of a request.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
