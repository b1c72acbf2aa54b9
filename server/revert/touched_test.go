package revert

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Each case changes rules, written as one line: "endpoint[@project|#tier] limit".
func TestTouched(t *testing.T) {
	endpoints := table(t, "GET /a", "GET /b", "GET /c")
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	cases := []struct {
		name     string
		old, new string
		tiers    [2]map[string]string
		want     string // paths, and UNKNOWN; those where the rules became looser in ()
	}{
		{"one endpoint", "GET /a 5, default 9", "GET /a 1, default 9", none, "/a"},
		{"the same", "GET /a 5", "GET /a 5", none, ""},
		{"a new rule", "default 9", "default 9, GET /b 1", none, "/b"},
		{"a rule that goes", "default 9, GET /b 1", "default 9", none, "(/b)"},
		{"default, where no other rule is", "default 9, GET /a 5", "default 1, GET /a 5", none, "/b /c"},
		{"all together", "*  9, GET /a 5", "* 1, GET /a 5", none, "/a /b /c"},
		{"UNKNOWN, with a default", "default 9, UNKNOWN 5", "default 9, UNKNOWN 1", none, "UNKNOWN"},
		{"UNKNOWN, the last resort", "GET /a 9, UNKNOWN 5", "GET /a 9, UNKNOWN 1", none, "UNKNOWN /b /c"},
		{"a project's", "GET /a 9", "GET /a 9, GET /a@p 1", none, "/a"},
		{"a project's default, hidden nowhere", "default 9", "default 9, default@p 1", none, "/a /b /c"},
		{"a project's default beside an endpoint's rule", "GET /a 9", "GET /a 9, default@p 1", none, "/b /c"},
		{"everybody's, which a project's hides for it alone", "GET /a@p 1, GET /a 9",
			"GET /a@p 1, GET /a 8", none, "/a"},
		{"a tier's", "GET /a 9, GET /a#t 5", "GET /a 9, GET /a#t 1", none, "/a"},
		{"a project to a tier", "GET /a 9, GET /a#t 5", "GET /a 9, GET /a#t 5",
			[2]map[string]string{nil, {"p": "t"}}, "/a"},
		{"a project to a tier without rules", "GET /a 9", "GET /a 9", [2]map[string]string{nil, {"p": "t"}}, ""},
		{"looser", "GET /a 5", "GET /a 6", none, "(/a)"},
		{"looser for everybody, tighter for one", "GET /a 5, GET /a@p 9", "GET /a 6, GET /a@p 8", none, "/a"},
		{"looser for one", "GET /a 5", "GET /a 5, GET /a@p 6", none, "(/a)"},
		{"one of two goes", "GET /a 5, * 9", "GET /a 5", none, "(/a) (/b) (/c)"},
		{"one for each that becomes one for all", "GET /a 5", "* 6", none, "/a /b /c"},
		{"a template that no endpoint has", "GET /a 9", "GET /a 9, GET /z 1", none, ""},
	}
	for _, c := range cases {
		old, new := document(c.old, c.tiers[0]), document(c.new, c.tiers[1])
		ids, tighter := touched(changes(old, new), compile(t, endpoints, old), compile(t, endpoints, new), endpoints,
			now.UnixNano())
		var got []string
		for _, id := range ids {
			if id == endpoint.Unknown {
				got = append(got, "UNKNOWN")
				continue
			}
			path := strings.TrimPrefix(endpoints.Template(id).String(), "GET ")
			if !tighter[id] {
				path = "(" + path + ")"
			}
			got = append(got, path)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: touched %v, want %s", c.name, got, c.want)
		}
	}
}

var none [2]map[string]string

func document(text string, tiers map[string]string) policy.Document {
	doc := policy.Document{Projects: tiers}
	for _, line := range strings.Split(text, ", ") {
		i := strings.LastIndexByte(line, ' ')
		r := policy.Rule{Endpoint: strings.TrimSpace(line[:i]), Limit: int64(line[i+1] - '0')}
		if e, project, ok := strings.Cut(r.Endpoint, "@"); ok {
			r.Endpoint, r.Project = e, project
		}
		if e, tier, ok := strings.Cut(r.Endpoint, "#"); ok {
			r.Endpoint, r.Tier = e, tier
		}
		doc.Rules = append(doc.Rules, r)
	}
	return doc
}

// changes is what leads from one document to another, as a store reports it.
func changes(old, new policy.Document) (list []record.Change) {
	find := func(in []policy.Rule, k record.RuleKey) *policy.Rule {
		if i := slices.IndexFunc(in, func(r policy.Rule) bool { return record.KeyOf(r) == k }); i >= 0 {
			return &in[i]
		}
		return nil
	}
	for i, r := range new.Rules {
		if before := find(old.Rules, record.KeyOf(r)); before == nil || *before != r {
			list = append(list, record.Change{Before: before, After: &new.Rules[i]})
		}
	}
	for i, r := range old.Rules {
		if find(new.Rules, record.KeyOf(r)) == nil {
			list = append(list, record.Change{Before: &old.Rules[i]})
		}
	}
	for project, tier := range new.Projects {
		if old.Projects[project] != tier {
			list = append(list, record.Change{Project: project, TierBefore: old.Projects[project], TierAfter: tier})
		}
	}
	return list
}

// Too many tenants to look at: everything counts as touched.
func TestTouchedIsBounded(t *testing.T) {
	endpoints := table(t, "GET /a", "GET /b", "GET /c")
	doc := document("GET /a 5", nil)
	set := compile(t, endpoints, doc)
	var many []record.Change
	for i := range mostResolved/4 + 1 {
		many = append(many, record.Change{After: &policy.Rule{Endpoint: "default",
			Project: string(rune(i + 1<<17)), Limit: 1}})
	}
	if ids, _ := touched(many, set, set, endpoints, 0); len(ids) != 4 {
		t.Errorf("touched %v, want all four", ids)
	}
	if ids, _ := touched(many[:1000], set, set, endpoints, 0); len(ids) != 0 {
		t.Errorf("touched %v, want none: nothing else applies", ids)
	}
}
