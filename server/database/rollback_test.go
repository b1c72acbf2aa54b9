package database_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Of two who have seen the same version, the second does not undo what the
// first did.
func TestConflict(t *testing.T) { everywhere(t, testConflict) }

func testConflict(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, ann, items(5)))
	base, err := s.Current(ctx)
	must(t, err)
	_, err = s.Apply(ctx, ann, record.Edit{Base: base.ID, Set: []policy.Rule{items(6)}})
	must(t, err)
	run(t, d.shell(t), "UPDATE policies SET burst = 9")

	_, err = s.Apply(ctx, bob, record.Edit{Base: base.ID, Set: []policy.Rule{items(7)}})
	var conflict *record.Conflict
	if !errors.As(err, &conflict) || conflict.Base != 2 || conflict.Current.ID != 4 || len(conflict.Since) != 2 ||
		conflict.Since[1].Actor != ann.Actor {
		t.Errorf("Apply of an edit of an old version = %v (%+v), want a Conflict", err, conflict)
	}
	if _, err = s.Apply(ctx, bob, record.Edit{Base: 99, Set: []policy.Rule{items(7)}}); !errors.As(err, &conflict) ||
		!strings.Contains(err.Error(), "which there is not") {
		t.Errorf("Apply of an edit of a version to come = %v", err)
	}
	if v, err := s.Apply(ctx, bob, record.Edit{Base: 4, Set: []policy.Rule{items(7)}}); err != nil || v.ID != 5 ||
		v.Changed != 1 {
		t.Errorf("Apply of an edit of the current version = %+v, %v", v, err)
	}
	checkReproducible(t, s)
}

// Rules go by more than one statement, those that stay and those in other
// places untouched.
func TestRollbackOfManyRules(t *testing.T) { everywhere(t, testRollbackOfManyRules) }

func testRollbackOfManyRules(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	who := record.Author{Actor: "ann"}
	kept := []policy.Rule{{Endpoint: policy.Default, Limit: 1}, {Endpoint: "GET /7/{id}", Project: "other", Limit: 2}}
	first, err := s.Apply(ctx, who, record.Edit{Set: kept, Replace: true})
	if err != nil {
		t.Fatal(err)
	}
	var many []policy.Rule
	for i := range 601 { // two statements of 250 and some
		many = append(many, policy.Rule{Endpoint: fmt.Sprintf("GET /%d/{id}", i), Tier: "gold", Limit: 3})
		many[i].Subject = policy.Subject(i % 2)
	}
	if _, err := s.Apply(ctx, who, record.Edit{Set: many}); err != nil {
		t.Fatal(err)
	}
	back, err := s.Rollback(ctx, who, first.ID, first.ID+1)
	if err != nil || back.Removed != len(many) {
		t.Fatalf("Rollback = %+v, %v, want %d rules removed", back, err, len(many))
	}
	left, err := s.List(ctx)
	if err != nil || len(left) != len(kept) {
		t.Errorf("%d rules are left, %v, want the %d from before", len(left), err, len(kept))
	}
	for _, r := range kept {
		if _, err := s.Get(ctx, record.KeyOf(r)); err != nil {
			t.Errorf("Get(%v) = %v", record.KeyOf(r), err)
		}
	}
}

func TestRollback(t *testing.T) { everywhere(t, testRollback) }

func testRollback(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Import(ctx, ann, policy.Document{Rules: []policy.Rule{items(5), full},
		Projects: map[string]string{"acme": "gold"}}, false))
	want, err := s.Export(ctx)
	must(t, err)
	must(t, s.Import(ctx, bob, policy.Document{
		Rules:    []policy.Rule{items(6), {Endpoint: policy.Default, Limit: 1}},
		Projects: map[string]string{"b": "free"},
	}, true))

	var conflict *record.Conflict
	if _, err := s.Rollback(ctx, ann, 2, 2); !errors.As(err, &conflict) {
		t.Errorf("Rollback on an old base = %v, want a Conflict", err)
	}
	v, err := s.Rollback(ctx, ann, 2, 3)
	if err != nil || v.ID != 4 || v.Of != 2 || v.Added != 2 || v.Changed != 1 || v.Removed != 2 {
		t.Errorf("Rollback = %+v, %v", v, err)
	}
	got, err := s.Export(ctx)
	must(t, err)
	want.Number = 4
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after Rollback, Export = %+v, want %+v", got, want)
	}
	if v, err := s.Rollback(ctx, ann, 2, 0); err != nil || v.ID != 4 {
		t.Errorf("a Rollback that changes nothing = %+v, %v, want the current version", v, err)
	}
	if _, err := s.Rollback(ctx, ann, 1, 0); err == nil || !strings.Contains(err.Error(), "want at least one rule") {
		t.Errorf("Rollback to no rules = %v, want a refusal", err)
	}
	if _, err := s.Rollback(ctx, ann, 17, 0); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("Rollback to a version that never was = %v", err)
	}
	checkReproducible(t, s)
}

func TestApplyRefuses(t *testing.T) {
	s, ctx := open(t), t.Context()
	must(t, s.Set(ctx, ann, items(5)))
	refused := errors.New("no")
	check := func(before, after policy.Document) error {
		if len(before.Rules) != 1 || len(after.Rules) != 2 {
			t.Errorf("Check is told %+v and %+v", before, after)
		}
		return refused
	}
	tests := []struct {
		name   string
		author record.Author
		edit   record.Edit
		want   string
	}{
		{"nobody", record.Author{}, record.Edit{}, "author: actor is empty"},
		{"a novel", record.Author{Actor: "a", Why: strings.Repeat("x", 501)}, record.Edit{},
			"why is 501 bytes long, want at most 500"},
		{"two lines", record.Author{Actor: "a", Why: "x\ny"}, record.Edit{}, "want one line of printable text"},
		{"backwards", record.Author{Actor: "a", Claimed: "\u202enna"}, record.Edit{},
			"want one line of printable text"},
		{"both", ann, record.Edit{Set: []policy.Rule{items(1)}, Delete: []record.RuleKey{record.KeyOf(items(1))}},
			"both set and deleted"},
		{"nothing", ann, record.Edit{Replace: true}, "want at least one rule"},
		{"what is not there", ann, record.Edit{Set: []policy.Rule{items(6)},
			Delete: []record.RuleKey{record.KeyOf(full)}}, "not found"},
		{"Check", ann, record.Edit{Set: []policy.Rule{full}, Check: check}, "no"},
	}
	for _, tt := range tests {
		if _, err := s.Apply(ctx, tt.author, tt.edit); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Apply = %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := s.Apply(ctx, ann, record.Edit{Set: []policy.Rule{full}, Check: check}); !errors.Is(err, refused) ||
		err.Error() != "no" {
		t.Errorf("Apply that Check refuses = %v, want its error", err)
	}
	checkHistory(t, s, []string{"2 local:ann set +1 ~0 -0 (more for acme)", "1 headgate start +0 ~0 -0"})
}
