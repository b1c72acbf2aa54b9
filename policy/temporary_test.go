package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// inForce is the limit that applies, since when it has, and what came before, the
// latest first.
func inForce(t *testing.T, set *policy.Set, now, base time.Time) string {
	t.Helper()
	applied := set.Resolve(nil, now.UnixNano(), endpoint.Match{Status: endpoint.UnknownPath}, "", "")
	if len(applied) != 1 {
		t.Fatalf("%d rules apply, want 1", len(applied))
	}
	terms := set.Terms(applied[0].Rule)
	since := "always"
	if terms.Since != 0 {
		since = time.Unix(0, terms.Since).Sub(base).String()
	}
	text := fmt.Sprintf("%d since %s", terms.Shape.Burst(), since)
	for p := terms.Before; p != nil; p = p.Before {
		text += fmt.Sprintf(", %d", p.Shape.Burst())
	}
	return text
}

// TestTemporaryRules tells which of a lasting and a temporary rule holds, and
// since when, with reloads at any time or none.
func TestTemporaryRules(t *testing.T) {
	base := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	lasting := func(n int64) policy.Rule {
		return policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: n, Per: time.Hour}
	}
	until := func(n int64, at time.Duration) policy.Rule {
		r := lasting(n)
		r.Expires = base.Add(at)
		return r
	}
	const m = time.Minute
	type load struct {
		at    time.Duration
		rules []policy.Rule
	}
	type want struct {
		at   time.Duration
		text string
	}
	for name, tt := range map[string]struct {
		loads []load
		wants []want
	}{
		"in the first document": {
			[]load{{0, []policy.Rule{lasting(10), until(50, 5*m)}}},
			[]want{{0, "50 since always"}, {5*m - 1, "50 since always"}, {5 * m, "10 since 5m0s, 50"},
				{9 * m, "10 since 5m0s, 50"}},
		},
		"in any order": {
			[]load{{0, []policy.Rule{until(50, 5*m), lasting(10)}}},
			[]want{{4 * m, "50 since always"}, {5 * m, "10 since 5m0s, 50"}},
		},
		"added, and gone by itself": {
			[]load{{0, []policy.Rule{lasting(10)}}, {m, []policy.Rule{lasting(10), until(50, 5*m)}}},
			[]want{{m, "50 since 1m0s, 10"}, {5 * m, "10 since 5m0s, 50, 10"}},
		},
		"tighter": {
			[]load{{0, []policy.Rule{lasting(10)}}, {m, []policy.Rule{lasting(10), until(5, 5*m)}}},
			[]want{{m, "5 since 1m0s, 10"}, {5 * m, "10 since 5m0s, 5, 10"}},
		},
		"loaded again meanwhile": {
			[]load{{0, []policy.Rule{lasting(10)}}, {m, []policy.Rule{lasting(10), until(50, 5*m)}},
				{2 * m, []policy.Rule{lasting(10), until(50, 5*m)}}},
			[]want{{2 * m, "50 since 1m0s, 10"}, {5 * m, "10 since 5m0s, 50, 10"}},
		},
		"loaded again afterwards": {
			[]load{{m, []policy.Rule{lasting(10), until(50, 5*m)}}, {6 * m, []policy.Rule{lasting(10), until(50, 5*m)}},
				{7 * m, []policy.Rule{lasting(10)}}},
			[]want{{7 * m, "10 since 5m0s, 50"}},
		},
		"taken away before its end": {
			[]load{{m, []policy.Rule{lasting(10), until(50, 5*m)}}, {2 * m, []policy.Rule{lasting(10)}}},
			[]want{{2 * m, "10 since 2m0s, 50"}, {6 * m, "10 since 2m0s, 50"}},
		},
		"prolonged": {
			[]load{{m, []policy.Rule{lasting(10), until(50, 5*m)}},
				{2 * m, []policy.Rule{lasting(10), until(50, 9*m)}}},
			[]want{{5 * m, "50 since always"}, {9 * m, "10 since 9m0s, 50"}},
		},
		"replaced": {
			[]load{{m, []policy.Rule{lasting(10), until(50, 5*m)}},
				{2 * m, []policy.Rule{lasting(10), until(30, 9*m)}}},
			[]want{{2 * m, "30 since 2m0s, 50"}, {9 * m, "10 since 9m0s, 30, 50"}},
		},
		"the lasting rule changes under it": {
			[]load{{m, []policy.Rule{lasting(10), until(50, 5*m)}},
				{2 * m, []policy.Rule{lasting(20), until(50, 5*m)}}},
			[]want{{2 * m, "50 since always"}, {5 * m, "20 since 5m0s, 50"}},
		},
		"the same limit": {
			[]load{{0, []policy.Rule{lasting(10), until(10, 5*m)}}},
			[]want{{0, "10 since always"}, {6 * m, "10 since always"}},
		},
		"the lasting rule comes later": {
			[]load{{0, []policy.Rule{until(50, 5*m)}}, {2 * m, []policy.Rule{until(50, 5*m), lasting(10)}}},
			[]want{{2 * m, "50 since always"}, {5 * m, "10 since 5m0s, 50"}},
		},
		"over before it is loaded": {
			[]load{{6 * m, []policy.Rule{lasting(10), until(50, 5*m)}}},
			[]want{{6 * m, "10 since always"}},
		},
		"two in turn": {
			[]load{{0, []policy.Rule{lasting(10), until(50, 5*m)}},
				{6 * m, []policy.Rule{lasting(10), until(30, 8*m)}}},
			[]want{{6 * m, "30 since 6m0s, 10, 50"}, {8 * m, "10 since 8m0s, 30, 10, 50"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var set *policy.Set
			for _, l := range tt.loads {
				set = compile(t, policy.Document{Rules: l.rules},
					policy.CompileOptions{Previous: set, Now: base.Add(l.at)})
			}
			for _, w := range tt.wants {
				if got := inForce(t, set, base.Add(w.at), base); got != w.text {
					t.Errorf("at %v: %s, want %s", w.at, got, w.text)
				}
			}
		})
	}
}

// TestTemporaryRuleAlone: with no lasting rule beside it, the next level follows.
func TestTemporaryRuleAlone(t *testing.T) {
	end := time.Date(2026, 2, 1, 0, 5, 0, 0, time.UTC)
	set := compile(t, policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Limit: 50, Expires: end}, {Endpoint: policy.Default, Limit: 10},
	}}, policy.CompileOptions{Endpoints: table(t, "GET /a"), Now: end.Add(-time.Minute)})
	for at, want := range map[time.Time]policy.Level{end.Add(-1): policy.LevelEndpoint, end: policy.LevelDefault} {
		got := set.Resolve(nil, at.UnixNano(), endpoint.Match{ID: 1, Status: endpoint.Known}, "", "")
		if len(got) != 1 || got[0].Level != want {
			t.Errorf("at %v: %v, want one at %v", at, got, want)
		}
	}
	if next := set.NextEnd(0); next != math.MaxInt64 {
		t.Errorf("NextEnd = %d, want none: no bucket changes its limit then", next)
	}
}

// TestTrialsBesideALastingRule: a temporary rule that denies not all of its
// callers has a bucket of its own, and leaves the lasting one's alone.
func TestTrialsBesideALastingRule(t *testing.T) {
	end := time.Date(2026, 2, 1, 0, 5, 0, 0, time.UTC)
	for name, trial := range map[string]policy.Rule{
		"in shadow":   {Endpoint: policy.UnknownEndpoint, Limit: 5, Mode: policy.Shadow, Expires: end},
		"for a share": {Endpoint: policy.UnknownEndpoint, Limit: 5, EnforcePercent: 50, Expires: end},
	} {
		set := compile(t, policy.Document{Rules: []policy.Rule{{Endpoint: policy.UnknownEndpoint, Limit: 10}, trial}},
			policy.CompileOptions{Now: end.Add(-time.Minute)})
		applied := set.Resolve(nil, end.Add(-time.Minute).UnixNano(),
			endpoint.Match{Status: endpoint.UnknownPath}, "", "")
		if len(applied) != 2 {
			t.Fatalf("%s: %d rules apply, want both", name, len(applied))
		}
		a, b := set.Terms(applied[0].Rule), set.Terms(applied[1].Rule)
		if a.ID == b.ID || a.Since != 0 || b.Since != 0 {
			t.Errorf("%s: IDs %x and %x, since %d and %d, want two buckets that do not change", name, a.ID, b.ID,
				a.Since, b.Since)
		}
		if _, ok := set.StandsFor(applied[0].Rule); ok {
			t.Errorf("%s: it stands for the lasting rule, want beside it", name)
		}
	}
}

// TestEnds are the times at which buckets have to hear of a change.
func TestEnds(t *testing.T) {
	base := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) int64 { return base.Add(d).UnixNano() }
	var rules []policy.Rule
	for i, end := range []time.Duration{3 * time.Minute, time.Minute, 3 * time.Minute, -time.Minute} {
		r := policy.Rule{Endpoint: policy.UnknownEndpoint, Subject: policy.Subject(i), Limit: 10}
		rules = append(rules, r)
		r.Limit, r.Expires = 5, base.Add(end)
		rules = append(rules, r)
	}
	set := compile(t, policy.Document{Rules: rules}, policy.CompileOptions{Now: base})
	for _, tt := range []struct{ now, last, next int64 }{
		{at(0), 0, at(time.Minute)},
		{at(time.Minute) - 1, 0, at(time.Minute)},
		{at(time.Minute), at(time.Minute), at(3 * time.Minute)},
		{at(2 * time.Minute), at(time.Minute), at(3 * time.Minute)},
		{at(3 * time.Minute), at(3 * time.Minute), math.MaxInt64},
		{at(time.Hour), at(3 * time.Minute), math.MaxInt64},
	} {
		if last, next := set.LastEnd(tt.now), set.NextEnd(tt.now); last != tt.last || next != tt.next {
			t.Errorf("at %v: LastEnd %d, NextEnd %d, want %d, %d", time.Duration(tt.now-at(0)), last, next,
				tt.last, tt.next)
		}
	}
}
