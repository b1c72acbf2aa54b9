package policy_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

func TestClassesBy(t *testing.T) {
	table := table(t, "GET /a", "GET /b")
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5}},
		Projects: map[string]string{"acme": "gold"}}
	at := func(path string) endpoint.ID { m := table.Match("GET", path); return m.ID }
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: table, ClassesBy: policy.ClassesBy{
		Endpoints: map[endpoint.ID]policy.Class{at("/a"): policy.Low},
		Tiers:     map[string]policy.Class{"gold": policy.High},
	}})
	if set == nil {
		t.Fatal(problems)
	}
	for id, want := range map[endpoint.ID]policy.Class{at("/a"): policy.Low, at("/b"): 0, endpoint.Unknown: 0} {
		if got := set.ClassOfEndpoint(id); got != want {
			t.Errorf("of endpoint %d: %v, want %v", id, got, want)
		}
	}
	for tier, want := range map[[2]string]policy.Class{
		{"acme", ""}: policy.High, {"acme", "silver"}: policy.Unclassed, {"", "gold"}: policy.High,
		{"other", ""}: policy.Unclassed, {"", ""}: policy.Unclassed,
	} {
		if got := set.ClassOfTier(tier[0], tier[1]); got != want {
			t.Errorf("of project and tier %q: %v, want %v", tier, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { set.ClassOfTier("acme", "") }); n != 0 {
		t.Errorf("ClassOfTier allocates %v times, want 0", n)
	}
	if !set.Prioritises() || set.Places() == nil || len(set.Places().Shares) != 3 {
		t.Errorf("places are shared by %+v, want high, normal and low", set.Places())
	}
	plain, _ := policy.Compile(doc, policy.CompileOptions{Endpoints: table})
	if plain.Prioritises() || plain.ClassOfTier("acme", "") != policy.Unclassed || plain.ClassClaim() != "" {
		t.Error("without ClassesBy something is said of classes")
	}
	claimed, _ := policy.Compile(doc, policy.CompileOptions{Endpoints: table,
		ClassesBy: policy.ClassesBy{Claim: "urgency"}})
	if len(claimed.Places().Shares) != 4 {
		t.Errorf("a claim may say every class, and places are shared by %+v", claimed.Places())
	}
}

func TestWrongClassesBy(t *testing.T) {
	table := table(t, "GET /a")
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5}}}
	for want, by := range map[string]policy.ClassesBy{
		"priority: endpoints is 2, want an endpoint of the table, 0 to 1": {
			Endpoints: map[endpoint.ID]policy.Class{2: policy.Low}},
		"priority: endpoints[GET /a] is 0, want a class": {Endpoints: map[endpoint.ID]policy.Class{1: 0}},
		"priority: tiers[gold] is 5, want a class":       {Tiers: map[string]policy.Class{"gold": policy.Low + 1}},
		"the name of a tier":                             {Tiers: map[string]policy.Class{"": policy.Low}},
	} {
		set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: table, ClassesBy: by})
		if err := problems.Err(); set != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", by, err, want)
		}
	}
}

// TestNotesOnClassesBy: who says classes is told that nothing goes by them, and that nobody has such a tier.
func TestNotesOnClassesBy(t *testing.T) {
	table := table(t, "GET /a")
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 5}, {Endpoint: policy.UnknownEndpoint, Limit: 5},
		{Endpoint: policy.Default, Tier: "gold", Limit: 50}}
	shared := policy.Rule{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectEndpoint, Priority: "high:20,low:10"}
	noted := func(by policy.ClassesBy, rules ...policy.Rule) (codes string) {
		problems := policy.Lint(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table, ClassesBy: by})
		for _, p := range problems {
			if strings.Contains(p.Code, "priority") || strings.Contains(p.Code, "class") || p.Where == "priority" {
				codes += " " + p.Code
			}
		}
		return codes
	}
	gold := policy.ClassesBy{Tiers: map[string]policy.Class{"gold": policy.High}}
	for _, c := range []struct {
		by    policy.ClassesBy
		rules []policy.Rule
		want  string
	}{
		{gold, rules, " priority_unused"},
		{gold, append(rules, shared), " class_without_rule"}, // low
		{policy.ClassesBy{Claim: "urgency"}, append(rules, shared), ""},
		{policy.ClassesBy{Claim: "c", Tiers: map[string]policy.Class{"golf": policy.High}}, append(rules, shared),
			" tier_unused"},
		{policy.ClassesBy{}, append(rules, shared), " class_without_rule class_without_rule"},
	} {
		if got := noted(c.by, c.rules...); got != c.want {
			t.Errorf("%+v: noted are%s, want%s", c.by, got, c.want)
		}
	}
}
