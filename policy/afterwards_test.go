package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

func TestAnswers(t *testing.T) {
	for text, want := range map[string]string{"401": "401", "4xx,401": "401,4xx", "403 401, 401": "401,403",
		"5xx": "5xx"} {
		var a policy.Answers
		if err := a.UnmarshalText([]byte(text)); err != nil || string(a) != want {
			t.Errorf("%q is read as %q, %v, want %q", text, a, err, want)
		}
	}
	for _, text := range []string{",", "199", "6xx", "404;405", strings.Repeat("401 ", 3) + strings.Repeat("4", 300)} {
		a := policy.Answers("404")
		if err := a.UnmarshalText([]byte(text)); err == nil || a != "404" {
			t.Errorf("%q is read as %q, want an error", text, a)
		}
	}
}

func TestPenalties(t *testing.T) {
	for text, want := range map[string]policy.PenaltyTerms{
		"10 in 1m for 15m": {After: 10, Within: time.Minute, For: 15 * time.Minute,
			UpTo: 24 * time.Hour},
		"1 in 90s for 1s up to 1s": {After: 1, Within: 90 * time.Second, For: time.Second,
			UpTo: time.Second},
		"3 in 1h for 48h": {After: 3, Within: time.Hour, For: 48 * time.Hour,
			UpTo: 48 * time.Hour},
		"10 in 1m for 15m up to 6h with addresses": {After: 10, Within: time.Minute, For: 15 * time.Minute,
			UpTo: 6 * time.Hour, Addresses: true},
		"10 in 1m  for 15m with addresses": {After: 10, Within: time.Minute, For: 15 * time.Minute,
			UpTo: 24 * time.Hour, Addresses: true},
	} {
		var p policy.Penalty
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := p.Terms(); err != nil || *got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"10", "10 in 1m", "10 in 1m for", "0 in 1m for 15m", "10001 in 1m for 15m", "x in 1m for 1m",
		"10 in 500ms for 1m", "10 in 25h for 1m",
		"10 in 1m for 0s", "10 in 1m for 1500ms", "10 in 1m for 1h up to 30m", "10 in 1m for 1h up to 721h",
		"10 in 1m for 1h up 6h", "10 in 1m for 1h with address",
		"10 in 1m for 1h with addresses up to 6h", "10 for 1m in 1h", "10 in 1m for 2562048h",
	} {
		var p policy.Penalty
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %q, want an error", text, p)
		}
	}
}

// FuzzAfterwards: what is read is written in one way, which is read to the same.
func FuzzAfterwards(f *testing.F) {
	for _, seed := range []string{"401,403", "4xx 5xx", "10 in 1m for 15m up to 6h with addresses", "3 in 90s for 48h",
		"7 in 1h1s for 1m0s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a, again policy.Answers
		if a.UnmarshalText([]byte(text)) == nil && a != "" {
			if statuses, err := a.Statuses(); err != nil || statuses == nil || again.UnmarshalText([]byte(a)) != nil ||
				again != a || len(a) > 255 {
				t.Errorf("%q is written %q, and read %q, %v", text, a, again, err)
			}
		}
		var p, same policy.Penalty
		if p.UnmarshalText([]byte(text)) == nil && p != "" {
			terms, err := p.Terms()
			if err != nil || terms.Penalty() != p || same.UnmarshalText([]byte(p)) != nil || same != p ||
				terms.UpTo < terms.For || terms.For < time.Second || len(p) > 255 {
				t.Errorf("%q is written %q, and read %q, %v", text, p, same, err)
			}
		}
	})
}

// A guard that counts only some answers makes no rule void that counts all of them, and guards none.
func TestCountedRulesBesideOthers(t *testing.T) {
	endpoints := table(t, "POST /v1/login", "GET /v1/items/{id}")
	login := policy.Rule{Endpoint: "POST /v1/login", Limit: 5, Per: time.Minute, CountWhen: "401,403"}
	rest := []policy.Rule{{Endpoint: policy.Default, Limit: 20}, {Endpoint: policy.UnknownEndpoint, Limit: 5}}
	codes := func(rules ...policy.Rule) string {
		var found []string
		for _, p := range policy.Lint(policy.Document{Rules: append(rules, rest...)},
			policy.CompileOptions{Endpoints: endpoints, Shared: true}) {
			if p.Rule >= 0 && p.Rule < len(rules) && p.Code != "login_open" && p.Code != "scattered" {
				found = append(found, p.Code)
			}
		}
		return strings.Join(found, " ")
	}
	guard := func(r policy.Rule) policy.Rule { r.Endpoint, r.Limit, r.Burst = policy.All, 4, 5; return r }
	for name, c := range map[string]struct {
		rules []policy.Rule
		want  string
	}{
		"alone": {[]policy.Rule{login}, "some_answers"},
		"a guard by address": {[]policy.Rule{login,
			{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectIP}}, ""},
		"a guard in shadow": {[]policy.Rule{login,
			{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectIP, Mode: policy.Shadow}}, "some_answers"},
		"a guard that counts some": {[]policy.Rule{login, {Endpoint: policy.All, Limit: 100, CountWhen: "4xx"}},
			"some_answers some_answers"},
		"by another subject": {[]policy.Rule{login,
			{Endpoint: "POST /v1/login", Limit: 100, Subject: policy.SubjectIP}}, ""},
		"of the default, other subject": {[]policy.Rule{login,
			{Endpoint: policy.Default, Limit: 100, Subject: policy.SubjectIP}}, ""},
		"a tighter one that counts some": {[]policy.Rule{{Endpoint: "POST /v1/login", Limit: 50},
			guard(policy.Rule{CountWhen: "4xx"})}, "some_answers"},
		"a tighter one that counts all": {[]policy.Rule{{Endpoint: "POST /v1/login", Limit: 50}, guard(policy.Rule{})},
			"void"},
		"allow": {[]policy.Rule{{Endpoint: "POST /v1/login", Mode: policy.Allow, CountWhen: "4xx",
			Penalty: "10 in 1m for 15m"}}, "count_when penalty"},
		"in another order": {[]policy.Rule{{Endpoint: "POST /v1/login", Limit: 5, CountWhen: "403,401"}},
			"count_when"},
		"a penalty written otherwise": {[]policy.Rule{{Endpoint: "POST /v1/login", Limit: 5,
			Penalty: "10 in 60s for 15m"}}, "penalty"},
		"penalties": {[]policy.Rule{{
			Endpoint: "POST /v1/login",
			Limit:    5,
			Penalty:  "10 in 1m for 15m with addresses",
			Scope:    policy.Strict,
			Mode:     policy.Shadow,
		}},
			"penalty_in_shadow penalty_for_addresses penalty_per_replica"},
	} {
		if got := codes(c.rules...); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	set := compile(t,
		policy.Document{Rules: append([]policy.Rule{login, {Endpoint: policy.All, Limit: 100,
			Penalty: "10 in 1m for 15m"}}, rest...)}, policy.CompileOptions{Endpoints: endpoints})
	if !set.CountsAnswers() || !set.Penalises() {
		t.Error("the set says that no rule counts answers, or has a penalty")
	}
	applied := set.Resolve(nil, 0, endpoint.Match{ID: lookup(t, endpoints, "POST /v1/login"), Status: endpoint.Known},
		"", "")
	if len(applied) != 2 || !set.CountWhen(applied[0].Rule).Has(403) || set.CountWhen(applied[0].Rule).Has(404) ||
		set.CountWhen(applied[1].Rule) != nil ||
		set.PenaltyOf(applied[0].Rule) != nil || set.PenaltyOf(applied[1].Rule).After != 10 ||
		set.Rule(applied[0].Rule).CountWhen != "401,403" || set.Rule(applied[1].Rule).Penalty != "10 in 1m for 15m" {
		t.Errorf("the rules of the endpoint are %v", applied)
	}
	plain := policy.Document{Rules: rest}.Fingerprint()
	seen := map[string]bool{plain: true}
	for _, r := range []policy.Rule{{CountWhen: "401"}, {Penalty: "10 in 1m for 15m"},
		{CountWhen: "401", Penalty: "10 in 1m for 15m"}} {
		r.Endpoint, r.Limit = policy.Default, 20
		if print := (policy.Document{Rules: []policy.Rule{r, rest[1]}}).Fingerprint(); seen[print] {
			t.Errorf("%+v has the fingerprint of others", r)
		} else {
			seen[print] = true
		}
	}
}
