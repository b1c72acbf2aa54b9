package database_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate-io/headgate/server/database"
)

// Who may write no version does not read what one would be made of: the changes
// of shells may be millions, and they are looked for again and again. Here the
// user may not even read them, and is told of what comes first.
func TestChangesAreNotReadInVain(t *testing.T) {
	rights := map[string]struct{ give, taken []string }{
		"PostgreSQL": {[]string{
			"CREATE ROLE narrow LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO narrow",
			"REVOKE SELECT ON policy_changes FROM narrow", "GRANT SELECT (id) ON policy_changes TO narrow",
		}, []string{"DROP OWNED BY narrow", "DROP ROLE narrow"}},
		"MariaDB": {[]string{
			"CREATE USER narrow@localhost", "GRANT SELECT ON goose_db_version TO narrow@localhost",
			"GRANT SELECT ON headgate_version TO narrow@localhost",
			"GRANT SELECT ON policy_versions TO narrow@localhost",
			"GRANT SELECT (id) ON policy_changes TO narrow@localhost",
		}, []string{"DROP USER narrow@localhost"}},
	}
	for _, k := range kinds {
		r, ok := rights[k.name]
		if !ok {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			d, ctx := k.make(t), t.Context()
			s, shell := d.open(t), d.shell(t)
			must(t, s.Set(ctx, ann, items(5)))
			run(t, shell, r.give...)
			t.Cleanup(func() {
				for _, statement := range r.taken {
					if _, err := shell.ExecContext(context.Background(), statement); err != nil {
						t.Error(err)
					}
				}
			})
			narrow := openDSN(t, database.Options{DSN: strings.Replace(d.dsn, "app@", "narrow@", 1)})
			must(t, narrow.Number(ctx)) // there is nothing yet
			run(t, shell, "UPDATE policies SET rps_limit = 6")
			err := narrow.Number(ctx)
			if got := saidBy(err); !strings.Contains(got, "policy_versions") {
				t.Errorf("Number = %v (%s), want the right to write policy_versions missed first", err, got)
			}
			must(t, s.Number(ctx))
			must(t, narrow.Number(ctx))
		})
	}
}

// saidBy is what a server said.
func saidBy(err error) string {
	var p *pgconn.PgError
	var m *mysql.MySQLError
	switch {
	case errors.As(err, &p):
		return p.Message
	case errors.As(err, &m):
		return m.Message
	}
	return ""
}
