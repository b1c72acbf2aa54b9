package admin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/usage"
)

// site is a door before a real database, a real limiter and real rules.
type site struct {
	testing.TB
	door *admin.Door
	db   *database.Store
	path string // of the database
	log  *bytes.Buffer
	now  time.Time // of the door

	tokens   map[string]string // texts by name
	requests *strings.Replacer // of {first} and {second} by the IDs of open requests for a higher limit

	mu   sync.Mutex
	seen map[string]bool // guarded by mu; operations that were called with success
}

// theDocument is openapi.yaml as a well-kept library reads it.
var theDocument = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(admin.Description)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

func document(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := theDocument()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// fileToken is the token of the file.
const fileToken = "a-token-that-people-chose"

// scoredCallers are callers of whom two have scores: one by its key, and one by its address.
func scoredCallers() (*anomaly.Table, *activity.Scored) {
	scores, scored := anomaly.New(0), activity.NewScored(activity.NewNames())
	scores.Use(&anomaly.Settings{Window: time.Hour, Weights: anomaly.DefaultWeights,
		Tiers: []anomaly.Tier{{From: 40, Name: "suspect"}}})
	for _, who := range []identity.Principal{
		{Kind: identity.APIKey, Project: "acme", ID: "scanner"},
		{Client: netip.MustParseAddr("192.0.2.99"), Prefix: netip.MustParsePrefix("192.0.2.99/32")},
		{Kind: identity.APIKey, Project: "acme", ID: "like others"},
	} {
		caller, now := scores.Caller(&who), time.Now().UnixNano()
		scores.Asked(now-int64(time.Hour), caller, anomaly.Request{})
		for range 40 {
			scores.Asked(now, caller,
				anomaly.Request{Unknown: who.ID != "like others", Disguised: who.ID == "scanner"})
		}
		scored.Note(&who, scores.Score(now, caller))
	}
	return scores, scored
}

func newSite(t testing.TB, change ...func(*admin.Options)) *site {
	t.Helper()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "headgate.db")
	db, err := database.Open(ctx, sqlitetest.New(t, path))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := &site{
		TB:     t,
		db:     db,
		path:   path,
		log:    &bytes.Buffer{},
		tokens: map[string]string{},
		seen:   map[string]bool{},
		now:    time.Now(),
	}
	for _, rule := range []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 10}, {Endpoint: "default", Limit: 50},
		{Endpoint: "UNKNOWN", Limit: 5}} {
		s.set(rule)
	}
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "POST /v1/login"} {
		template, err := endpoint.ParseTemplate(text)
		must(t, err)
		templates = append(templates, template)
	}
	endpoints, err := endpoint.Compile(templates, endpoint.Profile{})
	must(t, err)
	compile := policy.CompileOptions{Endpoints: endpoints}
	rules, err := policy.NewCache(policy.CacheOptions{Source: db, Compile: compile})
	must(t, err)
	must(t, rules.Start(ctx))
	buckets, err := memory.New(memory.Options{})
	must(t, err)
	who, err := identity.New(identity.Options{})
	must(t, err)
	scores, scored := scoredCallers()
	limiter, err := headgate.New(headgate.Options{Endpoints: endpoints, Policies: rules, Buckets: buckets,
		Identities: who, Scores: scores, Scored: scored.Note})
	must(t, err)
	used, err := usage.New(usage.Options{MaxCallers: 10})
	must(t, err)
	secret, err := identity.NewDigester(bytes.Repeat([]byte("s"), 32))
	must(t, err)
	keys := keyStore{db, secret}
	key, _, err := keys.CreateKey(ctx, record.NewAPIKey{Project: "acme", Name: "a sample"})
	must(t, err)
	s.requests = strings.NewReplacer("{first}", s.file(), "{second}", s.file(), "{key}", key.ID)
	o := admin.Options{
		Limiter: limiter, Policies: rules, Scored: scored,
		Database: func(context.Context) (admin.Rules, error) { return db, nil },
		Compare:  database.Compare, Compile: func() policy.CompileOptions { return compile },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			_, _ = io.WriteString(w, "headgate_up 1\n")
		}),
		Fleet: func(context.Context) (fleet.Report, error) {
			at := time.Now().UTC()
			return fleet.Report{At: at, Version: "v", Number: 1, Count: map[fleet.State]int{"ok": 1},
				Replicas: []fleet.Replica{{
					Name:    "a",
					Program: "test",
					Started: at,
					Version: "v",
					Number:  1,
					Loaded:  at,
					Seen:    at,
					State:   "ok",
				}}}, nil
		},
		Budgets: developers.Reporter{Limiter: limiter, Policies: rules, Usage: used}, LimitRequests: db,
		Ready: func() error { return nil }, Audit: db, TokenStore: db, KeyStore: keys, Calls: db,
		FindKey: func(context.Context, string) (string, string, error) { return "", "", record.ErrNotFound },
		Log:     slog.New(slog.NewTextHandler(s.log, nil)),
		Access: admin.Access{
			Token:       fileToken,
			TokenName:   "ops.token",
			NeedToken:   true,
			KeepCalls:   24 * time.Hour,
			MostCalls:   1000,
			MostChanges: 1000,
		},
		Tokens: s.find,
		Now:    func() time.Time { return s.now },
	}
	o.Usage = usage.NewDays(func(who *identity.Principal) string { return "3f1c0a2b4d5e6f70" }, o.Now)
	o.Activity, err = activity.New(activity.Options{})
	must(t, err)
	o.Try = func(ctx context.Context, reveal bool, changes []func(*policy.Document)) (*activity.Trial,
		[]activity.Result, error) {
		trial := activity.NewTrial(o.Activity.Sample(), endpoints, reveal)
		var results []activity.Result
		for _, change := range append([]func(*policy.Document){func(*policy.Document) {}}, changes...) {
			doc, _, err := db.Load(ctx)
			must(t, err)
			change(&doc)
			set, problems := policy.Compile(doc, compile)
			if set == nil {
				return nil, nil, problems.Err()
			}
			l, err := headgate.New(headgate.Options{
				Endpoints: endpoints,
				Policies:  headgate.Fixed(set),
				Now:       trial.Clock,
			})
			must(t, err)
			result, err := trial.Run(ctx, l)
			must(t, err)
			results = append(results, result)
		}
		return trial, results, nil
	}
	for _, f := range change {
		f(&o)
	}
	s.door, err = admin.New(o)
	must(t, err)
	return s
}

// keyStore is where keys are kept, as a gateway makes them.
type keyStore struct {
	*database.Store
	secret *identity.Digester
}

func (k keyStore) CreateKey(ctx context.Context, n record.NewAPIKey) (record.APIKey, string, error) {
	return k.Store.CreateKey(ctx, k.secret, n)
}

func (k keyStore) RotateKey(ctx context.Context, r record.Rotation) (record.APIKey, string, error) {
	return k.Store.RotateKey(ctx, k.secret, r, identity.KeyFormat{})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) set(rule policy.Rule) {
	s.Helper()
	_, err := s.db.Apply(context.Background(), record.Author{Actor: "tester"}, record.Edit{Set: []policy.Rule{rule}})
	must(s, err)
}

// file files a request for a higher limit and returns its ID.
func (s *site) file() string {
	s.Helper()
	filed, err := s.db.File(context.Background(),
		record.LimitRequest{Actor: "api_key k", Claimed: "Ann", Project: "acme", Reason: "the launch",
			Asked: record.Asked{Endpoint: "GET /v1/items/{id}", Limit: 40, Per: time.Second, Burst: 60,
				For: time.Hour}}, 10)
	must(s, err)
	return filed.ID
}

// find is a TokenFinder that always knows the newest.
func (s *site) find(digest [sha256.Size]byte) (record.AdminToken, bool) {
	records, _, err := s.db.AdminTokens().Load(context.Background())
	must(s, err)
	for _, r := range records {
		if r.Digest == digest {
			return r.AdminToken, true
		}
	}
	return record.AdminToken{}, false
}

// token makes a token with roles, named after them, or returns it again.
func (s *site) token(roles ...record.Role) string {
	s.Helper()
	name := ""
	for _, r := range roles {
		name += string(r)
	}
	if s.tokens[name] == "" {
		_, text, err := s.db.CreateAdminToken(context.Background(), record.NewAdminToken{Name: name, Roles: roles})
		must(s, err)
		s.tokens[name] = text
	}
	return s.tokens[name]
}

// all is a token with every role.
func (s *site) all() string { return s.token(record.Roles...) }

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem() (p admin.Problem) {
	_ = json.Unmarshal([]byte(a.body), &p)
	return p
}

func (a answer) kind() string { return strings.TrimPrefix(a.problem().Type, "urn:headgate:problem:") }

// call makes a request with a token, and checks request and answer against the
// document. header is names and values.
func (s *site) call(token, method, target, body string, header ...string) answer {
	s.Helper()
	r := httptest.NewRequest(method, s.requests.Replace(target), strings.NewReader(body))
	r.Host = "127.0.0.1:8081"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.door.ServeHTTP(w, r)
	got := answer{w.Code, w.Header(), w.Body.String()}
	s.check(r, body, got)
	return got
}

// check holds request and answer against the document. What was refused may have
// been wrong; what was served must not be.
func (s *site) check(r *http.Request, body string, got answer) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	route, parameters := s.route(r)
	if route == nil {
		if got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed &&
			got.status != http.StatusUnauthorized && got.status != http.StatusForbidden {
			s.Errorf("%s %s = %d, and the document has no such operation", r.Method, r.URL, got.status)
		}
		return
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
		}}
	if got.status < 300 {
		s.seen[route.Operation.OperationID] = true
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			s.Errorf("%s %s was served, and the document does not allow it: %v", r.Method, r.URL, err)
		}
	}
	if r.Method == http.MethodHead {
		return
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: got.status, Header: got.header,
		Body: io.NopCloser(strings.NewReader(got.body)), Options: in.Options,
	})
	if err != nil {
		s.Errorf("%s %s = %d %s\nis not what the document says: %v", r.Method, r.URL, got.status, got.body, err)
	}
}

// route finds the operation of a request in the document.
func (s *site) route(r *http.Request) (*routers.Route, map[string]string) {
	s.Helper()
	mux := http.NewServeMux()
	var found *routers.Route
	parameters := map[string]string{}
	for path, item := range document(s).Paths.Map() {
		for method, op := range item.Operations() {
			mux.HandleFunc(method+" "+path, func(_ http.ResponseWriter, r *http.Request) {
				found = &routers.Route{Spec: document(s), Path: path, PathItem: item, Method: method, Operation: op}
				for _, p := range op.Parameters {
					if p.Value.In == "path" {
						parameters[p.Value.Name] = r.PathValue(p.Value.Name)
					}
				}
			})
		}
	}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	return found, parameters
}
