package database_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func TestNamedSubjects(t *testing.T) { everywhere(t, testNamedSubjects) }

// Limits by a path parameter or a claim are rules of their own in the table, told by history, and
// written in SQL like others.
func testNamedSubjects(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	of := func(subject string, limit int64) policy.Rule {
		r := policy.Rule{Endpoint: "GET /c/{customer}", Limit: limit, Per: time.Second}
		must(t, r.SetSubject(subject))
		return r
	}
	path, claim, more := of("path:customer", 5), of("claim:realm.org", 6), of("path:customer", 7)
	for _, r := range []policy.Rule{path, claim, more} { // versions 2 to 4
		must(t, s.Set(ctx, bob, r))
		if got, err := s.Get(ctx, record.KeyOf(r)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("Get(%v) = %+v, %v, want %+v", record.KeyOf(r), got, err, r)
		}
	}
	if got, err := s.Changes(ctx, 4); err != nil ||
		!reflect.DeepEqual(got, []record.Change{{Before: &path, After: &more}}) {
		t.Errorf("the fourth version is %+v, %v, want the limit raised", got, err)
	}
	db := d.shell(t)
	run(t, db, `INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('*', 9, 'claim:org')`)
	for _, wrong := range []string{"path:", "claim:", "path", "claims:org"} {
		if _, err := db.ExecContext(ctx, `INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('GET /a', 1, '`+
			wrong+`')`); err == nil {
			t.Errorf("subject %q is taken, want it refused", wrong)
		}
	}
	doc, _, err := s.Load(ctx)
	must(t, err)
	all := of("claim:org", 9)
	all.Endpoint = policy.All
	claim.Per = 720 * time.Hour
	must(t, claim.Algorithm.UnmarshalText([]byte("calendar:America/Argentina/ComodRivadavia"))) // the longest name
	must(t, s.Set(ctx, bob, claim))
	doc, _, err = s.Load(ctx)
	must(t, err)
	if want := []policy.Rule{more, claim, all}; !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Load has %+v, want %+v", doc.Rules, want)
	}
	must(t, s.Delete(ctx, ann, record.KeyOf(claim)))
	must(t, s.Close())
}

func TestAfterwards(t *testing.T) { everywhere(t, testAfterwards) }

// What a rule counts by answers, and its penalty, are kept, told by history, gone back to, and
// written in SQL like all else.
func testAfterwards(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	plain := policy.Rule{Endpoint: "POST /v1/login", Limit: 5, Per: time.Second}
	counted, both := plain, plain
	counted.CountWhen = "401,403"
	both.CountWhen, both.Penalty = "4xx", "10 in 1m for 15m up to 6h with addresses"
	for _, r := range []policy.Rule{plain, counted, both, counted} { // versions 2 to 5
		must(t, s.Set(ctx, bob, r))
		if got, err := s.Get(ctx, record.KeyOf(r)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("Get(%v) = %+v, %v, want %+v", record.KeyOf(r), got, err, r)
		}
	}
	for version, want := range map[int64]record.Change{
		3: {Before: &plain, After: &counted},
		4: {Before: &counted, After: &both},
		5: {Before: &both, After: &counted},
	} {
		if got, err := s.Changes(ctx, version); err != nil || !reflect.DeepEqual(got, []record.Change{want}) {
			t.Errorf("version %d is %+v, %v, want %+v", version, got, err, want)
		}
	}
	db := d.shell(t)
	run(t, db, `UPDATE policies SET penalty = '3 in 10s for 1m'`,
		`INSERT INTO policies (endpoint, rps_limit, count_when) VALUES ('*', 9, '503 401')`)
	for _, empty := range []string{"count_when", "penalty"} {
		if _, err := db.ExecContext(ctx, `INSERT INTO policies (endpoint, rps_limit, `+empty+
			`) VALUES ('GET /a', 1, '')`); err == nil {
			t.Errorf("an empty %s is taken, want it refused", empty)
		}
	}
	doc, _, err := s.Load(ctx)
	must(t, err)
	sql := counted
	sql.Penalty = "3 in 10s for 1m"
	all := policy.Rule{Endpoint: policy.All, Limit: 9, Per: time.Second, CountWhen: "401,503"}
	if want := []policy.Rule{sql, all}; !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Load has %+v, want %+v", doc.Rules, want)
	}
	run(t, db, `UPDATE policies SET count_when = '999', penalty = 'sometimes' WHERE endpoint = '*'`)
	if _, _, err := s.Load(ctx); err == nil ||
		!strings.Contains(err.Error(), `count_when is "999", want statuses from 200 to 599`) ||
		!strings.Contains(err.Error(), `penalty is "sometimes", want "10 in 1m for 15m"`) {
		t.Errorf("Load of what is none: %v", err)
	}
	run(t, db, `DELETE FROM policies WHERE endpoint = '*'`)
	old, err := s.At(ctx, 4)
	must(t, err)
	if !reflect.DeepEqual(old.Rules, []policy.Rule{both}) {
		t.Errorf("version 4 was %+v, want %+v", old.Rules, both)
	}
	must(t, s.Close())
}

func TestAccessRules(t *testing.T) { everywhere(t, testAccessRules) }

// Rules that allow or block are kept, found, told by history and written in SQL like others.
func testAccessRules(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	of := func(mode policy.Mode, endpoint, subject string) policy.Rule {
		r := policy.Rule{Endpoint: endpoint, Mode: mode, Per: time.Second}
		must(t, r.SetSubject(subject))
		return r
	}
	limit := policy.Rule{Endpoint: "GET /health", Limit: 5, Per: time.Second}
	must(t, s.Set(ctx, ann, limit)) // version 2
	health := of(policy.Allow, "GET /health", "principal")
	network := of(policy.Block, policy.All, "ip:2001:db8:aaaa:bbbb:cccc:dddd:eeee:ff00/120")
	caller := of(policy.Block, policy.All, "token:"+strings.Repeat("ü", 120))
	for _, r := range []policy.Rule{health, network, caller} { // versions 3 to 5
		must(t, s.Set(ctx, bob, r))
		if got, err := s.Get(ctx, record.KeyOf(r)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("Get(%v) = %+v, %v, want %+v", record.KeyOf(r), got, err, r)
		}
	}
	if got, err := s.Changes(ctx, 3); err != nil ||
		!reflect.DeepEqual(got, []record.Change{{Before: &limit, After: &health}}) {
		t.Errorf("the third version is %+v, %v, want the limit replaced", got, err)
	}
	must(t, s.Delete(ctx, ann, record.KeyOf(network)))
	if got, err := s.Changes(ctx, 6); err != nil || !reflect.DeepEqual(got, []record.Change{{Before: &network}}) {
		t.Errorf("the sixth version is %+v, %v, want the network gone", got, err)
	}

	db := d.shell(t)
	run(t, db, `INSERT INTO policies (endpoint, rps_limit, mode, subject) VALUES ('*', 1, 'block', 'ip:192.0.2.0/24')`)
	for _, kind := range []string{"api_key", "token", "certificate", "user", "signed_agent"} {
		run(t, db, `INSERT INTO policies (endpoint, rps_limit, mode, subject) VALUES ('*', 1, 'block', '`+kind+`:x')`,
			`DELETE FROM policies WHERE subject = '`+kind+`:x'`)
	}
	for _, wrong := range []string{
		`INSERT INTO policies (endpoint, rps_limit, mode) VALUES ('GET /a', 1, 'perhaps')`,
		`INSERT INTO policies (endpoint, rps_limit, mode, subject) VALUES ('GET /a', 1, 'block', 'nobody:x')`,
		`INSERT INTO policies (endpoint, rps_limit, mode, subject) VALUES ('GET /a', 1, 'block', 'ip:')`,
	} {
		if _, err := db.ExecContext(ctx, wrong); err == nil {
			t.Errorf("%s is taken, want it refused", wrong)
		}
	}
	doc, _, err := s.Load(ctx)
	must(t, err)
	if want := []policy.Rule{health, caller,
		of(policy.Block, policy.All, "ip:192.0.2.0/24")}; !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Load has %+v, want %+v", doc.Rules, want)
	}

	run(t, db, `UPDATE policies SET subject = 'ip:192.0.2' WHERE subject = 'ip:192.0.2.0/24'`)
	if _, _, err := s.Load(ctx); err == nil ||
		!strings.Contains(err.Error(), `subject is "ip:192.0.2", want an address or a network behind "ip:"`) {
		t.Errorf("Load of a network that is none: %v", err)
	}
	run(t, db, `UPDATE policies SET subject = 'ip:192.0.2.7/24' WHERE subject = 'ip:192.0.2'`)
	if _, _, err := s.Load(ctx); err == nil || !strings.Contains(err.Error(),
		`subject is "ip:192.0.2.7/24", want "ip:192.0.2.0/24", which is how it is written`) {
		t.Errorf("Load of a network written otherwise: %v", err)
	}
	must(t, s.Close())
	if s, err := database.New(ctx, database.Options{DSN: d.dsn, NoNotify: d.quiet, ReadOnly: true}); err != nil {
		t.Errorf("opened again: %v", err)
	} else {
		must(t, s.Close())
	}
}
