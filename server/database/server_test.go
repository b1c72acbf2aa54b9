package database_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/record"
)

// What people type into a shell means the same everywhere: texts are compared
// byte for byte, and NULL is all projects, once.
func TestShellEverywhere(t *testing.T) { everywhere(t, testShellEverywhere) }

func testShellEverywhere(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	db := d.shell(t)
	run(t, db,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', NULL, 1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /A', NULL, 2)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', 'acme', 3)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', 'Acme', 4)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', 'acme ', 5)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', '42', 6)`,
		`INSERT INTO projects (project_id, tier) VALUES ('acme', 'gold'), ('Acme', 'free'), ('acme ', 'free')`)
	doc, _, err := s.Load(ctx)
	var want []policy.Rule
	for i, r := range []policy.Rule{{Endpoint: "GET /a"}, {Endpoint: "GET /A"}, {Project: "acme"}, {Project: "Acme"},
		{Project: "acme "}, {Project: "42"}} {
		r.Limit, r.Per = int64(i+1), time.Second
		if r.Endpoint == "" {
			r.Endpoint = "GET /a"
		}
		want = append(want, r)
	}
	projects := map[string]string{"acme": "gold", "Acme": "free", "acme ": "free"}
	if err != nil || !reflect.DeepEqual(doc.Rules, want) || !reflect.DeepEqual(doc.Projects, projects) {
		t.Errorf("Load = %+v, %v, want %+v and %v", doc, err, want, projects)
	}
	for _, w := range want {
		if got, err := s.Get(ctx, record.KeyOf(w)); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("Get(%v) = %+v, %v, want %+v", record.KeyOf(w), got, err, w)
		}
	}
	for _, bad := range []string{
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', NULL, 10)`, // NULLs are equal here
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /a', 'acme', 10)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, 0)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, -1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, 'many')`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', NULL, NULL)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('', NULL, 1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', '', 1)`,
		`INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /b', ' ', 1)`,
		`INSERT INTO policies (endpoint, project_id, tier, rps_limit) VALUES ('GET /b', 'p', 't', 1)`,
		`UPDATE policies SET per_seconds = 0`,
		`UPDATE policies SET burst = 0`,
		`UPDATE policies SET subject = 'everybody'`,
		`UPDATE policies SET mode = 'maybe'`,
		`UPDATE policies SET on_store_loss = 'panic'`,
		`UPDATE policies SET expires_at = 'tomorrow'`,
		`INSERT INTO api_keys (id, digest) VALUES ('k_1', 'the key itself')`,
		`INSERT INTO projects (project_id, tier) VALUES ('p', NULL)`,
		`INSERT INTO projects (project_id, tier) VALUES ('acme', 'again')`,
	} {
		if _, err := db.ExecContext(ctx, bad); err == nil {
			t.Errorf("the schema accepts %s", bad)
		}
	}
	run(t, db, `UPDATE policies SET updated_at = 5`, `UPDATE policies SET rps_limit = 30 WHERE project_id = '42'`)
	var touched int
	must(t, db.QueryRowContext(ctx, `SELECT count(*) FROM policies WHERE updated_at > 1500000000`).Scan(&touched))
	if touched != 1 {
		t.Errorf("updated_at moved in %d rows, want 1", touched)
	}
	must(t, s.Delete(ctx, tester, record.KeyOf(want[4])))
	must(t, s.SetTier(ctx, tester, "acme ", ""))
	if doc, _, err := s.Load(ctx); err != nil || len(doc.Rules) != 5 || doc.Projects["acme"] != "gold" ||
		len(doc.Projects) != 2 {
		t.Errorf("after what is about \"acme \" was deleted: %+v, %v, want the rest", doc, err)
	}
}

// Values that no check has seen: every one is named, and what was in force stays.
func TestBadValuesEverywhere(t *testing.T) { everywhere(t, testBadValuesEverywhere) }

func testBadValuesEverywhere(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	db := d.shell(t)
	run(t, db, `INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /ok', NULL, 10)`)
	cache, err := policy.NewCache(policy.CacheOptions{Source: s, Compile: policy.CompileOptions{Endpoints: table(t)}})
	must(t, err)
	must(t, cache.Start(ctx))
	// The columns without a check of their words, as a newer headgate may know more of them.
	run(t, db, `INSERT INTO policies (endpoint, rps_limit, algorithm, scope) VALUES ('GET /b', 1, 'magic', 'moon')`)
	_, version, err := s.Load(ctx)
	if err == nil || version == "" {
		t.Fatalf("Load = version %q, %v, want the version and an error", version, err)
	}
	for _, want := range []string{
		`: table policies, row 2 ("GET /b"): algorithm is "magic", want "token_bucket"`,
		`: table policies, row 2 ("GET /b"): scope is "moon", want "local"`,
	} {
		if !strings.Contains(err.Error(), s.Path()+want) {
			t.Errorf("Load reports\n%v\nwant also %q", err, want)
		}
	}
	if err := cache.Reload(ctx); err == nil || cache.Set().Len() != 1 {
		t.Errorf("Reload = %v with %d rules in force, want an error and the 1 that worked", err, cache.Set().Len())
	}
	run(t, db, `DELETE FROM policies WHERE endpoint = 'GET /b'`)
	if err := cache.Reload(ctx); err != nil {
		t.Errorf("Reload after the row was mended: %v", err)
	}
}

// An import of more rules than one statement takes, all of them new and then
// all of them there.
func TestLargeImportEverywhere(t *testing.T) { everywhere(t, testLargeImportEverywhere) }

func testLargeImportEverywhere(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	rules := manyRules(1001)
	for i := range rules {
		rules[i].Per = time.Second
	}
	must(t, s.Import(ctx, tester, policy.Document{Rules: rules}, true))
	for i := range rules {
		rules[i].Limit++
		rules[i].Burst = rules[i].Limit * 2
	}
	must(t, s.Import(ctx, tester, policy.Document{Rules: rules}, false))
	if got, err := s.List(ctx); err != nil || !reflect.DeepEqual(got, rules) {
		t.Errorf("List = %d rules, %v, want the %d, changed", len(got), err, len(rules))
	}
}

// Two editors: of a rule and of its twin in other parameter names, set at the
// same moment by two processes, only one gets in.
func TestConcurrentTwins(t *testing.T) { everywhere(t, testConcurrentTwins) }

func testConcurrentTwins(t *testing.T, d someDatabase) {
	stores, ctx := []*database.Store{d.open(t), d.open(t)}, t.Context()
	for round := range 10 {
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				_ = s.Set(ctx, tester, policy.Rule{Endpoint: fmt.Sprintf("GET /%d/{p%d}", round, i), Limit: 1})
			})
		}
		wg.Wait()
		if rules, err := stores[0].List(ctx); err != nil || len(rules) != round+1 {
			t.Fatalf("round %d: %d rules, %v, want one of the two: %+v", round, len(rules), err, rules)
		}
	}
}

// onServers runs a test on each kind of server, on one that nobody else uses.
func onServers(t *testing.T, test func(*testing.T, *dbtest.Server, someDatabase)) {
	for kind, start := range map[string]func() (*dbtest.Server, error){"PostgreSQL": dbtest.Postgres,
		"MariaDB": dbtest.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			server, err := start()
			must(t, err)
			t.Cleanup(func() {
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
			})
			test(t, server, databaseOf(t, kind, server))
		})
	}
}

// patience is how long a test waits for what happens by itself.
const patience = time.Minute

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// Whatever becomes of the server, the last good rules stay in force, the status
// says so, and nobody needs to restart anything.
func TestServerFaults(t *testing.T) { onServers(t, testServerFaults) }

func testServerFaults(t *testing.T, server *dbtest.Server, d someDatabase) {
	t.Parallel()
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /ok", Limit: 1}))
	cache, err := policy.NewCache(policy.CacheOptions{
		Source:   s,
		Compile:  policy.CompileOptions{Endpoints: table(t)},
		Interval: 20 * time.Millisecond,
		Spread:   true,
	})
	must(t, err)
	must(t, cache.Start(ctx))
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { cache.Run(running) })
	defer background.Wait()
	defer stop()
	inForce := func() int64 {
		return cache.Set().Rule(0).Limit
	}
	limit := int64(1)
	shell := d.shell(t)
	hurt := func(what string, break_ func(), want string) {
		t.Helper()
		break_()
		eventually(t, what, func() bool { return strings.Contains(cache.Status().LastError, want) })
		before := cache.Status().Stale
		eventually(t, what+": staleness rises", func() bool { return cache.Status().Stale > before })
		if inForce() != limit {
			t.Errorf("%s: limit %d in force, want the last good %d", what, inForce(), limit)
		}
	}
	heal := func(what string, mend func()) {
		t.Helper()
		mend()
		eventually(t, what+" and mended", func() bool { return cache.Status().LastError == "" })
		limit++
		must(t, s.Set(ctx, tester, policy.Rule{Endpoint: "GET /ok", Limit: limit}))
		eventually(t, what+", mended and changed", func() bool { return inForce() == limit })
	}

	hurt("stopped", func() { must(t, server.Halt()) }, s.Path()+": cannot be reached (connect: ")
	if err := s.Set(ctx, tester, policy.Rule{Endpoint: "GET /ok", Limit: 9}); err == nil ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("Set while the server is stopped: %v, want an error on one line", err)
	}
	heal("stopped", func() { must(t, server.Start()) })

	must(t, server.Halt()) // restarted between two looks perhaps
	heal("restarted", func() { must(t, server.Start()) })

	hurt("frozen", func() { must(t, server.Freeze()) }, "does not answer within")
	heal("frozen", func() { must(t, server.Thaw()) })

	hurt("table gone", func() { run(t, shell, "ALTER TABLE policies RENAME TO gone", bump()) },
		"lacks what this headgate reads")
	heal("table gone", func() { run(t, shell, "ALTER TABLE gone RENAME TO policies") })

	hurt("bad value", func() {
		run(t, shell, "INSERT INTO policies (endpoint, rps_limit, algorithm) VALUES ('GET /b', 1, 'magic')")
	}, `algorithm is "magic"`)
	heal("bad value", func() { run(t, shell, "DELETE FROM policies WHERE endpoint = 'GET /b'") })

	hurt("all deleted", func() { run(t, shell, "DELETE FROM policies") }, "the document is empty now")
	heal("all deleted", func() {
		run(t, shell, fmt.Sprintf("INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /ok', %d)", limit))
	})

	// Read-only: nothing changes what is in force, and a change is refused.
	run(t, shell, readOnly(d, true))
	if _, err := database.New(ctx, database.Options{DSN: d.dsn}); err != nil {
		t.Errorf("a database that is read-only and up to date is not opened: %v", err)
	}
	reader := d.open(t)
	if err := reader.Set(ctx, tester, full); err == nil || !strings.Contains(err.Error(), "is read-only") {
		t.Errorf("Set: %v, want it refused", err)
	}
	if rules, err := reader.List(ctx); err != nil || len(rules) != 1 {
		t.Errorf("List = %v, %v, want the rule", rules, err)
	}
	run(t, shell, readOnly(d, false))
}

// bump changes the version, as a trigger does.
func bump() string { return "UPDATE headgate_version SET version = 'other'" }

func readOnly(d someDatabase, on bool) string {
	if d.kind == "PostgreSQL" {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.dsn, "postgres://app@/"), "?")
		return fmt.Sprintf(
			"BEGIN; SET TRANSACTION READ WRITE; ALTER DATABASE %s SET default_transaction_read_only = %v; COMMIT", name,
			on)
	}
	return fmt.Sprintf("SET GLOBAL read_only = %v", on)
}

// A load whose connection is cut in its middle changes nothing.
func TestConnectionCutInMidLoad(t *testing.T) { everywhereButSQLite(t, testConnectionCutInMidLoad) }

func testConnectionCutInMidLoad(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	rules := manyRules(30_000)
	must(t, s.Import(ctx, tester, policy.Document{Rules: rules}, true))
	shell := d.shell(t)
	cutting, stop := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() {
		for cutting.Err() == nil {
			cutOthers(ctx, d, shell) // to its end: what is given up goes on in the server
		}
	})
	defer killer.Wait()
	defer stop()
	failed, loaded := 0, 0
	for deadline := time.Now().Add(patience); failed < 3 && time.Now().Before(deadline); {
		doc, _, err := s.Load(ctx)
		switch {
		case err != nil:
			failed++
			if len(doc.Rules) != 0 {
				t.Errorf("a load that was cut returned %d rules with %v", len(doc.Rules), err)
			}
		case len(doc.Rules) != len(rules):
			t.Errorf("a load that was cut returned %d rules and no error, want %d or an error",
				len(doc.Rules), len(rules))
		default:
			loaded++
		}
	}
	stop()
	killer.Wait()
	if failed == 0 {
		t.Errorf("no load was cut, %d were not", loaded)
	}
	// A server notices a little later that it is to end a connection.
	eventually(t, "a load afterwards", func() bool {
		doc, _, err := s.Load(ctx)
		if err == nil && len(doc.Rules) != len(rules) {
			t.Errorf("Load afterwards = %d rules, want %d", len(doc.Rules), len(rules))
		}
		return err == nil
	})
}

// A load does not wait for ever for a connection that the driver knows to be cut: it ends, and the next one succeeds.
func TestConnectionKnownToBeCut(t *testing.T) { everywhereButSQLite(t, testConnectionKnownToBeCut) }

func testConnectionKnownToBeCut(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	shell := d.shell(t)
	ended := make(chan error, 1)
	go func() { ended <- s.ReadCut(ctx, func() { cutOthers(ctx, d, shell) }) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a transaction whose connection was cut has no error")
		}
	case <-time.After(patience):
		t.Fatal("a transaction whose connection was cut does not end")
	}
	eventually(t, "a load afterwards", func() bool { _, _, err := s.Load(ctx); return err == nil })
}

// cutOthers ends every connection to a database but the shell's.
func cutOthers(ctx context.Context, d someDatabase, shell *sql.DB) {
	if d.kind == "PostgreSQL" {
		_, _ = shell.ExecContext(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "+
			"current_database() AND pid <> pg_backend_pid()")
		return
	}
	rows, err := shell.QueryContext(ctx,
		"SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()")
	if err != nil {
		return
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	_ = rows.Close()
	for _, id := range ids {
		_, _ = shell.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it may have ended
	}
}

// Databases that are not what headgate can use, in one line that says what is
// wanted.
func TestServerOpenFaults(t *testing.T) { everywhereButSQLite(t, testServerOpenFaults) }

func testServerOpenFaults(t *testing.T, d someDatabase) {
	ctx := t.Context()
	shell := d.shell(t)
	open := func(what string, o database.Options, want string) {
		t.Helper()
		s, err := database.New(ctx, o)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q on one line", what, err, want)
		}
	}
	open("empty, read-only", database.Options{DSN: d.dsn, ReadOnly: true, NoNotify: d.quiet},
		"has no tables of headgate")
	open("empty, where there was one", database.Options{DSN: d.dsn, Existing: true}, "has no tables of headgate")
	run(t, shell, "CREATE TABLE theirs (a INT)")
	open("another program's", database.Options{DSN: d.dsn}, `has tables of another program ("theirs"), want`)
	run(t, shell, "DROP TABLE theirs")
	s := d.open(t)
	must(t, s.Set(ctx, tester, full))
	run(t, shell, "CREATE TABLE theirs (a INT)") // beside ours is fine
	d.open(t)
	run(t, shell, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)")
	open("newer", database.Options{DSN: d.dsn}, "was written by a newer headgate (schema 99, this one knows 21)")
	run(t, shell, "DELETE FROM goose_db_version WHERE version_id >= 7")
	open("older, read-only", database.Options{DSN: d.dsn, ReadOnly: true, NoNotify: d.quiet},
		"has an older schema (6, this headgate reads 21)")

	none := regexp.MustCompile(`/test[0-9]+`).ReplaceAllString(d.dsn, "/nosuch")
	open("no such database", database.Options{DSN: none}, "want")
	nobody := strings.Replace(d.dsn, "app@", "stranger:wrong-password@", 1)
	_, err := database.New(ctx, database.Options{DSN: nobody})
	if err == nil || strings.Contains(err.Error(), "wrong-password") ||
		!strings.Contains(err.Error(), "refuses the user") {
		t.Errorf("a stranger: %v, want a refusal without the password", err)
	}
}

// A schema change that was killed in its middle is brought to its end.
func TestMigrationGoesOn(t *testing.T) { everywhereButSQLite(t, testMigrationGoesOn) }

func testMigrationGoesOn(t *testing.T, d someDatabase) {
	shell := d.shell(t)
	s := d.open(t)
	must(t, s.Set(t.Context(), tester, full))
	if d.kind == "MariaDB" { // where definitions are no transaction
		run(t, shell, "DELETE FROM goose_db_version WHERE version_id >= 5", "DROP TRIGGER api_keys_after_delete",
			"DROP TABLE audit")
	} else {
		run(t, shell, "DROP TABLE policies, projects, api_keys, audit, admin_tokens, api_calls, replicas, "+
			"headgate_version, policy_changes, policy_versions, policy_forgotten, limit_requests",
			"DROP FUNCTION headgate_changed, headgate_calls_keep_what_they_say, headgate_updated, "+
				"headgate_audit_keeps_all, headgate_rules_recorded, headgate_tiers_recorded, "+
				"headgate_history_keeps_all, headgate_history_keeps_what_is_not_forgotten, headgate_requests_stay",
			"DELETE FROM goose_db_version WHERE version_id >= 5")
	}
	again := d.open(t)
	must(t, again.Set(t.Context(), tester, full))
	if _, err := again.Append(t.Context(), record.Audit{Actor: "a", Action: record.ActionReset}); err != nil {
		t.Error(err)
	}
	if rules, err := again.List(t.Context()); err != nil || len(rules) != 1 {
		t.Errorf("List = %v, %v, want the rule", rules, err)
	}
}

// The password of a file, and of the environment.
func TestServerPassword(t *testing.T) { onServers(t, testServerPassword) }

func testServerPassword(t *testing.T, server *dbtest.Server, d someDatabase) {
	must(t, server.RequirePassword("it's a s3cret@/:"))
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("it's a s3cret@/:\n"), 0o600))
	openDSN(t, database.Options{DSN: d.dsn, PasswordFile: file})
	openDSN(t, database.Options{DSN: strings.Replace(d.dsn, "app@",
		url.UserPassword("app", "it's a s3cret@/:").String()+"@", 1)})
	for _, name := range []string{"PGPASSWORD", "MYSQL_PWD"} {
		t.Setenv(name, "it's a s3cret@/:")
	}
	openDSN(t, database.Options{DSN: d.dsn})
	for _, name := range []string{"PGPASSWORD", "MYSQL_PWD"} {
		t.Setenv(name, "wrong-password")
	}
	if _, err := database.Open(t.Context(), d.dsn); err == nil || !strings.Contains(err.Error(), "refuses the user") ||
		strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("with a wrong password: %v", err)
	}
	_, err := database.New(t.Context(), database.Options{DSN: d.dsn, PasswordFile: file + ".none"})
	if err == nil || !strings.Contains(err.Error(), "database password: open ") {
		t.Errorf("without the password's file: %v", err)
	}
}

// PostgreSQL tells of a change at once: no look is needed to learn of it.
func TestWatchIsTold(t *testing.T) { onServers(t, testWatchIsTold) }

func testWatchIsTold(t *testing.T, server *dbtest.Server, d someDatabase) {
	t.Parallel()
	s, ctx := d.open(t), t.Context()
	told := make(chan struct{}, 100)
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { s.Watch(watching, func() { told <- struct{}{} }) })
	defer watcher.Wait()
	defer stop()
	if d.kind != "PostgreSQL" {
		watcher.Wait() // it returns by itself, and not because it was stopped
		return
	}
	wait := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(patience):
			t.Fatalf("not told of %s within %v", what, patience)
		}
	}
	wait("the connection, before which anything may have happened")
	must(t, s.Set(ctx, tester, full))
	wait("a rule")
	shell := d.shell(t)
	run(t, shell, "TRUNCATE policies")
	wait("TRUNCATE in a shell")
	must(t, server.Halt())
	must(t, server.Start())
	wait("the new connection")
	must(t, s.SetTier(ctx, tester, "p", "t"))
	wait("a tier, after the server was restarted")

	// Behind a pooler nobody listens.
	quiet := openDSN(t, database.Options{DSN: d.dsn, NoNotify: true})
	must(t, quiet.Set(ctx, tester, full))
	quiet.Watch(ctx, func() { t.Error("told although nobody listens") })
}

// A user who may write rules and nothing else changes them, and every gateway
// learns of it; one who may only read can run a gateway.
func TestSmallRights(t *testing.T) {
	d := kinds[1].make(t)
	s, ctx := d.open(t), t.Context()
	shell := d.shell(t)
	run(t, shell, "DROP ROLE IF EXISTS editor", "DROP ROLE IF EXISTS looker", "CREATE ROLE editor LOGIN",
		"CREATE ROLE looker LOGIN",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON policies TO editor",
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker")
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY editor, looker", "DROP ROLE editor, looker"} {
			if _, err := shell.ExecContext(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
	})
	before, err := s.Version(ctx)
	must(t, err)
	run(t, shell, "SET ROLE editor", "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /ok', 1)", "RESET ROLE")
	if after, err := s.Version(ctx); err != nil || after == before {
		t.Errorf("after the editor's change: Version = %q, %v, want another", after, err)
	}
	looker := openDSN(t, database.Options{DSN: strings.Replace(d.dsn, "app@", "looker@", 1)})
	if doc, _, err := looker.Load(ctx); err != nil || len(doc.Rules) != 1 {
		t.Errorf("Load by one who may only read = %+v, %v, want the rule", doc, err)
	}
	if err := looker.Set(ctx, tester, full); err == nil ||
		!strings.Contains(err.Error(), "does not let the user do that") {
		t.Errorf("Set by one who may only read: %v", err)
	}
}
