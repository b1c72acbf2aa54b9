package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate-io/headgate/policy"
	policysql "github.com/headgate-io/headgate/policy/sql"
	"github.com/headgate-io/headgate/server/dsn"
	"github.com/headgate-io/headgate/server/record"
)

// Table is a table or view that somebody else keeps, with rules in it.
type Table struct {
	Name    string            // possibly with a schema: limits.policies
	Columns map[string]string // what the columns are called that are not called as in policies

	// VersionQuery is a query for one value that differs after every change
	// of the table. Without it every look reads the table whole.
	VersionQuery string
}

// Elsewhere is where rules are kept that headgate only reads, and which is no database.
type Elsewhere interface {
	policy.Source
	Title() string

	// Watch calls changed after changes, until ctx ends.
	Watch(ctx context.Context, changed func())
}

// table reads rules from a Table, or from Elsewhere.
type table struct {
	title  string
	db     *sql.DB // nil for Elsewhere
	source policy.Source
	kind   interface{ say(error) string }
	watch  func(ctx context.Context, changed func()) // nil if nobody tells of changes

	setting, how string // by which headgate is told of it, and how rules are changed where they are kept
}

// plainly is what Elsewhere says of itself.
type plainly struct{}

func (plainly) say(err error) string { return err.Error() }

// openTable does not touch the database: it may be away, and is then like any
// other source that fails.
func (o Options) openTable() (*table, error) {
	if e := o.Elsewhere; e != nil {
		return &table{title: e.Title(), source: e, kind: plainly{}, watch: e.Watch,
			setting: "db", how: "kubectl and the like act on the running gateways"}, nil
	}
	t := &table{setting: "db_table", how: "INSERT, UPDATE or DELETE there acts on the running gateways"}
	quote := `"`
	switch dsn.Kind(o.DSN) {
	case "sqlite":
		path, err := parsePath(o.DSN)
		if err != nil {
			return nil, err
		}
		e := &embedded{path: path, readOnly: true, wait: lockWait}
		if t.db, err = e.connect("ro", readers, "query_only(1)"); err != nil {
			return nil, err
		}
		t.title, t.kind = path, e
	case "postgres":
		c, err := o.postgresConfig()
		if err != nil {
			return nil, err
		}
		t.db, t.title, t.kind = stdlib.OpenDB(*c), postgresTitle(c), &server{kind: &postgres{}}
	case "mysql":
		c, err := o.mysqlConfig()
		if err != nil {
			return nil, err
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, fmt.Errorf("database is %q: its parameters do not go together", dsn.Redact(o.DSN))
		}
		t.db, t.title, t.kind = sql.OpenDB(connector), title("mysql", c.User, c.Addr, c.DBName),
			&server{kind: mysqlKind{}}
		quote = "`"
	default:
		return nil, fmt.Errorf("database is %q, want %s", dsn.Redact(o.DSN), kinds)
	}
	t.db.SetMaxOpenConns(readers)
	t.db.SetMaxIdleConns(1)
	t.db.SetConnMaxLifetime(connectionLife)
	source, err := policysql.New(policysql.Options{
		DB: t.db, Table: o.Table.Name, Columns: o.Table.Columns, Quote: quote, VersionQuery: o.Table.VersionQuery,
	})
	if err != nil {
		return nil, errors.Join(err, t.db.Close())
	}
	t.title += ", table " + o.Table.Name
	t.source = source
	return t, nil
}

func (t *table) name() string { return t.title }

func (t *table) close() error {
	if t.db == nil {
		return nil
	}
	return t.db.Close()
}

func (t *table) version(ctx context.Context) (string, error) {
	look, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	version, err := t.source.Version(look)
	return version, t.explain(ctx, err)
}

func (t *table) load(ctx context.Context) (policy.Document, string, error) {
	doc, version, err := t.source.Load(ctx)
	doc.Source = t.title
	return doc, version, t.explain(ctx, err)
}

func (t *table) get(ctx context.Context, k record.RuleKey) (policy.Rule, error) {
	doc, _, err := t.load(ctx)
	if err != nil {
		return policy.Rule{}, err
	}
	for _, r := range doc.Rules {
		if record.KeyOf(r) == k {
			return r, nil
		}
	}
	return policy.Rule{}, fmt.Errorf("%v: %w", k, record.ErrNotFound)
}

func (t *table) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || isProblem(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", t.title, ctx.Err())
	}
	return &explained{t.title + ": " + t.kind.say(err), err}
}

// refuse is what a change of the rules meets.
func (t *table) refuse() error {
	return fmt.Errorf("%s: %w for headgate (%s), want the rules changed where they are kept: %s", t.title,
		record.ErrTable, t.setting, t.how)
}

// noHistory is what a question about versions meets.
func (t *table) noHistory() error {
	return fmt.Errorf("%s: %w, so there is no history that headgate keeps (%s), want the history of whoever keeps the "+
		"rules", t.title, record.ErrTable, t.setting)
}

// nothing is the database of API keys that has not been made: it holds none.
type nothing struct{}

var _ engine = nothing{}

var errNothing = fault("has not been made: there is no API key and no audit yet")

func (nothing) name() string { return "the database of API keys" }

func (nothing) read(context.Context, func(*tx) error) error           { return nil } // there is no row
func (nothing) write(context.Context, func(*tx) error) error          { return errNothing }
func (nothing) single(context.Context, func(statements) error) error  { return errNothing }
func (nothing) version(context.Context) (string, error)               { return "none", nil }
func (nothing) load(context.Context, func(*tx) error) (string, error) { return "none", nil }
func (nothing) watch(context.Context, func())                         {}
func (nothing) check(context.Context) error                           { return nil }
func (nothing) say(err error) string                                  { return err.Error() }
func (nothing) close() error                                          { return nil }
