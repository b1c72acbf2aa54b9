package policy_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
)

// caller is a policy.Chooser for one subject, whatever the rule counts by.
type caller struct {
	set     *policy.Set
	subject []byte
}

func (c caller) Chosen(rule policy.RuleID) bool { return c.set.Enforces(rule, c.subject) }

func (c caller) isChosen(r policy.Rule) bool {
	for id := range policy.RuleID(c.set.Len()) {
		if reflect.DeepEqual(c.set.Rule(id), r) {
			return c.Chosen(id)
		}
	}
	panic(fmt.Sprintf("no rule %+v", r))
}

// specify is the slow and obvious twin of Set.Resolve: it reads the package documentation with
// a linear scan of the document for every subject and level.
func specify(doc policy.Document, now time.Time, endpointText, project, tier string,
	chosen func(policy.Rule) bool) map[policy.Level][]policy.Rule {
	if tier == "" {
		tier = doc.Projects[project]
	}
	find := func(s policy.Subject, endpoint, project, tier string) (found []policy.Rule) {
		for _, r := range doc.Rules {
			live := r.Expires.IsZero() || now.Before(r.Expires)
			switch {
			case !live || r.Subject != s || r.Endpoint != endpoint || r.Project != project || r.Tier != tier:
			case r.Expires.IsZero():
				found = append(found, r)
			default:
				found = append([]policy.Rule{r}, found...) // a temporary rule goes first
			}
		}
		return found
	}
	type step struct {
		level                   policy.Level
		endpoint, project, tier string
		possible                bool
	}
	known := endpointText != ""
	chains := [][]step{
		{
			{policy.LevelEndpointProject, endpointText, project, "", known && project != ""},
			{policy.LevelEndpointTier, endpointText, "", tier, known && tier != ""},
			{policy.LevelEndpoint, endpointText, "", "", known},
			{policy.LevelDefaultProject, policy.Default, project, "", known && project != ""},
			{policy.LevelDefaultTier, policy.Default, "", tier, known && tier != ""},
			{policy.LevelDefault, policy.Default, "", "", known},
			{policy.LevelUnknown, policy.UnknownEndpoint, "", "", true},
		},
		{
			{policy.LevelAllProject, policy.All, project, "", known && project != ""},
			{policy.LevelAllTier, policy.All, "", tier, known && tier != ""},
			{policy.LevelAll, policy.All, "", "", known},
		},
	}
	out := map[policy.Level][]policy.Rule{}
	for s := policy.SubjectPrincipal; s <= policy.SubjectIdentifier; s++ {
		for _, chain := range chains {
			tried, ruled := false, false
			for _, step := range chain {
				if !step.possible {
					continue
				}
				for _, r := range find(s, step.endpoint, step.project, step.tier) {
					shadow := r.Mode == policy.Shadow || r.EnforcePercent != 0 && !chosen(r)
					if ruled || shadow && tried {
						continue
					}
					out[step.level] = append(out[step.level], r)
					ruled, tried = ruled || !shadow, tried || shadow
				}
			}
		}
	}
	return out
}

// randomDocument is dense: few names, so that most levels have a rule.
func randomDocument(rng *rand.Rand, endpoints []string, start time.Time) policy.Document {
	places := append([]string{policy.Default, policy.UnknownEndpoint, policy.All, "GET /nowhere"}, endpoints...)
	tenants := []string{"a", "b", "c", "gold", "silver"}
	doc := policy.Document{Projects: map[string]string{}}
	for _, project := range tenants[:rng.IntN(len(tenants)+1)] {
		doc.Projects[project] = tenants[rng.IntN(len(tenants))]
	}
	type place struct {
		policy.Rule
		temporary bool
	}
	seen := map[place]bool{}
	for range rng.IntN(60) {
		r := policy.Rule{Endpoint: places[rng.IntN(len(places))], Subject: policy.Subject(rng.IntN(7))}
		switch rng.IntN(3) {
		case 0:
			r.Project = tenants[rng.IntN(len(tenants))]
		case 1:
			r.Tier = tenants[rng.IntN(len(tenants))]
		}
		at := place{r, rng.IntN(3) == 0}
		if seen[at] {
			continue
		}
		seen[at] = true
		r.Limit, r.Per, r.Burst = 1+rng.Int64N(50), time.Second, 1+rng.Int64N(50)
		if at.temporary {
			r.Expires = start.Add(time.Duration(rng.IntN(10)) * time.Minute)
		}
		if rng.IntN(4) == 0 {
			r.Name = fmt.Sprintf("rule %d", rng.IntN(5))
		}
		r.Mode, r.OnStoreLoss = policy.Mode(rng.IntN(2)), policy.StoreLoss(rng.IntN(3))
		if r.Mode == policy.Enforce && rng.IntN(4) == 0 {
			r.EnforcePercent = 1 + rng.Int64N(99)
		}
		doc.Rules = append(doc.Rules, r)
	}
	return doc
}

func TestResolveAgainstTheSpecification(t *testing.T) {
	const seed = 20260201
	rng := rand.New(rand.NewPCG(seed, 1))
	texts := []string{"GET /a", "GET /b/{id}", "POST /a", "PUT /c/{rest...}"}
	endpoints := table(t, texts...)
	start := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	tenants := []string{"", "a", "b", "c", "d", "gold", "silver"}
	var previous *policy.Set
	for round := range race.Fewer(500) {
		doc := randomDocument(rng, texts, start)
		set := compile(t, doc, policy.CompileOptions{Endpoints: endpoints, Now: start, Previous: previous})
		previous = set
		for range 60 {
			now := start.Add(time.Duration(rng.IntN(11)) * time.Minute)
			project, tier := tenants[rng.IntN(len(tenants))], ""
			if rng.IntN(2) == 0 {
				tier = tenants[rng.IntN(len(tenants))]
			}
			m, text := endpoint.Match{Status: endpoint.UnknownPath}, ""
			if n := rng.IntN(len(texts) + 1); n > 0 {
				text = texts[n-1]
				m = endpoint.Match{ID: lookup(t, endpoints, text), Status: endpoint.Known}
			}
			caller := caller{set, []byte{byte(rng.IntN(100))}}
			want := specify(doc, now, text, project, tier, caller.isChosen)
			got := map[policy.Level][]policy.Rule{}
			applied := set.ResolveFor(nil, now.UnixNano(), m, project, tier, caller)
			if len(applied) > policy.MaxApplied {
				t.Fatalf("Resolve returned %d rules, want %d at most", len(applied), policy.MaxApplied)
			}
			for _, a := range applied {
				r := set.Rule(a.Rule)
				if a.Shadow == set.Enforces(a.Rule, caller.subject) {
					t.Fatalf("Shadow = %v for %+v", a.Shadow, r)
				}
				got[a.Level] = append(got[a.Level], r)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, round %d: Resolve(%q, project %q, tier %q)\n got %v\nwant %v\ndocument %+v",
					seed, round, text, project, tier, got, want, doc)
			}
			checkConsidered(t, set, applied, now.UnixNano(), m, project, tier, caller)
		}
	}
}

// checkConsidered: what applies according to Consider is what Resolve says.
func checkConsidered(t *testing.T, set *policy.Set, applied []policy.Applied, now int64, m endpoint.Match,
	project, tier string, caller caller) {
	t.Helper()
	var got []policy.Applied
	for _, c := range set.ConsiderFor(now, m, project, tier, caller) {
		if c.Applies {
			got = append(got, policy.Applied{Rule: c.Rule, Level: c.Level})
			if r := set.Rule(c.Rule); r.Subject != c.Subject {
				t.Fatalf("Consider reports subject %v for %+v", c.Subject, r)
			}
		}
	}
	order := func(a, b policy.Applied) int { return int(a.Rule) - int(b.Rule) }
	want := slices.SortedFunc(slices.Values(applied), order)
	for i := range want {
		want[i].Shadow = false
	}
	if slices.SortFunc(got, order); !slices.Equal(got, want) {
		t.Fatalf("Consider applies %v, Resolve %v", got, want)
	}
}

func TestConsiderTellsWhy(t *testing.T) {
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	endpoints := table(t, "GET /v1/items")
	set := compile(t, policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /v1/items", Project: "acme", Limit: 1, Expires: now.Add(-time.Hour)},
		{Endpoint: "GET /v1/items", Limit: 2},
		{Endpoint: policy.Default, Limit: 3},
		{Endpoint: policy.All, Limit: 4},
	}}, policy.CompileOptions{Endpoints: endpoints, Now: now})
	want := []string{
		"(endpoint, project): expired at 2026-01-31T23:00:00Z",
		"(endpoint, tier): the request has no tier",
		"(endpoint): the most specific rule",
		"(default, project): no rule",
		"(default, tier): the request has no tier",
		"(default): the rule at (endpoint) is more specific",
		"(UNKNOWN): no rule",
		"(*, project): no rule",
		"(*, tier): the request has no tier",
		"(*): applies in addition",
	}
	var got []string
	for _, c := range set.Consider(now.UnixNano(), endpoint.Match{ID: 1, Status: endpoint.Known}, "acme", "") {
		got = append(got, c.Level.String()+": "+c.Why)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Consider\n got %q\nwant %q", got, want)
	}
}
