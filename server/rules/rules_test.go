package rules_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func table(t *testing.T, templates ...string) *endpoint.Table {
	t.Helper()
	var parsed []endpoint.Template
	for _, text := range templates {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, template)
	}
	table, err := endpoint.Compile(parsed, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestCheckBlamesOnlyTheNewRule(t *testing.T) {
	known := policy.CompileOptions{Endpoints: table(t, "GET /v1/items/{id}")}
	costly := policy.CompileOptions{Endpoints: known.Endpoints, Costs: map[endpoint.ID]int64{1: 10}}
	sound := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 10}}}
	broken := policy.Document{Rules: []policy.Rule{{Endpoint: "no template", Limit: 10}}}
	for name, c := range map[string]struct {
		doc  policy.Document
		rule policy.Rule
		o    policy.CompileOptions
		want string // "" for no error
	}{
		"sound": {sound,
			policy.Rule{Endpoint: "GET /v1/items/{item}", Limit: 1}, known, ""},
		"replaces its predecessor": {sound, policy.Rule{Endpoint: policy.Default, Limit: 1}, known, ""},
		"a template no endpoint has": {sound, policy.Rule{Endpoint: "GET /v1/item/{id}", Limit: 1}, known,
			`"GET /v1/items/{id}"`},
		"the same, with the endpoints unknown": {sound, policy.Rule{Endpoint: "GET /v1/item/{id}", Limit: 1},
			policy.CompileOptions{}, ""},
		"wrong in itself": {sound, policy.Rule{Endpoint: policy.All, Limit: -1}, known, "limit is -1"},
		"below a cost": {sound, policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 5}, costly,
			"10 or more"},
		"the others were broken before": {broken, policy.Rule{Endpoint: policy.Default, Limit: 1}, known, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := rules.Check(c.doc, c.rule, c.o)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Check = %v, want %q", err, c.want)
			}
			if err != nil && !errors.As(err, new(policy.Problem)) {
				t.Errorf("Check = %T, want it to unwrap to a Problem", err)
			}
		})
	}
}

func TestSetWritesOnlyWhatCompiles(t *testing.T) {
	ctx := context.Background()
	db, err := database.Open(ctx, sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o := policy.CompileOptions{Endpoints: table(t, "GET /v1/items/{id}")}
	for _, step := range []struct {
		rule  policy.Rule
		fails bool
		rules int
	}{
		{policy.Rule{Endpoint: policy.Default, Limit: 5}, false, 1},
		{policy.Rule{Endpoint: "GET /v1/nothing", Limit: 5}, true, 1},
		{policy.Rule{Endpoint: policy.Default, Limit: 7}, false, 1},
		{policy.Rule{Endpoint: policy.Default, Limit: 9, Project: "acme"}, false, 2},
	} {
		if _, err := rules.Set(ctx, db, record.Author{Actor: "test"}, step.rule, o); (err != nil) != step.fails {
			t.Errorf("Set %+v = %v, want an error: %v", step.rule, err, step.fails)
		}
		doc, _, err := db.Load(ctx)
		if err != nil || len(doc.Rules) != step.rules {
			t.Errorf("after Set %+v there are %d rules, %v, want %d", step.rule, len(doc.Rules), err, step.rules)
		}
	}
}

func TestWithLeavesItsArgumentAlone(t *testing.T) {
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1}}}
	changed, at := rules.With(doc, policy.Rule{Endpoint: policy.Default, Limit: 2})
	if at != 0 || changed.Rules[0].Limit != 2 || doc.Rules[0].Limit != 1 {
		t.Errorf("With = %v at %d, and left %v", changed.Rules, at, doc.Rules)
	}
}
