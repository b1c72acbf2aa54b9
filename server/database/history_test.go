package database_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// began is when this process did.
var began = time.Now()

var (
	ann = record.Author{Actor: "local:ann", Why: "more for acme"}
	bob = record.Author{Actor: "token ops", Claimed: "bob"}
)

func items(limit int64) policy.Rule {
	return policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: limit, Per: time.Second}
}

func TestEveryChangeIsAVersion(t *testing.T) { everywhere(t, testEveryChangeIsAVersion) }

func testEveryChangeIsAVersion(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, ann, items(5)))
	must(t, s.Set(ctx, bob, items(50)))
	must(t, s.Set(ctx, bob, items(50))) // changes nothing
	must(t, s.SetTier(ctx, bob, "acme", "gold"))
	must(t, s.Set(ctx, bob, full))
	must(t, s.Delete(ctx, ann, record.KeyOf(items(1))))
	_, err := s.Apply(ctx, bob, record.Edit{
		Set:    []policy.Rule{items(7), {Endpoint: policy.Default, Limit: 1}},
		Delete: []record.RuleKey{record.KeyOf(full)},
		Tiers:  map[string]string{"acme": "", "b": "free"},
	})
	must(t, err)

	checkHistory(t, s, []string{
		"7 token ops/bob apply +3 ~0 -2",
		"6 local:ann delete +0 ~0 -1 (more for acme)",
		"5 token ops/bob set +1 ~0 -0",
		"4 token ops/bob tier +1 ~0 -0",
		"3 token ops/bob set +0 ~1 -0",
		"2 local:ann set +1 ~0 -0 (more for acme)",
		"1 headgate start +0 ~0 -0",
	})
	five, fifty := items(5), items(50)
	for version, want := range [][]record.Change{
		3: {{Before: &five, After: &fifty}},
		4: {{Project: "acme", TierAfter: "gold"}},
		6: {{Before: &fifty}},
	} {
		if want == nil {
			continue
		}
		if got, err := s.Changes(ctx, int64(version)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Changes(%d) = %+v, %v, want %+v", version, got, err, want)
		}
	}
	if got, err := s.Diff(ctx, 5, 2); err != nil || !reflect.DeepEqual(got,
		[]record.Change{{Before: &fifty, After: &five}, {Before: &full}, {Project: "acme", TierBefore: "gold"}}) {
		t.Errorf("Diff(5, 2) = %+v, %v", got, err)
	}
	checkReproducible(t, s)
}

func checkHistory(t testing.TB, s *database.Store, want []string) {
	t.Helper()
	list, err := s.History(t.Context(), 0, 1000)
	must(t, err)
	got := make([]string, len(list))
	for i, v := range list {
		got[i] = fmt.Sprintf("%d %s", v.ID, v.Actor)
		if v.Claimed != "" {
			got[i] += "/" + v.Claimed
		}
		got[i] += fmt.Sprintf(" %s +%d ~%d -%d", v.Action, v.Added, v.Changed, v.Removed)
		if v.Of != 0 {
			got[i] += fmt.Sprintf(" of %d", v.Of)
		}
		if v.Why != "" {
			got[i] += " (" + v.Why + ")"
		}
		oldest := time.Minute
		if v.ID == 1 { // as old as the database that others are copies of (dbtest.SQLite), which this process made
			oldest += time.Since(began)
		}
		if ago := time.Since(v.At); ago < -2*time.Second || ago > oldest {
			t.Errorf("version %d was made at %v", v.ID, v.At)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("History =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// standing is the rules and tiers of a version.
type standing struct {
	rules map[record.RuleKey]policy.Rule
	tiers map[string]string
}

func (s standing) clone() standing { return standing{maps.Clone(s.rules), maps.Clone(s.tiers)} }

// checkReproducible compares every version, as it is found by walking back from
// today, with the changes from the first on: neither is made from the other. It
// returns the states of all versions; that of version 0 is empty. Of a long
// history, some are found so, and those between them as the difference from the
// last, because each way back is as long as the history since.
func checkReproducible(t testing.TB, s *database.Store) []standing {
	t.Helper()
	return checkReproducibleSince(t, s, 0, standing{map[record.RuleKey]policy.Rule{}, map[string]string{}})
}

// checkReproducibleSince is checkReproducible from one version on, whose state is
// known. The states before it are empty.
func checkReproducibleSince(t testing.TB, s *database.Store, since int64, then standing) []standing {
	t.Helper()
	ctx := t.Context()
	must(t, s.Number(ctx))
	now, err := s.Current(ctx)
	must(t, err)
	states := make([]standing, since+1)
	states[since] = then
	versions, err := s.History(ctx, 0, int(now.ID))
	must(t, err)
	counted := map[int64][3]int{}
	for _, v := range versions {
		counted[v.ID] = [3]int{v.Added, v.Changed, v.Removed}
	}
	found, foundAt := then, since
	for v := since + 1; v <= now.ID; v++ {
		next := states[v-1].clone()
		changes, err := s.Changes(ctx, v)
		must(t, err)
		if got := countOf(changes); got != counted[v] {
			t.Errorf("version %d is said to have added, changed and removed %v, its changes come to %v", v,
				counted[v], got)
		}
		for _, c := range changes {
			replay(t, v, next, c)
		}
		states = append(states, next)
		then := found.clone()
		if v < 20 || v%25 == 0 || v > now.ID-20 {
			then = stateAt(t, s, v)
			found, foundAt = then, v
		} else {
			changes, err := s.Diff(ctx, foundAt, v)
			must(t, err)
			for _, c := range changes {
				replay(t, v, then, c)
			}
		}
		if !reflect.DeepEqual(then, next) {
			t.Fatalf("version %d is %+v, the changes up to there come to %+v", v, then, next)
		}
	}
	doc, err := s.Export(ctx)
	must(t, err)
	if len(doc.Rules) != len(states[now.ID].rules) || doc.Number != now.ID {
		t.Errorf("there are %d rules of version %d, and the changes come to %d of version %d", len(doc.Rules),
			doc.Number, len(states[now.ID].rules), now.ID)
	}
	return states
}

// countOf is how many rules and tiers changes add, change and remove.
func countOf(changes []record.Change) (n [3]int) {
	for _, c := range changes {
		switch {
		case c.Before == nil && c.TierBefore == "":
			n[0]++
		case c.After == nil && c.TierAfter == "":
			n[2]++
		default:
			n[1]++
		}
	}
	return n
}

func stateAt(t testing.TB, s *database.Store, v int64) standing {
	t.Helper()
	doc, err := s.At(t.Context(), v)
	if err != nil {
		t.Fatalf("At(%d): %v", v, err)
	}
	then := standing{map[record.RuleKey]policy.Rule{}, doc.Projects}
	for _, r := range doc.Rules {
		then.rules[record.KeyOf(r)] = r
	}
	if len(then.rules) != len(doc.Rules) {
		t.Fatalf("At(%d) has a rule twice: %+v", v, doc.Rules)
	}
	return then
}

func replay(t testing.TB, v int64, to standing, c record.Change) {
	t.Helper()
	rules, tiers := to.rules, to.tiers
	if c.Before == nil && c.After == nil {
		if tiers[c.Project] != c.TierBefore {
			t.Errorf("version %d changes tier %q of %s, which was in %q", v, c.TierBefore, c.Project, tiers[c.Project])
		}
		if delete(tiers, c.Project); c.TierAfter != "" {
			tiers[c.Project] = c.TierAfter
		}
		return
	}
	if c.Before != nil {
		if was, ok := rules[record.KeyOf(*c.Before)]; !ok || was != *c.Before {
			t.Errorf("version %d changes %+v, which was %+v", v, c.Before, was)
		}
		delete(rules, record.KeyOf(*c.Before))
	}
	if c.After != nil {
		if was, ok := rules[record.KeyOf(*c.After)]; ok {
			t.Errorf("version %d adds %+v, where %+v is", v, c.After, was)
		}
		rules[record.KeyOf(*c.After)] = *c.After
	}
}
