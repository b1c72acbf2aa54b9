package database_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// asking is a request of a project for more.
func asking(project string) record.LimitRequest {
	return record.LimitRequest{
		Actor: "api_key k_1", Claimed: "Ann", Project: project, Reason: "the launch",
		Asked: record.Asked{Endpoint: "GET /a/{id}", Limit: 50, Per: time.Minute, Burst: 80, For: 48 * time.Hour},
	}
}

func file(t *testing.T, s *database.Store, r record.LimitRequest) record.LimitRequest {
	t.Helper()
	filed, err := s.File(t.Context(), r, 5)
	if err != nil {
		t.Fatal(err)
	}
	return filed
}

// ids are those of the requests that a query finds.
func ids(t *testing.T, s *database.Store, q record.RequestQuery) (list []string) {
	t.Helper()
	if q.Most == 0 {
		q.Most = 100
	}
	found, err := s.Requests(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		list = append(list, r.ID)
	}
	return list
}

func TestRequestsComeBack(t *testing.T) { everywhere(t, testRequestsComeBack) }

func testRequestsComeBack(t *testing.T, d someDatabase) {
	s := d.open(t)
	r := asking("acme")
	r.Subject, r.Reason = policy.SubjectProject, "größer – 'quoted'; --"
	filed := file(t, s, r)
	r.ID, r.State, r.Filed = filed.ID, record.RequestOpen, filed.Filed
	if filed != r || !strings.HasPrefix(filed.ID, "r_") || time.Since(filed.Filed) > time.Minute {
		t.Errorf("File = %+v, want %+v", filed, r)
	}
	got, err := s.Request(t.Context(), filed.ID)
	if err != nil || got != r {
		t.Errorf("Request = %+v, %v, want %+v", got, err, r)
	}
	plain := asking("acme")
	plain.Claimed, plain.Burst, plain.For, plain.Until = "", 0, 0, time.Unix(4e9, 0).UTC()
	plain = file(t, s, plain)
	if got, err := s.Request(t.Context(), plain.ID); err != nil || got != plain {
		t.Errorf("Request = %+v, %v, want %+v", got, err, plain)
	}
	for _, none := range []string{"r_nobody", "", filed.ID + " "} {
		if _, err := s.Request(t.Context(), none); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("Request(%q) = %v, want ErrNotFound", none, err)
		}
	}
	audit, err := s.ListAudit(t.Context(), 10)
	must(t, err)
	if len(audit) != 2 || audit[1].Actor != "api_key k_1" || audit[1].Claimed != "Ann" ||
		audit[1].Action != record.ActionFile ||
		audit[1].Rule != "request "+filed.ID+": 50 per 1m, burst 80" || audit[1].Endpoint != "GET /a/{id}" ||
		audit[1].Whose != "project acme" {
		t.Errorf("the audit has %+v, want both filings", audit)
	}
}

// A project sees its own requests: names are compared byte for byte.
func TestRequestsOfAProject(t *testing.T) { everywhere(t, testRequestsOfAProject) }

func testRequestsOfAProject(t *testing.T, d someDatabase) {
	s := d.open(t)
	var mine []string
	for range 3 {
		for _, project := range []string{"acme", "Acme", "acme "} {
			r := file(t, s, asking(project))
			if project == "acme" {
				mine = append([]string{r.ID}, mine...)
			}
		}
	}
	if got := ids(t, s, record.RequestQuery{Project: "acme"}); !slices.Equal(got, mine) {
		t.Errorf("acme's are %v, want %v", got, mine)
	}
	if got := ids(t, s, record.RequestQuery{Project: "acme", Before: mine[0], Most: 1}); !slices.Equal(got, mine[1:2]) {
		t.Errorf("the next page is %v, want %v", got, mine[1:2])
	}
	if _, err := s.Withdraw(t.Context(), mine[0], "Acme", "api_key k_2", ""); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("Withdraw by another project = %v, want ErrNotFound", err)
	}
	got, err := s.Withdraw(t.Context(), mine[0], "acme", "api_key k_2", "Ben")
	if err != nil || got.State != record.RequestWithdrawn || got.DecidedBy != "api_key k_2" ||
		got.DecidedClaimed != "Ben" {
		t.Errorf("Withdraw = %+v, %v", got, err)
	}
	if again, err := s.Request(t.Context(), mine[0]); err != nil || again != got {
		t.Errorf("Request = %+v, %v, want %+v", again, err, got)
	}
	if got := ids(t, s, record.RequestQuery{Project: "acme", State: record.RequestOpen}); !slices.Equal(got, mine[1:]) {
		t.Errorf("open are %v, want %v", got, mine[1:])
	}
	if got := ids(t, s, record.RequestQuery{Project: "acme", State: record.RequestWithdrawn}); !slices.Equal(got,
		mine[:1]) {
		t.Errorf("withdrawn are %v, want %v", got, mine[:1])
	}
	if n, err := s.OpenRequests(t.Context()); err != nil || n != 8 {
		t.Errorf("OpenRequests = %d, %v, want 8", n, err)
	}
}

// What a project can file is bounded, by what is open and by what it filed of
// late, and one that cannot be of use any more is open no longer.
func TestRequestsAreBounded(t *testing.T) { everywhere(t, testRequestsAreBounded) }

func testRequestsAreBounded(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	for i := range record.RequestsADay {
		r, err := s.File(ctx, asking("acme"), 2)
		if err != nil {
			t.Fatalf("filing %d: %v", i, err)
		}
		if i == 0 {
			continue // stays open
		}
		if i == 1 {
			if _, err := s.File(ctx, asking("acme"), 2); !errors.Is(err, record.ErrTooManyRequests) ||
				!strings.Contains(err.Error(), "2 open ones, want at most 2") {
				t.Errorf("a third open one: %v", err)
			}
		}
		if _, err := s.Withdraw(ctx, r.ID, "acme", "a", ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.File(ctx, asking("acme"), 2); !errors.Is(err, record.ErrTooManyRequests) ||
		!strings.Contains(err.Error(), "has filed 20 in 24 hours") {
		t.Errorf("the 21st of a day: %v", err)
	}
	if _, err := s.File(ctx, asking("other"), 2); err != nil {
		t.Errorf("another project: %v", err)
	}
	old, short := asking("third"), asking("third")
	old.Filed = time.Now().Add(-record.RequestLife)
	short.For, short.Until = 0, time.Now().Add(-time.Second)
	old, short = file(t, s, old), file(t, s, short)
	for _, r := range []record.LimitRequest{old, short} {
		got, err := s.Request(ctx, r.ID)
		if err != nil || got.State != record.RequestExpired {
			t.Errorf("Request = %+v, %v, want it expired", got, err)
		}
		var decided *record.DecidedError
		if _, err := s.Decline(ctx, r.ID, "op", "", ""); !errors.As(err, &decided) ||
			decided.Request.State != record.RequestExpired {
			t.Errorf("Decline = %v, want a DecidedError", err)
		}
	}
	if got := ids(t, s, record.RequestQuery{Project: "third", State: record.RequestExpired}); !slices.Equal(got,
		[]string{short.ID, old.ID}) {
		t.Errorf("expired are %v, want %v", got, []string{short.ID, old.ID})
	}
	if got := ids(t, s, record.RequestQuery{Project: "third", State: record.RequestOpen}); got != nil {
		t.Errorf("open are %v, want none", got)
	}
	file(t, s, asking("third"))
	if got := ids(t, s, record.RequestQuery{Project: "third", State: record.RequestExpired}); len(got) != 2 {
		t.Errorf("expired are %v, want both, also when they are closed in the table", got)
	}
}

// Requests go a time after they were decided, open ones never, and none earlier
// than the database lets them.
func TestPruneRequests(t *testing.T) { everywhere(t, testPruneRequests) }

func testPruneRequests(t *testing.T, d someDatabase) {
	s, ctx, now := d.open(t), t.Context(), time.Now()
	db := d.shell(t)
	decided := func(ago time.Duration) string {
		r := asking("acme")
		r.Filed = now.Add(-ago - time.Hour)
		r = file(t, s, r)
		run(t, db,
			fmt.Sprintf("UPDATE limit_requests SET state = 'declined', decided_at = %d, decided_by = 'op' WHERE "+
				"request = '%s'", now.Add(-ago).Unix(), r.ID))
		return r.ID
	}
	day := 24 * time.Hour
	decided(70 * day)
	decided(50 * day)
	kept := decided(31 * day)
	late := decided(29 * day)
	open := file(t, s, asking("acme")).ID
	forgotten := asking("other") // nobody decided, and nobody touched it since it ran out
	forgotten.Filed = now.Add(-record.RequestLife - 100*day)
	forgotten = file(t, s, forgotten)
	for _, step := range []struct {
		before time.Duration
		gone   int64
		left   []string // newest first
	}{
		{60 * day, 1, nil}, {40 * day, 1, []string{forgotten.ID, open, late, kept}},
		{30 * day, 1, []string{forgotten.ID, open, late}},
	} {
		gone, err := s.PruneRequests(ctx, now.Add(-step.before))
		if err != nil || gone != step.gone {
			t.Errorf("PruneRequests of what is %v old = %d, %v, want %d", step.before, gone, err, step.gone)
		}
		if got := ids(t, s, record.RequestQuery{}); step.left != nil && !slices.Equal(got, step.left) {
			t.Errorf("%v are left, want %v", got, step.left)
		}
	}
	if _, err := db.Exec("DELETE FROM limit_requests WHERE request = '" + late + "'"); err == nil ||
		!strings.Contains(err.Error(), "for 30 days at least") {
		t.Errorf("giving up what was decided 29 days ago = %v, want a refusal", err)
	}
	// A gateway whose clock is two days ahead gives up what may go, and no more.
	decided(31 * day)
	if gone, err := s.PruneRequests(ctx, now.Add(-28*day)); err != nil || gone != 1 {
		t.Errorf("PruneRequests by a clock that is ahead = %d, %v, want 1", gone, err)
	}
	if got := ids(t, s, record.RequestQuery{}); !slices.Equal(got, []string{forgotten.ID, open, late}) {
		t.Errorf("%v are left, want what was decided within 30 days", got)
	}
}

// To find that nothing is old holds nobody up who writes.
func TestPruneRequestsWaitsForNobody(t *testing.T) { everywhere(t, testPruneRequestsWaitsForNobody) }

func testPruneRequestsWaitsForNobody(t *testing.T, d someDatabase) {
	s, db := d.open(t), d.shell(t)
	file(t, s, asking("acme"))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec("INSERT INTO projects (project_id, tier) VALUES ('x', 'y')") // locks what every change does
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if gone, err := s.PruneRequests(ctx, time.Now().Add(-record.KeepRequests)); err != nil || gone != 0 {
		t.Errorf("PruneRequests while somebody writes = %d, %v, want 0", gone, err)
	}
}

// granting approves of a request with another limit.
func granting(actor string, limit int64) record.Grant {
	return record.Grant{Actor: actor, Rule: func(r record.LimitRequest, _ policy.Document) (policy.Rule, error) {
		return policy.Rule{
			Endpoint: r.Endpoint,
			Project:  r.Project,
			Subject:  r.Subject,
			Limit:    limit,
			Per:      r.Per,
			Expires:  time.Unix(4e9, 0).UTC(),
		}, nil
	}}
}

// An approval is a version of the rules and the end of its request, or neither.
func TestApprovalsComeBack(t *testing.T) { everywhere(t, testApprovalsComeBack) }

func testApprovalsComeBack(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	r := file(t, s, asking("acme "))
	refused := errors.New("not this")
	g := granting("op", 60)
	g.Check = func(_, after policy.Document) error {
		if len(after.Rules) != 1 || after.Rules[0].Project != "acme " {
			t.Errorf("Check is asked about %+v", after.Rules)
		}
		return refused
	}
	if _, _, err := s.Approve(ctx, r.ID, g); !errors.Is(err, refused) {
		t.Errorf("Approve = %v, want what Check says", err)
	}
	if got, err := s.Request(ctx, r.ID); err != nil || got != r {
		t.Errorf("Request = %+v, %v, want it open", got, err)
	}
	g.Check, g.Note, g.Claimed = nil, "größer", "Olga"
	done, version, err := s.Approve(ctx, r.ID, g)
	must(t, err)
	if version.Action != record.ActionRequest || version.Actor != "op" || version.Why != "request "+r.ID ||
		version.Added != 1 || done.Version != version.ID {
		t.Errorf("the version is %+v of %+v", version, done)
	}
	got, err := s.Request(ctx, r.ID)
	if err != nil || got != done || got.Granted.Limit != 60 || !got.Granted.Until.Equal(time.Unix(4e9, 0)) ||
		got.State != record.RequestApproved || got.DecidedClaimed != "Olga" || got.Note != "größer" {
		t.Errorf("Request = %+v, %v, want %+v", got, err, done)
	}
	rule, err := s.Get(ctx, record.RuleKey{Endpoint: r.Endpoint, Project: "acme ", Temporary: true})
	if err != nil || rule.Limit != 60 {
		t.Errorf("Get = %+v, %v, want the rule", rule, err)
	}
	if _, _, err := s.Approve(ctx, "r_none", g); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("Approve of none = %v", err)
	}
}

// Of those who decide at the same time one does, and the others are told who.
func TestOneDecides(t *testing.T) { everywhere(t, testOneDecides) }

func testOneDecides(t *testing.T, d someDatabase) {
	s, second := d.open(t), d.open(t)
	for range 5 {
		r := file(t, s, asking("acme"))
		var all sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			all.Go(func() {
				db := []*database.Store{s, second}[i%2]
				switch i {
				case 0:
					_, errs[i] = db.Withdraw(t.Context(), r.ID, "acme", "owner", "")
					return
				case 1, 2, 3:
					_, _, errs[i] = db.Approve(t.Context(), r.ID, granting(fmt.Sprint("operator ", i), int64(50+i)))
					return
				}
				_, errs[i] = db.Decline(t.Context(), r.ID, fmt.Sprint("operator ", i), "", "no")
			})
		}
		all.Wait()
		done := 0
		for i, err := range errs {
			var decided *record.DecidedError
			switch {
			case err == nil:
				done++
			case !errors.As(err, &decided) || decided.Request.ID != r.ID ||
				!strings.Contains(err.Error(), "already, by "):
				t.Errorf("decision %d: %v, want a DecidedError that says who was faster", i, err)
			}
		}
		if done != 1 {
			t.Errorf("%d of %d decided, want 1", done, len(errs))
		}
		rules, err := s.List(t.Context())
		got, err2 := s.Request(t.Context(), r.ID)
		if approved := got.State == record.RequestApproved; errors.Join(err, err2) != nil ||
			approved != (len(rules) == 1) {
			t.Errorf("the request is %s and there are %d rules: %v", got.State, len(rules), errors.Join(err, err2))
		}
		for _, rule := range rules {
			must(t, s.Delete(t.Context(), tester, record.KeyOf(rule)))
		}
	}
}

// Neither we nor a slip of the shell changes what was asked or decided.
func TestRequestsStay(t *testing.T) { everywhere(t, testRequestsStay) }

func testRequestsStay(t *testing.T, d someDatabase) {
	s := d.open(t)
	open, closed := file(t, s, asking("acme")), file(t, s, asking("acme"))
	if _, err := s.Decline(t.Context(), closed.ID, "op", "", "no"); err != nil {
		t.Fatal(err)
	}
	db := d.shell(t)
	for _, statement := range []string{
		"DELETE FROM limit_requests",
		"UPDATE limit_requests SET rps_limit = 9999 WHERE state = 'open'",
		"UPDATE limit_requests SET state = 'approved' WHERE state = 'declined'",
		"UPDATE limit_requests SET note = 'yes' WHERE state = 'declined'",
		"UPDATE limit_requests SET project_id = 'other', state = 'approved' WHERE state = 'open'",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err == nil ||
			!strings.Contains(err.Error(), "stays as it was filed") {
			t.Errorf("%s = %v, want a refusal", statement, err)
		}
	}
	if got, err := s.Request(t.Context(), open.ID); err != nil || got != open {
		t.Errorf("Request = %+v, %v, want %+v", got, err, open)
	}
}

// Filing is no change of rules: no gateway reads them again for it.
func TestRequestsAreNoRules(t *testing.T) { everywhere(t, testRequestsAreNoRules) }

func testRequestsAreNoRules(t *testing.T, d someDatabase) {
	s := d.open(t)
	before, err := s.Version(t.Context())
	must(t, err)
	file(t, s, asking("acme"))
	after, err := s.Version(t.Context())
	must(t, err)
	if d.kind != "SQLite" && before != after { // SQLite tells of any change in the file
		t.Errorf("the version was %q and is %q", before, after)
	}
}
