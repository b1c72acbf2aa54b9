package database_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Who gets past the triggers is found out.
func TestHistoryTellsWhatItDoesNotKnow(t *testing.T) {
	everywhere(t, testHistoryTellsWhatItDoesNotKnow)
}

func testHistoryTellsWhatItDoesNotKnow(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, ann, items(5)))
	must(t, s.Set(ctx, ann, items(6)))
	must(t, s.Set(ctx, ann, full))
	switch d.kind {
	case "SQLite":
		run(t, db, "DROP TRIGGER policies_after_delete", "DELETE FROM policies")
	case "PostgreSQL":
		run(t, db, "SET session_replication_role = replica", "DELETE FROM policies")
	case "MariaDB":
		run(t, db, "TRUNCATE policies")
	}
	_, err := s.At(ctx, 2)
	if err == nil || !strings.Contains(err.Error(),
		`rule for "GET /v1/items/{id}" per principal is not what the history says`) {
		t.Errorf("At = %v, want it to say what it does not know", err)
	}
}

// A row that got past the checks was in the table, and is in the history as what
// it is. Versions without it are as they were.
func TestHistoryOfWhatIsNoRule(t *testing.T) { everywhere(t, testHistoryOfWhatIsNoRule) }

func testHistoryOfWhatIsNoRule(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 5}))
	good, err := s.Current(ctx)
	must(t, err)
	unchecked(t, d, db, "rps_limit")
	run(t, db, "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /x', -7)")
	if v, err := s.Pending(ctx); err != nil || v.Added != 1 {
		t.Errorf("Pending = %+v, %v, want one that was added", v, err)
	}
	must(t, s.Number(ctx))
	run(t, db, "DELETE FROM policies WHERE endpoint = 'GET /x'")
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 6}))
	list, err := s.History(ctx, 0, 10)
	if err != nil || len(list) < 4 || list[0].Changed != 1 || list[1].Removed != 1 || list[2].Added != 1 {
		t.Fatalf("History = %+v, %v, want the change, what was removed and what was added", list, err)
	}
	for _, step := range []struct {
		version int64
		added   bool
	}{{good.ID + 1, true}, {good.ID + 2, false}} {
		changes, err := s.Changes(ctx, step.version)
		if err != nil || len(changes) != 1 || (changes[0].Before == nil) != step.added ||
			!strings.HasPrefix(changes[0].FaultBefore+changes[0].FaultAfter, "rps_limit is -7, want") ||
			(changes[0].FaultBefore == "") != step.added {
			t.Errorf("Changes(%d) = %+v, %v, want what is wrong with it", step.version, changes, err)
		}
	}
	if changes, err := s.Diff(ctx, good.ID, good.ID+3); err != nil || len(changes) != 1 ||
		changes[0].FaultBefore+changes[0].FaultAfter != "" || changes[0].After.Limit != 6 {
		t.Errorf("Diff around it = %+v, %v, want the change of default alone", changes, err)
	}
	if doc, err := s.At(ctx, good.ID); err != nil || len(doc.Rules) != 1 || doc.Rules[0].Limit != 5 {
		t.Errorf("At(%d) = %+v, %v, want the rules from before it", good.ID, doc.Rules, err)
	}
	if _, err := s.At(ctx, good.ID+1); err == nil ||
		!strings.Contains(err.Error(), `rule for "GET /x" per principal is no rule (rps_limit is -7`) {
		t.Errorf("At(%d) = %v, want it to say that there was no rule", good.ID+1, err)
	}
}

// A sound rule that was made a bad one is told apart from it, and what cannot be
// read of the bad one is left out.
func TestHistoryTellsWhichSideIsNoRule(t *testing.T) {
	everywhere(t, testHistoryTellsWhichSideIsNoRule)
}

func testHistoryTellsWhichSideIsNoRule(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 5, Per: time.Minute, Name: "n"}))
	good, err := s.Current(ctx)
	must(t, err)
	unchecked(t, d, db, "rps_limit")
	for _, limit := range []string{"-4", "-6"} {
		run(t, db, "UPDATE policies SET rps_limit = "+limit)
		must(t, s.Number(ctx))
	}
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 5, Per: time.Minute, Name: "n"}))
	want := func(limit int64) *policy.Rule {
		return &policy.Rule{Endpoint: policy.Default, Limit: limit, Per: time.Minute, Name: "n"}
	}
	const four, six = "rps_limit is -4, want a whole number of 1 or more",
		"rps_limit is -6, want a whole number of 1 or more"
	for n, c := range []record.Change{
		{Before: want(5), After: want(0), FaultAfter: four},
		{Before: want(0), After: want(0), FaultBefore: four, FaultAfter: six},
		{Before: want(0), After: want(5), FaultBefore: six},
	} {
		changes, err := s.Changes(ctx, good.ID+1+int64(n))
		if err != nil || len(changes) != 1 || fmt.Sprint(describe(changes[0])) != fmt.Sprint(describe(c)) {
			t.Errorf("Changes(%d) = %v, %v, want %v", good.ID+1+int64(n), describe(changes[0]), err, describe(c))
		}
	}
	back, err := s.Diff(ctx, good.ID+1, good.ID)
	if c := (record.Change{Before: want(0), After: want(5), FaultBefore: four}); err != nil || len(back) != 1 ||
		fmt.Sprint(describe(back[0])) != fmt.Sprint(describe(c)) {
		t.Errorf("Diff back = %+v, %v, want %v", back, err, describe(c))
	}
}

// describe is a change without pointers.
func describe(c record.Change) []any {
	return []any{*c.Before, *c.After, c.FaultBefore, c.FaultAfter}
}
