package database_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

var _ live.Source[[]identity.KeyRecord] = database.KeySource{}

// open makes a store in a file of its own.
func open(t testing.TB) *database.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headgate.db")
	sqlitetest.New(t, path)
	return openAt(t, path)
}

func openAt(t testing.TB, path string) *database.Store {
	t.Helper()
	s, err := database.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// shell opens the file the way another program does: no pragmas, no checks of
// ours. It waits for long: who waits for a lock of SQLite stands in no queue.
func shell(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the shell: %v", err)
		}
	})
	return db
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var full = policy.Rule{
	Endpoint: "POST /login", Project: "acme", Limit: 5, Per: time.Minute, Burst: 3,
	Subject: policy.SubjectIP, Mode: policy.Shadow, OnStoreLoss: policy.LossOpen,
	Expires: time.Unix(2_000_000_000, 0).UTC(), Name: "login",
	CountWhen: "401,4xx", Penalty: "10 in 1m for 15m",
	Refusal:  "503 without fields as text/plain: Später\n{retry_after} 's \"\\",
	Priority: "low",
}

func TestSetGetListDelete(t *testing.T) { everywhere(t, testSetGetListDelete) }

func testSetGetListDelete(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	plain := policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 100}
	want := plain
	want.Per = time.Second
	must(t, s.Set(ctx, tester, full))
	must(t, s.Set(ctx, tester, plain))
	for _, w := range []policy.Rule{full, want} {
		if got, err := s.Get(ctx, record.KeyOf(w)); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("Get(%v) = %+v, %v, want %+v", record.KeyOf(w), got, err, w)
		}
	}

	want.Limit, want.Burst, want.Tier = 200, 400, ""
	must(t, s.Set(ctx, tester, want)) // in place of plain
	rules, err := s.List(ctx)
	if err != nil || !reflect.DeepEqual(rules, []policy.Rule{full, want}) {
		t.Errorf("List = %+v, %v, want %+v", rules, err, []policy.Rule{full, want})
	}

	// The same endpoint for other tenants and subjects is another rule.
	for _, r := range []policy.Rule{
		{Endpoint: plain.Endpoint, Limit: 1, Project: "acme"},
		{Endpoint: plain.Endpoint, Limit: 1, Tier: "acme"},
		{Endpoint: plain.Endpoint, Limit: 1, Subject: policy.SubjectEndpoint},
		{Endpoint: policy.Default, Limit: 1},
		{Endpoint: policy.UnknownEndpoint, Limit: 1},
		{Endpoint: policy.All, Limit: 1},
	} {
		must(t, s.Set(ctx, tester, r))
	}
	if rules, err = s.List(ctx); len(rules) != 8 {
		t.Errorf("List = %d rules, %v, want 8", len(rules), err)
	}

	must(t, s.Delete(ctx, tester, record.KeyOf(full)))
	if _, err := s.Get(ctx, record.KeyOf(full)); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("Get of a deleted rule = %v, want ErrNotFound", err)
	}
	err = s.Delete(ctx, tester, record.KeyOf(full))
	if want := `temporary rule for "POST /login" of project "acme" per ip: not found`; !errors.Is(err,
		record.ErrNotFound) || err.Error() != want {
		t.Errorf("Delete of a deleted rule = %v, want %s", err, want)
	}
}

// A load of a million rules takes twice as long when it looks at every row for
// what is seldom there. PostgreSQL does by itself, until it has looked at a table
// that was filled.
func TestLoadFindsWideRulesByIndex(t *testing.T) {
	for _, kind := range kinds[:2] {
		t.Run(kind.name, func(t *testing.T) {
			s := kind.make(t).open(t)
			must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(1000)}, true))
			plan, err := s.ExplainWideRules(t.Context())
			if want := "policies_not_plain"; err != nil || !strings.Contains(plan, want) {
				t.Errorf("plan is %q, %v, want it to use %s", plan, err, want)
			}
		})
	}
}

// Rules come in the order of their rows, whichever way each was read, and each
// column makes a rule one of those that are read in full.
// Every subject that a rule may have can be stored.
func TestStoreTakesEverySubject(t *testing.T) { everywhere(t, testStoreTakesEverySubject) }

func testStoreTakesEverySubject(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	n := policy.Subject(0)
	for ; !strings.Contains(n.String(), "subject("); n++ {
		r := policy.Rule{Endpoint: "GET /a/{id}", Limit: 1, Per: time.Second}
		if r.SetSubject(n.String()) != nil { // one that has a name besides
			must(t, r.SetSubject(n.String()+":id"))
		}
		must(t, s.Set(ctx, tester, r))
		if got, err := s.Get(ctx, record.KeyOf(r)); err != nil || got.Subject != n {
			t.Errorf("Get = %+v, %v, want a rule by %v", got, err, n)
		}
	}
	if n < 9 {
		t.Errorf("there are %d subjects, want 9 or more", n)
	}
}

func TestLoadKeepsTheOrder(t *testing.T) { everywhere(t, testLoadKeepsTheOrder) }

func testLoadKeepsTheOrder(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	plain := policy.Rule{Limit: 1, Per: time.Second}
	var want []policy.Rule
	for i, change := range []func(*policy.Rule){
		func(r *policy.Rule) {},
		func(r *policy.Rule) { r.Per = time.Minute },
		func(r *policy.Rule) { r.Burst = 1 },
		func(r *policy.Rule) { r.Project = "p" },
		func(r *policy.Rule) { r.Tier = "t" },
		func(r *policy.Rule) {},
		func(r *policy.Rule) { r.Subject = policy.SubjectIP },
		func(r *policy.Rule) { r.Mode = policy.Shadow },
		func(r *policy.Rule) { r.OnStoreLoss = policy.LossOpen },
		func(r *policy.Rule) { r.Expires = time.Unix(2_000_000_000, 0).UTC() },
		func(r *policy.Rule) { r.Name = "n" },
		func(r *policy.Rule) {},
	} {
		r := plain
		r.Endpoint = fmt.Sprint("GET /", i)
		change(&r)
		want = append(want, r)
		must(t, s.Set(ctx, tester, r))
	}
	if doc, _, err := s.Load(ctx); err != nil || !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Load = %+v, %v, want %+v", doc.Rules, err, want)
	}
}

func TestSetStoresTheCanonicalTemplate(t *testing.T) {
	everywhere(t, testSetStoresTheCanonicalTemplate)
}

func testSetStoresTheCanonicalTemplate(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /a/", Limit: 1}))
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /a", Limit: 2}))
	rules, err := s.List(ctx)
	if err != nil || len(rules) != 1 || rules[0].Endpoint != "GET /a" || rules[0].Limit != 2 {
		t.Errorf("List = %+v, %v, want GET /a alone, with limit 2", rules, err)
	}
	must(t, s.Delete(ctx, tester, record.RuleKey{Endpoint: "GET /a/"}))
}

// Whatever Set takes can be loaded and compiled; what could not be is refused
// with its reason.
func TestSetRefuses(t *testing.T) { everywhere(t, testSetRefuses) }

func testSetRefuses(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 1}))
	tests := []struct {
		rule policy.Rule
		want string
	}{
		{policy.Rule{Endpoint: "GET /a", Limit: 0}, "limit is 0, want 1 or more"},
		{policy.Rule{Endpoint: "GET /a", Limit: -5}, "limit is -5, want 1 or more"},
		{policy.Rule{Endpoint: "/a", Limit: 1}, `endpoint is "/a", want a template`},
		{policy.Rule{Endpoint: "DEFAULT", Limit: 1}, `endpoint is "DEFAULT", want "default", written exactly so`},
		{policy.Rule{Endpoint: "GET /a", Limit: 1, Per: 500 * time.Millisecond}, "per is 500ms, want whole seconds"},
		{policy.Rule{Endpoint: "GET /a", Limit: 1, Burst: -1}, "burst is -1, want 1 or more"},
		{policy.Rule{Endpoint: "GET /a", Limit: 1, Project: "p", Tier: "t"}, `tier is "t", want none`},
		{policy.Rule{Endpoint: "GET /a", Limit: 1, Project: "\xff"}, `project is "\xff", want a project in UTF-8`},
		{policy.Rule{Endpoint: "GET /a", Limit: 1, Subject: 99}, "subject is 99, want"},
		{policy.Rule{Endpoint: "GET /a", Limit: 1, Name: "ö"}, `name is "ö", want printable ASCII`},
		{policy.Rule{Endpoint: "GET /v1/items/{item}", Limit: 1},
			`endpoint is "GET /v1/items/{item}", want the parameter names of the rule that is there already: "GET /v1/items/{id}"`},
	}
	for _, tt := range tests {
		err := s.Set(ctx, tester, tt.rule)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Set(%+v) = %v, want %q on one line", tt.rule, err, tt.want)
		}
	}
	if rules, err := s.List(ctx); err != nil || len(rules) != 1 {
		t.Errorf("List = %d rules, %v, want 1", len(rules), err)
	}
}

func TestImportExport(t *testing.T) { everywhere(t, testImportExport) }

func testImportExport(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	old := policy.Rule{Endpoint: "GET /old", Limit: 1, Per: time.Second}
	must(t, s.Set(ctx, tester, old))
	must(t, s.SetTier(ctx, tester, "globex", "free"))

	doc := policy.Document{Rules: []policy.Rule{full}, Projects: map[string]string{"acme": "gold"}}
	must(t, s.Import(ctx, tester, doc, false))
	checkExport(t, s, []policy.Rule{old, full}, map[string]string{"acme": "gold", "globex": "free"})
	must(t, s.Import(ctx, tester, doc, true))
	checkExport(t, s, []policy.Rule{full}, map[string]string{"acme": "gold"})
	must(t, s.SetTier(ctx, tester, "acme", ""))
	checkExport(t, s, []policy.Rule{full}, map[string]string{})

	tests := []struct {
		name    string
		doc     policy.Document
		replace bool
		want    []string
	}{
		{"nothing in place of all", policy.Document{Source: "new.yaml"}, true, []string{"new.yaml: rules is empty"}},
		{"every fault is told", policy.Document{Rules: []policy.Rule{old, {Endpoint: "GET /a"},
			{Endpoint: "a", Limit: 1}}}, true,
			[]string{"rules[1] (GET /a): limit is 0", `rules[2] (a): endpoint is "a"`}},
		{"a rule twice", policy.Document{Rules: []policy.Rule{old, old}}, true,
			[]string{"rules[1] (GET /old): rule is the second"}},
		{"a tier without a name", policy.Document{Rules: []policy.Rule{old}, Projects: map[string]string{"p": " "}},
			true, []string{`tier is " "`}},
	}
	for _, tt := range tests {
		err := s.Import(ctx, tester, tt.doc, tt.replace)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Import = %v, want %q", tt.name, err, want)
			}
		}
		checkExport(t, s, []policy.Rule{full}, map[string]string{})
	}

	// Right by itself, wrong together with what is there.
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /v1/{a}", Limit: 1}))
	err := s.Import(ctx, tester, policy.Document{Rules: []policy.Rule{old, {Endpoint: "GET /v1/{b}", Limit: 1}}}, false)
	if err == nil || !strings.Contains(err.Error(),
		`want the parameter names of the rule that is there already: "GET /v1/{a}"`) {
		t.Errorf("Import of a twin = %v, want a refusal", err)
	}
	if _, err := s.Get(ctx, record.KeyOf(old)); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("after a refused import, Get of its first rule = %v, want ErrNotFound", err)
	}
}

func checkExport(t *testing.T, s *database.Store, rules []policy.Rule, projects map[string]string) {
	t.Helper()
	doc, err := s.Export(t.Context())
	if want := (policy.Document{Rules: rules, Projects: projects, Source: s.Path(), Number: doc.Number}); err != nil ||
		!reflect.DeepEqual(doc, want) {
		t.Errorf("Export = %+v, %v, want %+v", doc, err, want)
	}
}

// What people type into the sqlite3 shell.
func TestPlainSQL(t *testing.T) {
	s, ctx := open(t), t.Context()
	db := shell(t, s.Path())
	run(t, db,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /v1/items', NULL, 10)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /v1/items', 42, 20)`)
	doc, _, err := s.Load(ctx)
	want := []policy.Rule{
		{Endpoint: "GET /v1/items", Limit: 10, Per: time.Second},
		{Endpoint: "GET /v1/items", Project: "42", Limit: 20, Per: time.Second},
	}
	if err != nil || !reflect.DeepEqual(doc.Rules, want) {
		t.Errorf("Load = %+v, %v, want %+v", doc.Rules, err, want)
	}

	for _, bad := range []string{
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /v1/items', NULL, 10)`, // NULLs are equal here
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, 0)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, -1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, 'many')`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, 1.5)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, NULL)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('', NULL, 1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES (x'00', NULL, 1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', '', 1)`,
		`INSERT INTO policies (endpoint, project_id, tier, rps_limit) VALUES ('GET /b', 'p', 't', 1)`,
		`UPDATE policies SET per_seconds = 0`,
		`UPDATE policies SET burst = 0`,
		`UPDATE policies SET subject = 'everybody'`,
		`UPDATE policies SET mode = 'maybe'`,
		`UPDATE policies SET algorithm = x'00'`,
		`UPDATE policies SET scope = x'00'`,
		`UPDATE policies SET on_store_loss = 'panic'`,
		`UPDATE policies SET expires_at = 'tomorrow'`,
		`INSERT INTO api_keys (id, digest) VALUES ('k_1', 'the key itself')`,
		`INSERT INTO projects VALUES ('p', NULL)`,
	} {
		if _, err := db.ExecContext(ctx, bad); err == nil {
			t.Errorf("the schema accepts %s", bad)
		}
	}

	run(t, db, `UPDATE policies SET updated_at = 5`, `UPDATE policies SET rps_limit = 30 WHERE project_id = 42`)
	var touched int
	must(t, db.QueryRowContext(ctx, `SELECT count(*) FROM policies WHERE updated_at > 1500000000`).Scan(&touched))
	if touched != 1 {
		t.Errorf("updated_at moved in %d rows, want 1", touched)
	}
}

// Values that the schema would have refused, from a shell that has its checks
// switched off: every one is named, and what was in force stays.
func TestLoadNamesBadValues(t *testing.T) {
	s, ctx := open(t), t.Context()
	db := shell(t, s.Path())
	run(t, db, `INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /ok', NULL, 10)`)
	cache, err := policy.NewCache(policy.CacheOptions{Source: s, Compile: policy.CompileOptions{Endpoints: table(t)}})
	must(t, err)
	must(t, cache.Start(ctx))

	run(t, db, `PRAGMA ignore_check_constraints = ON`,
		`INSERT INTO policies (rowid, endpoint, project_id, rps_limit, per_seconds, subject) VALUES (7, 'GET /a', x'0102', 'many', 1.5, 'nobody')`,
		`INSERT INTO policies (rowid, endpoint, project_id, rps_limit, burst) VALUES (8, 'GET /b', NULL, -3, 'x')`,
		`INSERT INTO api_keys (id, digest) VALUES ('k_1', x'00')`)
	_, version, err := s.Load(ctx)
	if err == nil || version == "" {
		t.Fatalf("Load = version %q, %v, want the version and an error", version, err)
	}
	for _, want := range []string{
		`: table policies, row 7 ("GET /a"): project_id is a blob of 2 bytes, want a text`,
		`: table policies, row 7 ("GET /a"): rps_limit is "many", want a whole number of 1 or more`,
		`: table policies, row 7 ("GET /a"): per_seconds is 1.5, want a whole number of 1 or more`,
		`: table policies, row 7 ("GET /a"): subject is "nobody", want "principal"`,
		`: table policies, row 8 ("GET /b"): rps_limit is -3, want a whole number of 1 or more`,
		`: table policies, row 8 ("GET /b"): burst is "x", want a whole number of 1 or more`,
	} {
		if !strings.Contains(err.Error(), s.Path()+want) {
			t.Errorf("Load reports\n%v\nwant also %q", err, want)
		}
	}
	if _, _, err := s.Keys().Load(ctx); err == nil ||
		!strings.Contains(err.Error(), "table api_keys, row 1: digest is a blob of 1 bytes, want a blob of 32 bytes") {
		t.Errorf("Keys().Load = %v, want the row and the digest named", err)
	}
	if err := cache.Reload(ctx); err == nil || cache.Set().Len() != 1 {
		t.Errorf("Reload = %v with %d rules in force, want an error and the 1 that worked", err, cache.Set().Len())
	}
}

func table(t testing.TB) *endpoint.Table {
	t.Helper()
	template, err := endpoint.ParseTemplate("GET /ok")
	must(t, err)
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	must(t, err)
	return table
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "headgate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	s, err := database.Open(ctx, "sqlite:"+filepath.Join(dir, "headgate.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	if err := s.Set(ctx, tester, policy.Rule{Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 50}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(s.Set(ctx, tester, policy.Rule{Endpoint: "GET /v1/items/{id}", Project: "acme"}))
	rules, err := s.List(ctx)
	fmt.Println(len(rules), rules[0].Limit, err)
	// Output:
	// rules[0] (GET /v1/items/{id}, project acme): limit is 0, want 1 or more
	// 1 50 <nil>
}
