package sql_test

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/sql"
)

var _ policy.Source = (*sql.Source)(nil)

type row = []driver.Value

func source(t *testing.T, o sql.Options) *sql.Source {
	t.Helper()
	s, err := sql.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t *testing.T, s *sql.Source) (policy.Document, string) {
	t.Helper()
	doc, version, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return doc, version
}

// TestThreeColumnsAreEnough: a user's own table, as the paper has it.
func TestThreeColumnsAreEnough(t *testing.T) {
	d, db := newDatabase(t)
	d.put("limits.api", "ID endpoint PROJECT_ID rps_limit updated_at",
		row{int64(1), "GET /v1/items/{id}", int64(42), int64(10), "today"},
		row{int64(2), []byte("default"), nil, []byte("50"), nil},
		row{int64(3), "UNKNOWN", nil, "1", nil},
		row{int64(4), "default", "acme", float64(7), nil},
	)
	doc, _ := load(t, source(t, sql.Options{DB: db, Table: "limits.api"}))
	want := policy.Document{Source: "limits.api", Rules: []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Project: "42", Limit: 10},
		{Endpoint: "default", Limit: 50},
		{Endpoint: "UNKNOWN", Limit: 1},
		{Endpoint: "default", Project: "acme", Limit: 7},
	}}
	if !reflect.DeepEqual(doc, want) {
		t.Errorf("Load = %+v\nwant %+v", doc, want)
	}
	asked := []string{"SELECT * FROM limits.api WHERE 1 = 0", "SELECT endpoint, project_id, rps_limit FROM limits.api"}
	if !slices.Equal(d.asked, asked) {
		t.Errorf("asked %q, want %q: no column that is not needed", d.asked, asked)
	}
}

const everyColumn = "endpoint project_id rps_limit per_seconds burst tier subject algorithm mode scope " +
	"on_store_loss expires_at name enforce_percent"

func TestEveryColumn(t *testing.T) {
	d, db := newDatabase(t)
	end := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	d.put("policies", everyColumn,
		row{"GET /a", "acme", int64(5), int64(60), int64(9), nil, "ip", "token_bucket", "shadow", "local", "open",
			end.Unix(), "a", nil},
		row{"GET /a", nil, int64(5), nil, nil, "gold", []byte("project"), nil, nil, nil, nil, "2026-01-31T00:00:00Z",
			"", int64(25)},
		row{"GET /a", nil, int64(5), nil, nil, nil, nil, nil, nil, nil, nil, end, nil, "100"},
		row{"GET /b", nil, int64(5), nil, nil, nil, nil, nil, nil, nil, nil, []byte("1769817600"), nil, nil},
		row{"GET /c", nil, int64(math.MaxInt64), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
	)
	d.put("projects", "project_id tier", row{"acme", "gold"}, row{int64(42), []byte("silver")}, row{"plain", nil})
	doc, _ := load(t, source(t, sql.Options{DB: db, Projects: "projects"}))
	want := policy.Document{
		Source:   "policies",
		Projects: map[string]string{"acme": "gold", "42": "silver"},
		Rules: []policy.Rule{
			{Endpoint: "GET /a", Project: "acme", Limit: 5, Per: time.Minute, Burst: 9, Subject: policy.SubjectIP,
				Mode: policy.Shadow, OnStoreLoss: policy.LossOpen, Expires: end, Name: "a"},
			{
				Endpoint:       "GET /a",
				Tier:           "gold",
				Limit:          5,
				Subject:        policy.SubjectProject,
				Expires:        end,
				EnforcePercent: 25,
			},
			{Endpoint: "GET /a", Limit: 5, Expires: end, EnforcePercent: 100},
			{Endpoint: "GET /b", Limit: 5, Expires: end},
			{Endpoint: "GET /c", Limit: math.MaxInt64},
		},
	}
	if !reflect.DeepEqual(doc, want) {
		t.Errorf("Load = %+v\nwant %+v", doc, want)
	}
}

// TestWrongValues: table, row, field, value, want.
func TestWrongValues(t *testing.T) {
	const whole = "a whole number, 1 to 9223372036854775807"
	tests := []struct {
		column string
		value  driver.Value
		want   string
	}{
		{"rps_limit", 1.5, "rps_limit is 1.5, want " + whole},
		{"rps_limit", 1e30, "rps_limit is 1e+30, want " + whole},
		{"rps_limit", math.NaN(), "rps_limit is NaN, want " + whole},
		{"rps_limit", "ten", `rps_limit is "ten", want ` + whole},
		{"rps_limit", []byte("10.00"), `rps_limit is "10.00", want ` + whole},
		{"rps_limit", "1000000000000000000000000000000",
			`rps_limit is "1000000000000000000000000000000", want ` + whole},
		{"rps_limit", nil, "rps_limit is NULL, want " + whole},
		{"rps_limit", true, "rps_limit is true, want " + whole},
		{"rps_limit", int64(0), "rps_limit is 0, want " + whole},
		{"rps_limit", int64(-1), "rps_limit is -1, want " + whole},
		{"per_seconds", 0.5, "per_seconds is 0.5, want whole seconds, 1 to 9223372036"},
		{"per_seconds", int64(math.MaxInt64),
			"per_seconds is 9223372036854775807, want whole seconds, 1 to 9223372036"},
		{"burst", int64(0), "burst is 0, want " + whole},
		{"tier", "", `tier is "", want text that is not empty, or NULL`},
		{"subject", "user", `subject is "user", want "principal", "ip", "principal_ip", "project", "region", "endpoint", "identifier", "identifier_ip" or "site"; or "path:NAME" for a parameter of the path, "claim:NAME" for a claim of the token; each also behind "requests:" or "in_flight:", or NULL`},
		{"algorithm", "gcra", `algorithm is "gcra", want "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "calendar" or "concurrency", or NULL`},
		{"mode", int64(1), `mode is 1, want "enforce", "shadow", "allow" or "block", or NULL`},
		{"scope", "", `scope is "", want "local", "split", "strict", "lease", "sync" or "gossip", or NULL`},
		{"on_store_loss", "deny", `on_store_loss is "deny", want "closed", "share" or "open", or NULL`},
		{"expires_at", "2026-01-31 00:00:00",
			`expires_at is "2026-01-31 00:00:00", want Unix seconds, text such as "2026-01-31T00:00:00Z", or NULL for never`},
		{"expires_at", int64(math.MaxInt64),
			`expires_at is 9223372036854775807, want Unix seconds, text such as "2026-01-31T00:00:00Z", or NULL for never`},
		{"enforce_percent", int64(0), "enforce_percent is 0, want " + whole},
		{"enforce_percent", 2.5, "enforce_percent is 2.5, want " + whole},
		{"name", int64(3), "name is 3, want text or NULL"},
		// no character is cut in two
		{"rps_limit", strings.Repeat("x", 99) + "éé", `rps_limit is "` + strings.Repeat("x", 99) + `…", want ` + whole},
	}
	columns := strings.Fields(everyColumn)
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.column, " ", tt.value), func(t *testing.T) {
			d, db := newDatabase(t)
			good := row{"GET /a", nil, int64(5), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
			bad := slices.Clone(good)
			bad[1], bad[slices.Index(columns, tt.column)] = "acme", tt.value
			d.put("policies", everyColumn, good, bad)
			doc, _, err := source(t, sql.Options{DB: db}).Load(t.Context())
			want := `policies: row (endpoint "GET /a", project_id "acme"): ` + tt.want
			if err == nil || err.Error() != want {
				t.Errorf("Load\n got %v\nwant %s", err, want)
			}
			var p policy.Problem
			if !errors.As(err, &p) || p.Rule != 1 || p.Field != tt.column {
				t.Errorf("errors.As = %+v, want the problem with %s of rule 1", p, tt.column)
			}
			if len(doc.Rules) != 0 {
				t.Errorf("Load returned rules with its error")
			}
		})
	}
}

func TestWrongRowsAreReportedTogether(t *testing.T) {
	d, db := newDatabase(t)
	d.put("policies", "endpoint project_id rps_limit",
		row{nil, "", int64(1)},
		row{"default", 1.5, "x"},
		row{int64(7), nil, int64(1)},
	)
	d.put("projects", "project_id tier", row{nil, "gold"}, row{"acme", int64(3)}, row{"b", "gold"}, row{"b", "gold"})
	_, _, err := source(t, sql.Options{DB: db, Projects: "projects"}).Load(t.Context())
	want := `policies: row (endpoint NULL, project_id ""): project_id is "", want text that is not empty, a whole number, or NULL for all projects
policies: row (endpoint NULL, project_id ""): endpoint is NULL, want a template, "default", "UNKNOWN" or "*"
policies: row (endpoint "default", project_id 1.5): project_id is 1.5, want text that is not empty, a whole number, or NULL for all projects
policies: row (endpoint "default", project_id 1.5): rps_limit is "x", want a whole number, 1 to 9223372036854775807
policies: row (endpoint 7, project_id NULL): endpoint is 7, want text that is not empty, or NULL
projects: row (project_id NULL): project_id is NULL, want a project
projects: row (project_id "acme"): tier is 3, want text that is not empty, or NULL
projects: row (project_id "b"): project_id is "b", want one row for each project`
	if err == nil || err.Error() != want {
		t.Errorf("Load\n got %v\nwant %s", err, want)
	}
}

func TestMissingColumns(t *testing.T) {
	d, db := newDatabase(t)
	d.put("policies", "endpoint limit")
	_, _, err := source(t, sql.Options{DB: db}).Load(t.Context())
	want := `policies: column project_id is missing, want a table or view with endpoint, project_id, rps_limit
policies: column rps_limit is missing, want a table or view with endpoint, project_id, rps_limit`
	if err == nil || err.Error() != want {
		t.Errorf("Load\n got %v\nwant %s", err, want)
	}
}

// TestDatabaseFailures have no version: they may pass, and are tried again.
func TestDatabaseFailures(t *testing.T) {
	away := errors.New("connection reset")
	d, db := newDatabase(t)
	d.put("policies", "endpoint project_id rps_limit", row{"default", nil, int64(1)}, row{"UNKNOWN", nil, int64(1)})
	s := source(t, sql.Options{DB: db, Version: func(context.Context, *stdsql.DB) (string, error) { return "7", nil }})
	d.fails = away
	if _, version, err := s.Load(t.Context()); !errors.Is(err, away) || version != "" {
		t.Errorf("Load of a dead database = %q, %v, want no version and its error", version, err)
	}
	d.fails, d.breaks = nil, away
	if doc, version, err := s.Load(t.Context()); !errors.Is(err, away) || version != "" || len(doc.Rules) != 0 {
		t.Errorf("Load of a dying database = %+v, %q, %v, want nothing but its error", doc, version, err)
	}
	d.breaks = nil
	d.put("policies", "endpoint project_id rps_limit", row{"default", nil, int64(0)})
	if _, version, err := s.Load(t.Context()); err == nil || version != "7" {
		t.Errorf("Load of bad rows = %q, %v, want version 7: it will stay bad", version, err)
	}
}

func TestMaxRows(t *testing.T) {
	d, db := newDatabase(t)
	d.put("policies", "endpoint project_id rps_limit", row{"default", nil, int64(1)}, row{"UNKNOWN", nil, int64(1)})
	load(t, source(t, sql.Options{DB: db, MaxRows: 2}))
	_, _, err := source(t, sql.Options{DB: db, MaxRows: 1}).Load(t.Context())
	if want := "read policies: more than 1 rows, want MaxRows at most"; err == nil || err.Error() != want {
		t.Errorf("Load = %v, want %s", err, want)
	}
}

func TestTooManyProblems(t *testing.T) {
	d, db := newDatabase(t)
	d.put("policies", "endpoint project_id rps_limit", slices.Repeat([]row{{"default", nil, nil}}, 5000)...)
	_, _, err := source(t, sql.Options{DB: db}).Load(t.Context())
	if lines := strings.Count(err.Error(), "\n"); lines != 100 {
		t.Errorf("Load reports %d lines, want 100 and the one that says that reading ended", lines+1)
	}
}

func TestVersion(t *testing.T) {
	d, db := newDatabase(t)
	put := func(limit int64, rows ...row) {
		d.put("policies", "endpoint project_id rps_limit", append(rows, row{"default", nil, limit})...)
	}
	put(1)
	d.put("policy_version", "version", row{int64(41)})

	t.Run("content", func(t *testing.T) {
		s := source(t, sql.Options{DB: db})
		if v, err := s.Version(t.Context()); v != "" || err != nil {
			t.Errorf("Version = %q, %v, want that only loading can tell", v, err)
		}
		_, first := load(t, s)
		_, again := load(t, s)
		put(2)
		_, changed := load(t, s)
		if first != again || first == changed || first == "" {
			t.Errorf("versions %q, %q, and %q after a change", first, again, changed)
		}
	})
	t.Run("order of rows", func(t *testing.T) {
		s := source(t, sql.Options{DB: db})
		other := row{"UNKNOWN", nil, int64(1)}
		put(1, other)
		_, first := load(t, s)
		d.put("policies", "endpoint project_id rps_limit", row{"default", nil, int64(1)}, other)
		if _, second := load(t, s); first != second {
			t.Errorf("the order of the rows, which SQL does not promise, changes the version")
		}
	})
	t.Run("query", func(t *testing.T) {
		s := source(t, sql.Options{DB: db, VersionQuery: "SELECT version FROM policy_version"})
		_, version := load(t, s)
		if v, err := s.Version(t.Context()); v != "41" || version != "41" || err != nil {
			t.Errorf("Version = %q, %v, Load's %q, want 41", v, err, version)
		}
		d.put("policy_version", "version", row{nil})
		if v, err := s.Version(t.Context()); err == nil {
			t.Errorf("Version of NULL = %q, want an error", v)
		}
	})
}

func TestNewReportsEveryProblem(t *testing.T) {
	_, err := sql.New(sql.Options{
		Table: "policies; DROP TABLE users", Projects: "a.b.c.d", MaxRows: -1, VersionQuery: "SELECT 1",
		Version: func(context.Context, *stdsql.DB) (string, error) { return "", nil },
	})
	want := `policy table: DB is nil, want one
Table is "policies; DROP TABLE users", want letters, digits and underscores, with a schema and a dot in front at most
Projects is "a.b.c.d", want letters, digits and underscores, with a schema and a dot in front at most
Version and VersionQuery are both set, want one
MaxRows is -1, want 1 or more, or 0 for 10 million`
	if err == nil || err.Error() != want {
		t.Errorf("New = %v\nwant %s", err, want)
	}
}

// TestCacheOverTables: the whole way, from a row to the rule in force.
func TestCacheOverTables(t *testing.T) {
	d, db := newDatabase(t)
	d.put("policies", "endpoint project_id rps_limit", row{"default", nil, int64(10)})
	cache, err := policy.NewCache(policy.CacheOptions{Source: source(t, sql.Options{DB: db})})
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.put("policies", "endpoint project_id rps_limit", row{"default", nil, 1.5})
	if err := cache.Reload(t.Context()); err == nil {
		t.Error("Reload of a limit of 1.5 = nil")
	}
	if got := cache.Set().Rule(0).Limit; got != 10 {
		t.Errorf("limit %d in force, want 10", got)
	}
	d.put("policies", "endpoint project_id rps_limit", row{"default", nil, int64(20)})
	if err := cache.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := cache.Set().Rule(0).Limit; got != 20 {
		t.Errorf("limit %d in force, want 20", got)
	}
}

func BenchmarkLoad(b *testing.B) {
	d := &database{tables: map[string]*rowsOf{}}
	db := stdsql.OpenDB(d)
	defer db.Close()
	var rows []row
	for i := range 100_000 {
		rows = append(rows, row{fmt.Sprintf("GET /v1/service%d", i%1000), int64(i / 1000), int64(10)})
	}
	d.put("policies", "endpoint project_id rps_limit", rows...)
	s, err := sql.New(sql.Options{DB: db})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
