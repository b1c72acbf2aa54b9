package policy_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// exampleTable is the table of two endpoints.
func exampleTable() *endpoint.Table {
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "POST /v1/login"} {
		t, err := endpoint.ParseTemplate(text)
		if err != nil {
			log.Fatal(err)
		}
		templates = append(templates, t)
	}
	endpoints, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	return endpoints
}

func ExampleSet_Resolve() {
	endpoints := exampleTable()
	set, problems := policy.Compile(policy.Document{
		Rules: []policy.Rule{
			{Endpoint: "GET /v1/items/{id}", Limit: 10},
			{Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 100},
			{Endpoint: "POST /v1/login", Subject: policy.SubjectIP, Limit: 5, Per: time.Minute},
			{Endpoint: policy.Default, Limit: 50},
			{Endpoint: policy.UnknownEndpoint, Limit: 1},
		},
	}, policy.CompileOptions{Endpoints: endpoints})
	if set == nil {
		log.Fatal(problems)
	}
	now := time.Now().UnixNano()
	for _, request := range []struct{ method, path, project string }{
		{"GET", "/v1/items/7", "acme"},
		{"GET", "/v1/items/7", "umbrella"},
		{"POST", "/v1/login", ""},
		{"GET", "/nowhere", ""},
	} {
		fmt.Printf("%s %s of %q\n", request.method, request.path, request.project)
		m := endpoints.Match(request.method, request.path)
		for _, a := range set.Resolve(nil, now, m, request.project, "") {
			r := set.Rule(a.Rule)
			fmt.Printf("  %v %s: %d per %v\n", a.Level, r.Title(), r.Limit, r.Per)
		}
	}
	// Output:
	// GET /v1/items/7 of "acme"
	//   (endpoint, project) GET /v1/items/{id}: 100 per 1s
	// GET /v1/items/7 of "umbrella"
	//   (endpoint) GET /v1/items/{id}: 10 per 1s
	// POST /v1/login of ""
	//   (endpoint) POST /v1/login per ip: 5 per 1m0s
	//   (default) default: 50 per 1s
	// GET /nowhere of ""
	//   (UNKNOWN) UNKNOWN: 1 per 1s
}

func ExampleLint() {
	problems := policy.Lint(policy.Document{
		Source: "rules.json",
		Rules: []policy.Rule{
			{Endpoint: "GET /v1/itmes/{id}", Limit: 10},
			{Endpoint: policy.Default, Limit: -1},
		},
	}, policy.CompileOptions{Endpoints: exampleTable()})
	fmt.Println(problems)
	// Output:
	// warning: rules.json: rules[0] (GET /v1/itmes/{id}): endpoint is "GET /v1/itmes/{id}", want the template of an endpoint; the closest is "GET /v1/items/{id}"
	// error: rules.json: rules[1] (default): limit is -1, want 1 or more
	// warning: rules.json: rules: UNKNOWN is missing, want a rule with endpoint "UNKNOWN"; requests that match no endpoint have no limit
}

func ExampleSet_Consider() {
	endpoints := exampleTable()
	set, _ := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: "POST /v1/login", Limit: 5},
		{Endpoint: policy.Default, Limit: 50},
	}}, policy.CompileOptions{Endpoints: endpoints})
	for _, c := range set.Consider(0, endpoints.Match("POST", "/v1/login"), "", "") {
		if c.Found {
			fmt.Println(c.Level, c.Applies, c.Why)
		}
	}
	// Output:
	// (endpoint) true the most specific rule
	// (default) false the rule at (endpoint) is more specific
}

// constant is a Source that never changes.
type constant policy.Document

func (c constant) Version(context.Context) (string, error) { return "1", nil }

func (c constant) Load(context.Context) (policy.Document, string, error) {
	return policy.Document(c), "1", nil
}

func ExampleCache() {
	cache, err := policy.NewCache(policy.CacheOptions{
		Source:  constant{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 10}}},
		Compile: policy.CompileOptions{Endpoints: exampleTable()},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := cache.Start(ctx); err != nil {
		log.Fatal(err)
	}
	go cache.Run(ctx)
	fmt.Println(cache.Status().Rules, "rule in force")
	// Output: 1 rule in force
}
