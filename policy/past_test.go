package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// TestTermsBefore tells what a rule was through reloads: every change is kept until no bucket can
// owe for it, also while the rule is gone.
func TestTermsBefore(t *testing.T) {
	base := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	steps := []struct {
		at    time.Duration
		limit int64 // an hour; 0: the rule is gone
		since time.Duration
		want  string // limits before, the latest first
	}{
		{0, 10, -1, ""},
		{1 * time.Minute, 20, time.Minute, "10"},
		{2 * time.Minute, 30, 2 * time.Minute, "20 10"},
		{3 * time.Minute, 30, 2 * time.Minute, "20 10"},
		{4 * time.Minute, 0, 0, ""},
		{5 * time.Minute, 0, 0, ""},
		{6 * time.Minute, 30, 2 * time.Minute, "20 10"}, // nothing happened to its buckets
		{7 * time.Minute, 0, 0, ""},
		{8 * time.Minute, 20, 8 * time.Minute, "30 20 10"},
		{70 * time.Minute, 40, 70 * time.Minute, "20"}, // 20 an hour from minute 8 on filled all buckets
		{71 * time.Minute, 0, 0, ""},
		{300 * time.Minute, 50, 300 * time.Minute, ""}, // all are full
	}
	var previous *policy.Set
	for i, step := range steps {
		doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1}}}
		if step.limit != 0 {
			doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.All, Limit: step.limit, Per: time.Hour})
		}
		set := compile(t, doc, policy.CompileOptions{Previous: previous, Now: base.Add(step.at)})
		previous = set
		if want := base.Add(step.at).UnixNano(); i > 0 && set.Since() != want || i == 0 && set.Since() != 0 {
			t.Errorf("step %d: the Set is in force since %d, want %d, or 0 for the first", i, set.Since(), want)
		}
		if step.limit == 0 {
			continue
		}
		terms := set.Terms(ruleFor(t, set, policy.All))
		since := int64(0)
		if step.since >= 0 {
			since = base.Add(step.since).UnixNano()
		}
		got := ""
		for p := terms.Before; p != nil; p = p.Before {
			got += fmt.Sprintf(" %d", p.Shape.Burst())
		}
		if terms.Since != since || got != "" && got[1:] != step.want || got == "" && step.want != "" {
			t.Errorf("step %d: Since = %v, Before =%s, want %v, %s", i, time.Unix(0, terms.Since).Sub(base), got,
				step.since, step.want)
		}
	}
}

func ruleFor(t *testing.T, set *policy.Set, ep string) policy.RuleID {
	t.Helper()
	for id := range policy.RuleID(set.Len()) {
		if set.Rule(id).Endpoint == ep {
			return id
		}
	}
	t.Fatalf("no rule for %s", ep)
	return 0
}

// TestFormerRulesAreBounded: when more rules have gone than are remembered, one that comes back has
// a past that is not known, until all the buckets of the others are full.
func TestFormerRulesAreBounded(t *testing.T) {
	base := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	endpoints := bigTable(t)
	small := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1}}}
	large := policy.Document{Rules: small.Rules}
	for i := range 70_000 {
		large.Rules = append(large.Rules, policy.Rule{Endpoint: bigTemplate(i), Project: bigProject(i), Limit: 10})
	}
	first := compile(t, large, policy.CompileOptions{Endpoints: endpoints, Now: base})
	gone := compile(t, small, policy.CompileOptions{Endpoints: endpoints, Previous: first, Now: base.Add(time.Second)})
	for i := range large.Rules {
		large.Rules[i].Limit++
	}
	count := func(at time.Duration) (known, unknown, none int) {
		back := compile(t, large, policy.CompileOptions{Endpoints: endpoints, Previous: gone, Now: base.Add(at)})
		pasts := map[*rate.Past]bool{}
		for id := range policy.RuleID(back.Len()) {
			switch p := back.Terms(id).Before; {
			case p == nil:
				none++
			case p.Shape == (rate.Shape{}):
				unknown++
				pasts[p] = true
			default:
				known++
				pasts[p] = true
			}
		}
		if len(pasts) > 3 {
			t.Errorf("%d rules that changed alike have %d pasts, want them shared", back.Len(), len(pasts))
		}
		return known, unknown, none
	}
	if known, unknown, none := count(2 * time.Second); known != 1<<16+1 || unknown != 70_000-1<<16 || none != 0 {
		t.Errorf("soon after, %d rules know what they were, %d not, and %d were nothing, want %d, %d, 0", known,
			unknown, none, 1<<16+1, 70_000-1<<16)
	}
	if known, unknown, none := count(time.Minute); known != 1 || unknown != 0 || none != 70_000 {
		t.Errorf("a minute after, %d rules know what they were, %d not, and %d were nothing, want 1, 0, 70000", known,
			unknown, none)
	}
}

// What a reload remembers does not depend on where the rules stood in either
// document: finding them again in the same place is only faster.
func TestReloadInAnyOrder(t *testing.T) {
	base := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	o := policy.CompileOptions{Endpoints: bigTable(t), Now: base}
	before := compile(t, bigDocument(3000), o)
	changed := bigDocument(3300)
	for i := range changed.Rules {
		if i%5 == 0 {
			changed.Rules[i].Limit++
		}
	}
	changed.Rules = changed.Rules[100:] // some are gone: those after them stand elsewhere
	o.Previous, o.Now = before, base.Add(time.Minute)
	want := termsByID(compile(t, changed, o))
	random := rand.New(rand.NewPCG(5, 6))
	for range 3 {
		random.Shuffle(len(changed.Rules), func(i, j int) {
			changed.Rules[i], changed.Rules[j] = changed.Rules[j], changed.Rules[i]
		})
		got := termsByID(compile(t, changed, o))
		if len(got) != len(want) {
			t.Fatalf("in another order %d rules, want %d", len(got), len(want))
		}
		for id, terms := range want {
			before, wantBefore := got[id].Before, terms.Before
			if got[id].Since != terms.Since || (before == nil) != (wantBefore == nil) ||
				before != nil && before.Window != wantBefore.Window {
				t.Fatalf("in another order rule %x has Terms %+v, want %+v", id, got[id], terms)
			}
		}
	}
}

func termsByID(s *policy.Set) map[uint64]policy.Terms {
	all := map[uint64]policy.Terms{}
	for id := range s.Len() {
		terms := s.Terms(policy.RuleID(id))
		all[terms.ID] = terms
	}
	return all
}

// TestSettled: what the rules before counted and what the new ones do has drained by then, also where windows of the
// first begin late.
func TestSettled(t *testing.T) {
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	of := func(previous *policy.Set, limit int64, per time.Duration, algorithm policy.Algorithm) *policy.Set {
		now = now.Add(time.Minute)
		rule := policy.Rule{Endpoint: policy.All, Limit: limit, Per: per, Burst: limit, Algorithm: algorithm}
		return compile(t, policy.Document{Rules: []policy.Rule{rule}},
			policy.CompileOptions{Previous: previous, Now: now})
	}
	hour := of(nil, 5, time.Hour, policy.TokenBucket)
	second := of(hour, 5, time.Second, policy.TokenBucket)
	again := of(second, 6, time.Second, policy.TokenBucket)
	window := of(again, 6, 10*time.Minute, policy.FixedWindow)
	after := of(window, 6, time.Second, policy.TokenBucket)
	for _, c := range []struct {
		name string
		set  *policy.Set
		of   []*policy.Set // the Sets whose limits count
		late time.Duration
	}{
		{"the first", hour, []*policy.Set{hour}, 0},
		{"a quicker one", second, []*policy.Set{hour, second}, 0},
		{"once more", again, []*policy.Set{again}, 0},
		{"windows", window, []*policy.Set{window}, 0},
		{"after windows", after, []*policy.Set{window}, 10 * time.Minute},
	} {
		want := int64(0)
		for _, set := range c.of {
			shape := set.Terms(ruleFor(t, set, policy.All)).Shape
			want = max(want, shape.Settled(7, nil)+int64(c.late))
		}
		if got := c.set.Settled(7); got != want {
			t.Errorf("%s: Settled(7) = %v, want %v", c.name, time.Duration(got), time.Duration(want))
		}
	}
	if got := hour.Settled(math.MaxInt64 - 1); got != math.MaxInt64 {
		t.Errorf("Settled of the end of time = %d", got)
	}
}
