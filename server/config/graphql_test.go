package config_test

import (
	"strings"
	"testing"
)

// TestGraphQLNamesEveryFault: of one entry all at once, each with its value and what would be right.
func TestGraphQLNamesEveryFault(t *testing.T) {
	conf, err := read(t, whole+`
graphql:
  - endpoints: [PUT /graphql, POST /v1/graphql, POST /v1/graphql]
    max_cost: -1
    size_arguments: [first, ""]
    max_depth: 501
    max_breadth: 100001
    max_tokens: -5
    costs: {User: -1, Report: 2e9, Point: 0.5, Room: .nan}
    list_sizes: {Query.tags: 0, Query.users: 5}
    list_size: -3
    introspection: perhaps
    introspection_cost: -2
    persisted: pass
    persisted_cost: 2000000000
    upgrades: count
    batches: pass
    max_parts: 1001
    max_bytes: 1B
    read_timeout: 11m
  - max_cost: 10
    persisted_cost: 11
  - max_cost: -1
`)
	if err != nil {
		t.Fatal(err)
	}
	err = conf.Complete()
	if err == nil {
		t.Fatal("Complete takes settings that are all wrong")
	}
	for _, want := range []string{
		`endpoints is "PUT /graphql", want one with POST or GET`,
		`endpoints is "POST /v1/graphql", want each endpoint once: graphql[0].endpoints has it`,
		`schema is "", want the file of the schema`,
		`max_cost is "-1", want 1 to 1000000000`,
		`size_arguments[1] is "", want the name of an argument`,
		`max_depth is "501", want 1 to 500`,
		`max_breadth is "100001", want 1 to 100000`,
		`max_tokens is "-5", want 1 to 100000`,
		`costs[User] is "-1", want 0 to 1000000000`,
		`costs[Report] is "2e+09", want 0 to`,
		`costs[Room] is "NaN", want 0 to`,
		`list_sizes[Query.tags] is "0", want 1 to 1000000000`,
		`list_size is "-3", want 1 to`,
		`introspection is "perhaps", want count or refuse`,
		`introspection_cost is "-2", want 1 to`,
		`persisted is "pass", want refuse or count`,
		`persisted_cost is "2000000000", want 1 to`,
		`upgrades is "count", want refuse or pass`,
		`batches is "pass", want count or refuse`,
		`max_parts is "1001", want 1 to 1000`,
		`max_bytes is "1B", want 64B to 64MiB`,
		`read_timeout is "11m0s", want 1ms to 10m0s`,
	} {
		if !strings.Contains(err.Error(), "graphql[0]."+want) {
			t.Errorf("%s is not said of\n%v", want, err)
		}
	}
	for _, want := range []string{`endpoints is "", want an endpoint at least`, `persisted_cost is "11", want 10 or less`} {
		if !strings.Contains(err.Error(), "graphql[1]."+want) {
			t.Errorf("%s is not said of\n%v", want, err)
		}
	}
	for _, right := range []string{"Point", "Query.users", "graphql[2].persisted_cost"} {
		if strings.Contains(err.Error(), right) {
			t.Errorf("%s is right, but %v", right, err)
		}
	}
}
