package rules_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// The rule that a request becomes counts as the one does that it stands in for,
// whichever level that is found at, and takes what the operator says of the
// limit.
func TestApprove(t *testing.T) {
	lasting := []policy.Rule{
		{Endpoint: "GET /a/{x}", Limit: 1, Algorithm: policy.SlidingLog, OnStoreLoss: policy.LossOpen},
		{Endpoint: "GET /a/{x}", Limit: 2, Subject: policy.SubjectIP, Mode: policy.Shadow},
		{Endpoint: policy.Default, Limit: 3, Algorithm: policy.FixedWindow},
		{Endpoint: policy.Default, Limit: 3, Tier: "gold", Algorithm: policy.LeakyBucket, Burst: 5},
		{
			Endpoint:  policy.Default,
			Limit:     3,
			Project:   "own",
			Algorithm: policy.SlidingWindow,
			CountWhen: "4xx",
			Penalty:   "10 in 1m for 15m",
			Refusal:   "503",
			Priority:  "low",
		},
		{Endpoint: policy.All, Limit: 9},
	}
	for name, c := range map[string]struct {
		project  string
		asked    record.Asked
		approval rules.Approval
		want     policy.Rule // of it: what is compared
	}{
		"as asked": {"acme", record.Asked{Endpoint: "GET /a/{id}", Limit: 7}, rules.Approval{}, policy.Rule{
			Endpoint:    "GET /a/{x}",
			Limit:       7,
			Algorithm:   policy.SlidingLog,
			OnStoreLoss: policy.LossOpen,
		}},
		"in shadow is none": {"acme", record.Asked{Endpoint: "GET /a/{x}", Subject: policy.SubjectIP, Limit: 7},
			rules.Approval{}, policy.Rule{Endpoint: "GET /a/{x}", Limit: 7}},
		"by the default": {"acme", record.Asked{Endpoint: "GET /b", Limit: 7}, rules.Approval{},
			policy.Rule{Endpoint: "GET /b", Limit: 7, Algorithm: policy.FixedWindow}},
		"by the tier": {"rich", record.Asked{Endpoint: "GET /b", Limit: 7, Burst: 8}, rules.Approval{},
			policy.Rule{Endpoint: "GET /b", Limit: 7, Burst: 8, Algorithm: policy.LeakyBucket}},
		"by the project": {"own", record.Asked{Endpoint: "GET /b", Limit: 7}, rules.Approval{}, policy.Rule{
			Endpoint:  "GET /b",
			Limit:     7,
			Algorithm: policy.SlidingWindow,
			CountWhen: "4xx",
			Penalty:   "10 in 1m for 15m",
			Refusal:   "503",
			Priority:  "low",
		}},
		"of the default": {"acme", record.Asked{Endpoint: policy.Default, Limit: 7}, rules.Approval{},
			policy.Rule{Endpoint: policy.Default, Limit: 7, Algorithm: policy.FixedWindow}},
		"of all together": {"acme", record.Asked{Endpoint: policy.All, Limit: 70, Burst: 80}, rules.Approval{},
			policy.Rule{Endpoint: policy.All, Limit: 70, Burst: 80}},
		"another limit": {"acme", record.Asked{Endpoint: policy.All, Limit: 70, Burst: 80},
			rules.Approval{Limit: 50}, policy.Rule{Endpoint: policy.All, Limit: 50}},
		"another burst": {"acme", record.Asked{Endpoint: policy.All, Limit: 70, Burst: 80},
			rules.Approval{Burst: 75}, policy.Rule{Endpoint: policy.All, Limit: 70, Burst: 75}},
		"another time and so": {"acme", record.Asked{Endpoint: policy.All, Limit: 70, Burst: 80},
			rules.Approval{Per: time.Minute, Burst: 71},
			policy.Rule{Endpoint: policy.All, Limit: 70, Per: time.Minute, Burst: 71}},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := database.Open(t.Context(), sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			_, err = db.Apply(t.Context(), record.Author{Actor: "test"},
				record.Edit{Set: lasting, Tiers: map[string]string{"rich": "gold"}})
			if err != nil {
				t.Fatal(err)
			}
			c.asked.Per, c.asked.For = time.Second, time.Hour
			filed, err := db.File(t.Context(), record.LimitRequest{Actor: "a", Project: c.project, Reason: "x",
				Asked: c.asked}, 5)
			if err != nil {
				t.Fatal(err)
			}
			c.approval.Actor = "op"
			done, version, findings, err := rules.Approve(t.Context(), db, filed.ID, c.approval,
				policy.CompileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if f.Code == "no_endpoint" {
					t.Errorf("Approve finds %v, want nothing about endpoints that nobody listed", f)
				}
			}
			c.want.Project, c.want.Subject = c.project, c.asked.Subject
			c.want.Per = max(c.want.Per, time.Second)
			c.want.Expires = done.Granted.Until
			got, err := db.Get(t.Context(), record.KeyOf(c.want))
			if err != nil || got != c.want {
				t.Errorf("the rule is %+v, %v, want %+v", got, err, c.want)
			}
			if left := time.Until(got.Expires); left < 50*time.Minute || left > time.Hour {
				t.Errorf("the rule ends in %v, want an hour from the approval on", left)
			}
			changes, err := db.Changes(t.Context(), done.Version)
			if err != nil || version.ID != done.Version || version.Action != record.ActionRequest ||
				version.Why != "request "+filed.ID || len(changes) != 1 || *changes[0].After != c.want {
				t.Errorf("version %+v of %+v changes %+v, %v, want the rule alone, for the request", version,
					done, changes, err)
			}
		})
	}
}

// A project that only the rule for unknown endpoints holds is given a rule that
// counts as that one does, and the operator is warned if it is lower.
func TestApproveBelowTheUnknownRule(t *testing.T) {
	db, err := database.Open(t.Context(), sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Set(t.Context(), record.Author{Actor: "test"}, policy.Rule{
		Endpoint: policy.UnknownEndpoint, Limit: 1000, Per: time.Second, Scope: policy.Strict,
		OnStoreLoss: policy.LossShare,
	}); err != nil {
		t.Fatal(err)
	}
	filed, err := db.File(t.Context(), record.LimitRequest{Actor: "a", Project: "acme", Reason: "x",
		Asked: record.Asked{Endpoint: "GET /b", Limit: 7, Per: time.Second, For: time.Hour}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	done, _, findings, err := rules.Approve(t.Context(), db, filed.ID, rules.Approval{Actor: "op"},
		policy.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := db.Get(t.Context(), record.RuleKey{Endpoint: "GET /b", Project: "acme", Temporary: true})
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Rule{Endpoint: "GET /b", Project: "acme", Limit: 7, Per: time.Second, Expires: done.Granted.Until,
		Scope: policy.Strict, OnStoreLoss: policy.LossShare}
	if got != want {
		t.Errorf("the rule is %+v, want %+v", got, want)
	}
	if len(findings) == 0 || findings[0].Code != "not_higher" ||
		!strings.Contains(findings[0].Error(), "more than the 1000 per 1s") {
		t.Errorf("Approve finds %v, want not_higher than 1000 per 1s", findings)
	}
}

// What would not load changes nothing: neither rules nor request.
func TestApproveAllOrNothing(t *testing.T) {
	db, err := database.Open(t.Context(), sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	filed, err := db.File(t.Context(), record.LimitRequest{Actor: "a", Project: "acme", Reason: "x",
		Asked: record.Asked{Endpoint: "GET /a", Limit: 5, Per: time.Second, For: time.Hour}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	var problem policy.Problem
	var approval *rules.ApprovalError
	if _, _, _, err := rules.Approve(t.Context(), db, filed.ID, rules.Approval{Actor: "op", Burst: 1 << 62,
		Limit: 1 << 62}, policy.CompileOptions{}); !errors.As(err, &problem) {
		t.Errorf("Approve of what does not load = %v, want a policy.Problem", err)
	}
	if _, _, _, err := rules.Approve(t.Context(), db, filed.ID, rules.Approval{Actor: "op",
		Until: time.Now().Add(-time.Hour)}, policy.CompileOptions{}); !errors.As(err, &approval) {
		t.Errorf("Approve of what is over = %v, want an ApprovalError", err)
	}
	if got, err := db.Request(t.Context(), filed.ID); err != nil || got != filed {
		t.Errorf("Request = %+v, %v, want it as it was filed", got, err)
	}
	if list, err := db.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List = %v, %v, want no rule", list, err)
	}
}

// An approval that gives no more than there is says so, and is made all the same.
func TestApproveWarnsOfALowerLimit(t *testing.T) {
	db, err := database.Open(t.Context(), sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Set(t.Context(), record.Author{Actor: "test"},
		policy.Rule{Endpoint: "GET /a", Limit: 60, Per: time.Minute, Burst: 20}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		approval rules.Approval
		warns    bool
	}{
		{rules.Approval{Limit: 1, Burst: 20}, true},  // the same, in other words
		{rules.Approval{Limit: 1}, true},             // with the burst of a limit that gives none
		{rules.Approval{Limit: 2}, false},            // faster
		{rules.Approval{Limit: 1, Burst: 21}, false}, // larger
	} {
		filed, err := db.File(t.Context(), record.LimitRequest{Actor: "a", Project: "acme", Reason: "x",
			Asked: record.Asked{Endpoint: "GET /a", Limit: 5, Per: time.Second, For: time.Hour}}, 5)
		if err != nil {
			t.Fatal(err)
		}
		c.approval.Actor = "op"
		done, _, findings, err := rules.Approve(t.Context(), db, filed.ID, c.approval, policy.CompileOptions{})
		if err != nil || done.State != record.RequestApproved {
			t.Fatalf("Approve = %+v, %v", done, err)
		}
		warned := len(findings) > 0 && findings[0].Code == "not_higher" && isCheck(findings[0]) &&
			strings.Contains(findings[0].Error(), "more than the 60 per 1m (burst 20)")
		if warned != c.warns {
			t.Errorf("%+v finds %v, want a warning: %v", c.approval, findings, c.warns)
		}
	}
}

// isCheck reports whether a finding can be looked up.
func isCheck(p policy.Problem) bool {
	check, err := policy.FindCheck(p.Code)
	return err == nil && check.Severity == p.Severity
}
