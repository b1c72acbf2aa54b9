// Package sql reads policies from a table or view of any database/sql database.
//
// Three columns are enough:
//
//	endpoint    text     a template, "default", "UNKNOWN" or "*"
//	project_id  any      text or a whole number; NULL for all projects
//	rps_limit   integer  tokens per per_seconds, 1 or more
//
// These are read when the table has them. NULL stands for the default:
//
//	per_seconds    integer  default 1
//	burst          integer  default as policy.CompileOptions.BurstPercent says
//	tier           text     for all projects of a tier; not together with project_id
//	subject, algorithm, mode, scope, on_store_loss
//	               text     as in policy.Rule
//	expires_at     integer  Unix seconds; or RFC 3339 text, or a time
//	name           text     shown to clients
//	enforce_percent
//	               integer  for how many of a hundred subjects it denies; default 100
//	count_when     text     which answers count: "401,403"
//	penalty        text     "10 in 1m for 15m"
//	refusal        text     "503 without fields"
//	priority       text     "low", "high:30,normal:20,low:10"
//
// Other columns are left alone. A value of another kind is an error that names
// the table, the row, the field, the value and what is wanted; all of them are
// found at once.
//
// The package imports no driver: the caller opens the *sql.DB.
package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/policy"
)

// Options configures a Source. DB is required; every other zero value is a safe
// default.
type Options struct {
	DB *sql.DB

	// Table is the table or view of the rules, possibly with a schema:
	// "policies" or "limits.policies". It is put into the query as it is, so
	// it may hold letters, digits, underscores and dots only. Default
	// "policies".
	Table string

	// Columns is what the columns of Table are called that have other names:
	// {"endpoint": "path", "project_id": "tenant"}. With it, only the three
	// that are needed are read and those that it names: what a column means
	// in somebody else's table, its name does not tell. Names are put into
	// the query as the table spells them, between two of Quote.
	Columns map[string]string

	// Quote stands around the names of columns: a backtick for MySQL, " for
	// others. Default none, which is enough for names that are no words of
	// SQL's and have no capital letters.
	Quote string

	// Projects is a table with the columns project_id and tier. Empty means
	// that no project has a tier.
	Projects string

	// Version reports a text that differs after every change of either table,
	// cheaply: it is asked at every interval of the cache. VersionQuery is the
	// same as a query for one value, such as "SELECT version FROM
	// policy_version". At most one may be set. Without either, every look reads
	// both tables whole and compares a hash of them. What only one connection
	// knows, as SQLite's PRAGMA data_version, needs Version and a connection
	// of its own: DB is a pool.
	Version      func(context.Context, *sql.DB) (string, error)
	VersionQuery string

	// MaxRows bounds how many rows are read from each table. Default 10 million.
	MaxRows int
}

// Source is a policy.Source over tables. It is safe for concurrent use.
type Source struct{ o Options }

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,2}$`)

// New returns a Source. It does not touch the database.
func New(o Options) (*Source, error) {
	if o.Table == "" {
		o.Table = "policies"
	}
	var errs []error
	if o.DB == nil {
		errs = append(errs, errors.New("DB is nil, want one"))
	}
	name := func(field, value string) {
		if !identifier.MatchString(value) {
			errs = append(errs,
				fmt.Errorf("%s is %q, want letters, digits and underscores, with a schema and a dot in front at most",
					field, value))
		}
	}
	name("Table", o.Table)
	if o.Projects != "" {
		name("Projects", o.Projects)
	}
	for _, column := range slices.Sorted(maps.Keys(o.Columns)) {
		if !slices.Contains(columnNames, column) {
			errs = append(errs, fmt.Errorf("Columns has %q, want one of %s", column, strings.Join(columnNames, ", ")))
		}
		if called := o.Columns[column]; called == "" || strings.ContainsAny(called, "\"`\\\x00") {
			errs = append(errs, fmt.Errorf("Columns[%s] is %q, want the name of a column, without quotation marks",
				column, called))
		}
	}
	if o.Version != nil && o.VersionQuery != "" {
		errs = append(errs, errors.New("Version and VersionQuery are both set, want one"))
	}
	if o.MaxRows < 0 {
		errs = append(errs, fmt.Errorf("MaxRows is %d, want 1 or more, or 0 for 10 million", o.MaxRows))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("policy table: %w", err)
	}
	if o.MaxRows == 0 {
		o.MaxRows = 10_000_000
	}
	return &Source{o}, nil
}

// Version reports the version of the tables, or "" when only reading them can
// tell.
func (s *Source) Version(ctx context.Context) (string, error) {
	switch {
	case s.o.Version != nil:
		return s.o.Version(ctx, s.o.DB)
	case s.o.VersionQuery != "":
		var version sql.NullString
		if err := s.o.DB.QueryRowContext(ctx, s.o.VersionQuery).Scan(&version); err != nil {
			return "", fmt.Errorf("version query: %w", err)
		}
		if !version.Valid || version.String == "" {
			return "", errors.New("version query: the value is empty or NULL, want one that changes with the tables")
		}
		return version.String, nil
	}
	return "", nil
}

// Load reads the tables.
func (s *Source) Load(ctx context.Context) (policy.Document, string, error) {
	// The version comes first: a change in between is then seen at the next look.
	version, err := s.Version(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	doc := policy.Document{Source: s.o.Table}
	l := loader{rows: s.o.MaxRows, texts: map[string]string{}}
	err = l.rules(ctx, s.o, &doc)
	if err == nil && s.o.Projects != "" {
		err = l.projects(ctx, s.o, &doc)
	}
	switch {
	case err != nil && !errors.Is(err, errTooMany):
		return policy.Document{}, "", err // the database's fault, which may pass
	case len(l.problems) > 0:
		// Without a version of their own, the same faults are only known by
		// reading them again.
		return policy.Document{}, version, errors.Join(append(l.problems, err)...)
	case version == "":
		version = doc.Fingerprint()
	}
	return doc, version, nil
}

// columnNames are the columns that are read, in the order of loader.rule.
var columnNames = []string{
	"endpoint", "project_id", "rps_limit", "per_seconds", "burst", "tier", "subject", "algorithm",
	"mode", "scope", "on_store_loss", "expires_at", "name", "enforce_percent",
	"count_when", "penalty", "refusal", "priority",
}

// required is how many of columnNames a table must have.
const required = 3

// column is a column of a table.
type column struct {
	name   string // ours
	wanted string // as the caller spells it
	called string // as the table does
}

// wanted reports which columns to look for in the table of the rules, the
// required ones first.
func (o Options) wanted() (columns []column) {
	for i, name := range columnNames {
		called, named := o.Columns[name]
		if !named {
			called = name
		}
		if named || i < required || len(o.Columns) == 0 {
			columns = append(columns, column{name: name, wanted: called})
		}
	}
	return columns
}

// present reports which of the columns a table has, as it spells them; the first
// few, and those that were renamed, it must have. A name that differs in case is
// as good, if there is no better one.
func present(ctx context.Context, db *sql.DB, table string, wanted []column, required int) ([]column, error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return nil, fmt.Errorf("columns of %s: %w", table, err)
	}
	defer rows.Close() //nolint:errcheck // nothing was read
	has, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("columns of %s: %w", table, err)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("columns of %s: %w", table, err)
	}
	spelt := map[string]string{}
	for _, name := range has {
		spelt[strings.ToLower(name)] = name
	}
	for _, name := range has {
		spelt[name] = name
	}
	var names []string
	for _, c := range wanted[:required] {
		names = append(names, c.wanted)
	}
	var found []column
	var missing []error
	for i, c := range wanted {
		called, ok := spelt[c.wanted]
		if !ok {
			called, ok = spelt[strings.ToLower(c.wanted)]
		}
		switch {
		case ok:
			found = append(found, column{c.name, c.wanted, called})
		case i < required || c.wanted != c.name:
			missing = append(missing, policy.Problem{Code: "column", Rule: -1, Where: table,
				Field: "column " + c.wanted, Value: "missing",
				Want: "a table or view with " + strings.Join(names, ", ")})
		}
	}
	return found, errors.Join(missing...)
}

// lookUp is how many rows are read before whoever waits for them is told.
const lookUp = 1 << 10

// each reads the columns of a table, row by row, each value as the driver
// gives it.
func (l *loader) each(ctx context.Context, db *sql.DB, table, quote string, columns []column,
	f func(values []any) error) error {
	var list []string
	for _, c := range columns {
		if quote == "" {
			list = append(list, c.wanted)
			continue
		}
		list = append(list, quote+c.called+quote)
	}
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(list, ", ")+" FROM "+table)
	if err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for n := 0; rows.Next(); n++ {
		if n == l.rows {
			return fmt.Errorf("read %s: more than %d rows, want MaxRows at most", table, l.rows)
		}
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("read %s: %w", table, err)
		}
		if err := f(values); err != nil {
			return err
		}
		if n%lookUp == 0 {
			policy.Progress(ctx)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	return nil
}
