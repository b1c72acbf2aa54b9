// Package developers is the door for those who call the API: what is left of
// their budgets and what they used, and their requests for a higher limit. It
// stands under a path of the gateway's own listener that the operator names, so
// that developers reach it, and nothing under that path goes on to the API.
//
//	GET    PATH                    a page in the browser that asks the following
//	GET    PATH/v1/budgets         every rule that applies to the caller; ?endpoint= for one endpoint
//	GET    PATH/v1/requests        those of the caller's project; ?state=open
//	POST   PATH/v1/requests        a Filing
//	GET    PATH/v1/requests/{id}   one of them
//	DELETE PATH/v1/requests/{id}   withdraws it
//
// Callers show the credential that they show the API, and see what is theirs
// alone. A Limiter of the door's own bounds how often they may ask; asking takes
// nothing from the budgets asked about.
package developers

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/page"
)

// Options configures a Door. All but Requests, MaxRequests, Clock, KeyQuery
// and KeyHeader are required.
type Options struct {
	// Path is what every path of the door begins with, such as /.headgate.
	Path string

	Reporter   Reporter
	Identities *identity.Resolver
	Profile    endpoint.Profile // by which the gateway reads paths
	Log        *slog.Logger

	// Requests keeps requests for a higher limit, and MaxRequests is how many a
	// project may have open. With nil or 0 none can be filed.
	Requests    Requests
	MaxRequests int

	// Clock is that of the door's own limits. The default does not step.
	Clock func() time.Time

	// KeyQuery is the query parameter in which API keys may stand, and KeyHeader the
	// header, for the page. Default none: then it is Authorization.
	KeyQuery, KeyHeader string
}

// How often one may ask. Those without a credential have the budget of their
// address, and an answer that says so costs next to nothing.
var limits = []policy.Rule{
	{
		Endpoint: policy.All,
		Limit:    60,
		Per:      time.Minute,
		Burst:    20,
		Name:     "requests of a caller to the developers' door",
	},
	{
		Endpoint: policy.All,
		Limit:    600,
		Per:      time.Minute,
		Burst:    100,
		Subject:  policy.SubjectIP,
		Name:     "requests of an address to the developers' door",
	},
}

const (
	doorBuckets = 1 << 16 // in about 3.5 MB
	maxAtOnce   = 8       // reports that are made at the same time
)

// Door answers developers.
type Door struct {
	options    Options
	path       string // canonical
	endpoints  *endpoint.Table
	operations map[endpoint.ID]*operation
	limiter    *headgate.Limiter
	working    chan struct{} // a place for each report that is being made
	sameOrigin *http.CrossOriginProtection
}

// operation is one thing that the door does.
type operation struct {
	template string // after the path
	serve    func(*Door, http.ResponseWriter, *http.Request, identity.Principal)
	query    []string     // parameters
	page     http.Handler // in place of serve: a file for everybody
}

var operations = []operation{
	{template: "GET /v1/budgets", serve: (*Door).budgets, query: []string{"endpoint"}},
	{template: "GET /v1/requests", serve: (*Door).list, query: []string{"state", "before", "limit"}},
	{template: "POST /v1/requests", serve: (*Door).file},
	{template: "GET /v1/requests/{id}", serve: (*Door).get},
	{template: "DELETE /v1/requests/{id}", serve: (*Door).withdraw},
}

// pathText is what Options.Path may be: segments that mean the same to everybody.
var pathText = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

// CheckPath says what is wrong with a path for the door.
func CheckPath(path string) error {
	if !pathText.MatchString(path) || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../") ||
		len(path) > 64 {
		return fmt.Errorf("developers.path is %q, want a path of at most 64 letters, digits and . _ ~ - without a "+
			"slash at its end, such as /.headgate", path)
	}
	return nil
}

// CheckEndpoints refuses a path that endpoints of the API stand under. A template
// that begins with a parameter may match the path too; there the door goes
// before it, as literal text goes before parameters among templates.
func CheckEndpoints(path string, endpoints *endpoint.Table) error {
	var errs []error
	for _, t := range endpoints.All() {
		_, declared, _ := strings.Cut(t.String(), " ")
		declared, _, _ = strings.Cut(declared, "?")
		if under(strings.ToLower(declared), strings.ToLower(path)) {
			errs = append(errs,
				fmt.Errorf("developers.path is %q, and the API declares the endpoint %q there: want a path that no "+
					"endpoint has", path, t))
		}
	}
	return errors.Join(errs...)
}

// under reports whether a path is base or below it.
func under(path, base string) bool {
	return strings.HasPrefix(path, base) && (len(path) == len(base) || path[len(base)] == '/')
}

// New returns the door.
func New(o Options) (*Door, error) {
	if err := CheckPath(o.Path); err != nil {
		return nil, err
	}
	o.Reporter.hides = true
	d := &Door{
		options: o, operations: map[endpoint.ID]*operation{}, working: make(chan struct{}, maxAtOnce),
		sameOrigin: http.NewCrossOriginProtection(),
	}
	var fault endpoint.Fault
	if d.path, fault = o.Profile.Canonical(o.Path); fault != endpoint.NoFault {
		return nil, fmt.Errorf("developers.path is %q, which %v: want one that endpoint.refuse lets pass",
			o.Path, fault)
	}
	if err := d.compile(); err != nil {
		return nil, err
	}
	return d, d.limit()
}

// Reloaded returns a door with other options that takes the place of d once it is in Use. What callers have asked
// so far counts for it too, unless paths are read in another way.
func (d *Door) Reloaded(o Options) (*Door, error) {
	next, err := New(o)
	if err != nil {
		return nil, err
	}
	next.working = d.working
	if o.Path == d.options.Path && o.Profile == d.options.Profile {
		next.endpoints, next.limiter = d.endpoints, d.limiter
	}
	return next, nil
}

// Use has callers told apart as the door's own options say.
func (d *Door) Use() error {
	return d.limiter.Reload(headgate.Options{Identities: d.options.Identities.AnyScope()})
}

// compile makes templates of the operations.
func (d *Door) compile() (err error) {
	all := slices.Clone(operations)
	about := page.About{
		Path:     d.options.Path,
		Header:   d.options.KeyHeader,
		Requests: d.options.Requests != nil && d.options.MaxRequests > 0,
	}
	files := page.Budgets(about)
	// in one order, so that a door that is Reloaded has the same IDs
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, operation{template: "GET " + strings.TrimSuffix("/"+name, "/"), page: files[name]})
	}
	templates := make([]endpoint.Template, len(all))
	for i := range all {
		method, path, _ := strings.Cut(all[i].template, " ")
		if templates[i], err = endpoint.ParseTemplate(method + " " + d.options.Path + path); err != nil {
			return err
		}
	}
	if d.endpoints, err = endpoint.Compile(templates, d.options.Profile); err != nil {
		return err
	}
	for i := range all {
		id, _ := d.endpoints.Lookup(templates[i])
		d.operations[id] = &all[i]
	}
	return nil
}

// limit makes the limiter of the door itself.
func (d *Door) limit() error {
	set, problems := policy.Compile(policy.Document{Rules: limits}, policy.CompileOptions{Endpoints: d.endpoints})
	if err := problems.Err(); err != nil {
		return err
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: doorBuckets})
	if err != nil {
		return err
	}
	d.limiter, err = headgate.New(headgate.Options{
		Endpoints: d.endpoints, Policies: headgate.Fixed(set), Buckets: buckets,
		Identities: d.options.Identities.AnyScope(), Now: d.options.Clock,
	})
	return err
}

// Before returns a handler that takes the requests under the door's path, in
// whatever spelling, and leaves all others to next.
func (d *Door) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, fault := d.options.Profile.Canonical(httplimit.Target(r))
		if fault != endpoint.NoFault || !under(d.fold(path), d.fold(d.path)) {
			next.ServeHTTP(w, r)
			return
		}
		d.ServeHTTP(w, r)
	})
}

// fold makes one of paths that the gateway takes for one.
func (d *Door) fold(path string) string {
	if d.options.Profile.CaseInsensitive {
		return strings.ToLower(path)
	}
	return path
}

// ServeHTTP answers a request under the door's path.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := httplimit.Target(r)
	decision := d.limiter.Check(r.Context(), headgate.Request{
		Method: r.Method, Target: target, Peer: httplimit.Peer(r), Header: r.Header, Certificate: certificate(r),
	})
	op := d.operations[decision.Endpoint.ID]
	switch {
	case decision.Reason == headgate.OverLimit:
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(decision.RetryAfter.Seconds())), 10))
		problem.Write(w, r, problem.Details{
			Status: http.StatusTooManyRequests,
			Type:   problem.QuotaExceeded,
			Title:  "Quota exceeded",
			Detail: "You ask too often about your budgets. Asking takes nothing from them.",
		})
	case decision.Endpoint.Status == endpoint.UnknownMethod:
		w.Header().Set("Allow", strings.Join(d.endpoints.Allowed(target), ", "))
		refuse(w, r, http.StatusMethodNotAllowed, "This path has no such method.")
	case op == nil:
		refuse(w, r, http.StatusNotFound, "Nothing is here. There are "+d.options.Path+"/v1/budgets and "+
			d.options.Path+"/v1/requests.")
	case d.blocked(&decision):
		refuse(w, r, http.StatusForbidden, "You may not ask.")
	case !decision.Allowed:
		refuse(w, r, http.StatusServiceUnavailable, "The door is not available: "+decision.Reason.String()+".")
	case op.page != nil:
		op.page.ServeHTTP(w, r)
	case decision.Principal.Kind == identity.Address:
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate developers"`)
		refuse(w, r, http.StatusUnauthorized, unauthorized(decision.Principal.Rejected))
	case d.sameOrigin.Check(r) != nil: // a browser shows the client's certificate whoever asks it to
		refuse(w, r, http.StatusForbidden, "The request comes from a page of another origin.")
	default:
		if err := d.checkQuery(op, r.URL.RawQuery); err != nil {
			refuse(w, r, http.StatusBadRequest, err.Error())
			return
		}
		op.serve(d, w, r, decision.Principal)
	}
}

// blocked reports whether the rules of the gateway refuse whatever one of the callers sends.
func (d *Door) blocked(decision *headgate.Decision) bool {
	set := d.options.Reporter.Policies.Set()
	if set == nil || set.AccessRules() == 0 {
		return false
	}
	now := d.options.Reporter.wall()
	for _, who := range append(decision.Others, decision.Principal) {
		if caller := charge.CallerOf(&who); set.Blocked(now, &caller) {
			return true
		}
	}
	return false
}

func unauthorized(why identity.Rejection) string {
	const how = "Show the API key or bearer token that you show the API, in the same place."
	if why == identity.NotRejected {
		return how
	}
	return how + " What was shown is not believed: " + why.String() + "."
}

// certificate returns the client's certificate, if the handshake verified it.
func certificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// checkQuery refuses parameters that mean nothing here, and those that cannot be
// read: left out, they would change the answer unseen.
func (d *Door) checkQuery(op *operation, text string) error {
	query, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("query is not readable (%w), want %%3B for a ; in it and %%25 for a %%", err)
	}
	for name, values := range query {
		switch {
		case name == d.options.KeyQuery && name != "":
		case !slices.Contains(op.query, name):
			want := "none"
			if len(op.query) > 0 {
				want = strings.Join(op.query, " or ")
			}
			return fmt.Errorf("query has the parameter %.40q, want %s", name, want)
		case len(values) > 1:
			return fmt.Errorf("query has %s %d times, want it once", name, len(values))
		}
	}
	return nil
}

// budgets answers what is left to the caller.
func (d *Door) budgets(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	select {
	case d.working <- struct{}{}:
		defer func() { <-d.working }()
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, r, http.StatusServiceUnavailable, "Too many ask about their budgets at this moment.")
		return
	}
	report, err := d.options.Reporter.Report(r.Context(), who, r.URL.Query().Get("endpoint"))
	var query *inspect.QueryError
	switch {
	case errors.As(err, &query):
		refuse(w, r, http.StatusBadRequest, err.Error())
	case err != nil:
		d.options.Log.Warn("budgets could not be read", "error", err)
		refuse(w, r, http.StatusServiceUnavailable, "The budgets cannot be read at the moment.")
	default:
		answer(w, http.StatusOK, report)
	}
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // the client is gone if this fails
}

// oneLine joins the lines of an error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	problem.Write(w, r, problem.Details{Status: status, Detail: detail})
}
