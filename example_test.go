package headgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	policysql "github.com/headgate-io/headgate/policy/sql"
)

// The pages README.md and docs/library.md show what stands between "begin" and
// "end"; a test of the command compares them.

// begin: limiter
func newLimiter() (*headgate.Limiter, error) {
	report, err := endpoint.ParseTemplate("GET /v1/reports/{report}")
	if err != nil {
		return nil, err
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{report}, endpoint.Profile{})
	if err != nil {
		return nil, err
	}
	rules, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /v1/reports/{report}", Limit: 2, Per: time.Hour},
		{Endpoint: policy.Default, Limit: 20},
	}}, policy.CompileOptions{Endpoints: endpoints})
	if rules == nil {
		return nil, problems.Err()
	}
	buckets, err := memory.New(memory.Options{})
	if err != nil {
		return nil, err
	}
	callers, err := identity.New(identity.Options{})
	if err != nil {
		return nil, err
	}
	return headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: headgate.Fixed(rules), Buckets: buckets, Identities: callers,
	})
}

// end: limiter

func Example() {
	// begin: middleware
	limiter, err := newLimiter()
	if err != nil {
		log.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "a report") })
	limited := httplimit.Handler(limiter, api, httplimit.Options{})
	// http.ListenAndServe("127.0.0.1:8080", limited)
	// end: middleware
	for _, target := range []string{"/v1/reports/1", "//v1/./reports/2", "/v1/%72eports/3", "/v1/nothing"} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
	// 404
}

func ExampleLimiter_Check() {
	limiter, err := newLimiter()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	// begin: check
	request := headgate.Request{
		Method: "GET",
		Target: "/v1/reports/7?full=1", // as it stood on the wire
		Peer:   netip.MustParseAddr("192.0.2.7"),
	}
	for range 3 {
		decision := limiter.Check(ctx, request)
		fmt.Println(decision.Allowed, decision.Reason, decision.RetryAfter.Round(time.Minute))
	}
	// end: check
	// Output:
	// true within_limits 0s
	// true within_limits 0s
	// false over_limit 30m0s
}

func Example_explain() {
	limiter, err := newLimiter()
	if err != nil {
		log.Fatal(err)
	}
	// begin: explain
	x := inspect.Explain(context.Background(), limiter, headgate.Request{
		Method: "GET", Target: "//v1/./reports/7", Peer: netip.MustParseAddr("192.0.2.7"),
	})
	fmt.Println(x.Canonical, "is", x.Endpoint)
	for _, c := range x.Considered {
		if c.Rule != "" {
			fmt.Println(c.Level, c.Rule, "-", c.Why)
		}
	}
	fmt.Println(x.Verdict.Allowed, x.Buckets[0].Remaining)
	// end: explain
	// Output:
	// /v1/reports/7 is GET /v1/reports/{report}
	// (endpoint) GET /v1/reports/{report} - the most specific rule
	// (default) default - the rule at (endpoint) is more specific
	// true 1
}

// Rules that follow a file: the middleware goes on with the last good ones
// when the file is broken.
func Example_rulesFromAFile() {
	endpoints := exampleEndpoints()
	dir, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "policies.json")
	save := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	save(`{"rules": [{"endpoint": "default", "limit": 20}]}`)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// begin: file
	source, err := file.NewSource(path)
	if err != nil {
		log.Fatal(err)
	}
	rules, err := policy.NewCache(policy.CacheOptions{
		Source:  source,
		Compile: policy.CompileOptions{Endpoints: endpoints},
		Log:     slog.New(slog.DiscardHandler), // slog.Default() in your program
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := rules.Start(ctx); err != nil { // the first load
		log.Fatal(err)
	}
	go rules.Run(ctx) // looks four times a second
	// … headgate.Options{Policies: rules, …}
	// end: file
	fmt.Println(rules.Set().Rule(0).Limit)

	save(`{"rules": [{"endpoint": "default", "limit": 50}]}`)
	fmt.Println(rules.Reload(ctx), rules.Set().Rule(0).Limit)

	save(`{"rules": [{"endpoint": "default", "limit": -1}]}`)
	fmt.Println(rules.Reload(ctx) != nil, rules.Set().Rule(0).Limit)
	// Output:
	// 20
	// <nil> 50
	// true 50
}

func exampleEndpoints() *endpoint.Table {
	report, err := endpoint.ParseTemplate("GET /v1/reports/{report}")
	if err != nil {
		log.Fatal(err)
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{report}, endpoint.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	return endpoints
}

// begin: sql
// rulesFrom follows the table "limits.policies" of any database/sql database.
func rulesFrom(db *sql.DB, endpoints *endpoint.Table) (*policy.Cache, error) {
	source, err := policysql.New(policysql.Options{
		DB:           db,
		Table:        "limits.policies",
		VersionQuery: "SELECT version FROM limits.policy_version",
	})
	if err != nil {
		return nil, err
	}
	return policy.NewCache(policy.CacheOptions{
		Source:   source,
		Compile:  policy.CompileOptions{Endpoints: endpoints},
		LastGood: "policies.last-good.json", // for a start without the database
		Log:      slog.Default(),
	})
}

// end: sql

func Example_rulesFromATable() {
	_, err := rulesFrom(nil, exampleEndpoints())
	fmt.Println(err)
	// Output: policy table: DB is nil, want one
}

func Example_apiKeys() {
	peer := netip.MustParseAddr("192.0.2.7")
	// begin: keys
	digester, err := identity.NewDigester([]byte("32 random bytes, kept like a password"))
	if err != nil {
		log.Fatal(err)
	}
	text, err := identity.NewKey() // for its holder, once
	if err != nil {
		log.Fatal(err)
	}
	var ring identity.Keyring
	err = ring.Replace([]identity.KeyRecord{
		{Digest: digester.Digest(text), Key: identity.Key{ID: "k_1", Project: "acme"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	callers, err := identity.New(identity.Options{
		Keys: &ring, Digester: digester,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		log.Fatal(err)
	}
	// end: keys
	header := http.Header{"X-Api-Key": {text}}
	fmt.Println(callers.Resolve(context.Background(), identity.Evidence{Peer: peer, Header: header}).Project)
	// Output: acme
}

// begin: doors
// handle shows what a door of your own does: translate, ask, translate back.
func handle(ctx context.Context, limiter *headgate.Limiter, r headgate.Request) error {
	decision := limiter.Check(ctx, r)
	if decision.Allowed {
		return nil
	}
	switch decision.Reason {
	case headgate.OverLimit:
		return fmt.Errorf("too many requests, retry in %v", decision.RetryAfter.Round(time.Minute))
	case headgate.StoreFailed, headgate.NoPolicies:
		return errors.New("unavailable")
	}
	return errors.New("refused: " + decision.Reason.String())
}

// end: doors

func Example_door() {
	limiter, err := newLimiter()
	if err != nil {
		log.Fatal(err)
	}
	peer := netip.MustParseAddr("192.0.2.7")
	for _, target := range []string{"/v1/reports/1", "/v1/reports/2", "/v1/reports/3", "/v1/reports/a%2Fb"} {
		fmt.Println(handle(context.Background(), limiter, headgate.Request{Method: "GET", Target: target, Peer: peer}))
	}
	// Output:
	// <nil>
	// <nil>
	// too many requests, retry in 30m0s
	// refused: invalid_target
}
