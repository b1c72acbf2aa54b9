package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// TestFollowed: where rates are to follow the API, lint says where none does, and which rule leaves too little to judge
// it by.
func TestFollowed(t *testing.T) {
	endpoints := table(t, "GET /a", "GET /b")
	a := lookup(t, endpoints, "GET /a")
	follow := policy.Followed{Endpoint: a, Floor: 102, Judged: 5}
	queue := policy.Rule{Endpoint: "GET /a", Limit: 100, Algorithm: policy.LeakyBucket}
	bucket := policy.Rule{Endpoint: policy.Default, Limit: 100}
	all := policy.Rule{Endpoint: policy.All, Limit: 100}
	gossip := policy.Rule{Endpoint: "GET /a", Limit: 100, Scope: policy.Gossip}
	places := policy.Rule{
		Endpoint: "GET /a", Limit: 9, Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay),
		Algorithm: policy.Concurrency,
	}
	strict := policy.Rule{Endpoint: "GET /a", Limit: 100, Scope: policy.Strict}
	shadow := policy.Rule{Endpoint: "GET /a", Limit: 100, Mode: policy.Shadow}
	whole := func(perSecond int64) policy.Rule {
		return policy.Rule{Endpoint: "GET /a", Limit: perSecond, Burst: 1000, Subject: policy.SubjectEndpoint}
	}
	minute := whole(3011)
	minute.Per = time.Minute
	dear := func(o *policy.CompileOptions) { o.Costs = map[endpoint.ID]int64{a: 10} }
	for name, c := range map[string]struct {
		rules  []policy.Rule
		change func(*policy.CompileOptions)
		codes  string
	}{
		"the default":            {rules: []policy.Rule{bucket}},
		"its own keeps the rate": {rules: []policy.Rule{queue, bucket}, codes: "unfollowed"},
		"another subject does not": {rules: []policy.Rule{queue,
			{Endpoint: policy.Default, Limit: 9, Subject: policy.SubjectIP}}},
		"for all endpoints":    {rules: []policy.Rule{all}, codes: "unfollowed"},
		"gossip":               {rules: []policy.Rule{gossip}, codes: "unfollowed"},
		"under way":            {rules: []policy.Rule{places}, codes: "unfollowed"},
		"under way and a rate": {rules: []policy.Rule{places, bucket}},
		"elsewhere":            {rules: []policy.Rule{{Endpoint: "GET /b", Limit: 9}}, codes: "unfollowed"},
		"in shadow":            {rules: []policy.Rule{shadow}},
		"blocked": {rules: []policy.Rule{{Endpoint: "GET /a", Mode: policy.Block}},
			codes: "unfollowed"},
		"shared": {rules: []policy.Rule{strict}},
		"shared by CL.THROTTLE": {
			rules: []policy.Rule{strict}, codes: "unfollowed",
			change: func(o *policy.CompileOptions) { o.OneByOne = true },
		},
		"a floor of 1": {
			rules: []policy.Rule{bucket}, codes: "unfollowed",
			change: func(o *policy.CompileOptions) { o.Followed[0].Floor = 1024 },
		},
		"none is followed":   {rules: []policy.Rule{all}, change: func(o *policy.CompileOptions) { o.Followed = nil }},
		"too little is left": {rules: []policy.Rule{whole(50)}, codes: "unjudged"},
		"enough is":          {rules: []policy.Rule{whole(51)}},
		"by the minute":      {rules: []policy.Rule{minute}, codes: "unjudged"},
		"dear requests":      {rules: []policy.Rule{whole(500)}, change: dear, codes: "unjudged"},
		"for each caller":    {rules: []policy.Rule{{Endpoint: "GET /a", Limit: 1}}},
	} {
		o := policy.CompileOptions{Endpoints: endpoints, Shared: true, Gossips: true,
			Followed: []policy.Followed{follow}}
		if c.change != nil {
			c.change(&o)
		}
		var found []string
		for _, p := range policy.Lint(policy.Document{Rules: c.rules}, o) {
			if p.Code == "unfollowed" || p.Code == "unjudged" {
				found = append(found, p.Code)
			}
		}
		if got := strings.Join(found, " "); got != c.codes {
			t.Errorf("%s: %q, want %q", name, got, c.codes)
		}
	}
}
