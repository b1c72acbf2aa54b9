package config_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

func TestDatabase(t *testing.T) {
	tests := []struct {
		name   string
		change func(*config.Config)
		want   []string // parts of the error; none: it is right
	}{
		{"a file", func(c *config.Config) { c.DB = "sqlite:a.db" }, nil},
		{"a server", func(c *config.Config) {
			c.DB, c.Database.PasswordFile, c.Database.Notify = "postgres://u:hidden@h/d", "pw", false
		}, nil},
		{"a table", func(c *config.Config) {
			c.DB, c.Database.Table, c.Database.Columns, c.Database.VersionQuery = "mariadb://u@h/d", "plans",
				map[string]string{"endpoint": "path"}, "SELECT 1"
		}, nil},
		{"no kind", func(c *config.Config) { c.DB = "headgate.db" },
			[]string{`db is "headgate.db", want sqlite:PATH, postgres://`}},
		{"another kind", func(c *config.Config) { c.DB = "oracle://u:hidden@h/d" },
			[]string{`db is "oracle://u:xxxxx@h/d", want sqlite:PATH`}},
		{"a file with a password", func(c *config.Config) { c.Database.PasswordFile = "pw" },
			[]string{`db_password_file is "pw", want none`}},
		{"settings of no table", func(c *config.Config) {
			c.Database.Columns, c.Database.VersionQuery = map[string]string{"endpoint": "path"}, "SELECT 1"
		}, []string{`db_columns is "map[endpoint:path]", want none, or db_table set`,
			`db_version_query is "SELECT 1", want none, or db_table set`}},
		{"keys on a server", func(c *config.Config) {
			c.DB, c.Database.Table, c.Database.Keys = "postgres://h/d", "plans", "postgres://u:hidden@h/d"
		}, []string{`db_keys is "postgres://u:xxxxx@h/d", want sqlite:PATH`}},
		{"keys in the table's file", func(c *config.Config) { c.Database.Table = "plans" },
			[]string{`db_keys is "sqlite:headgate.db", want another file than db`}},
	}
	for _, tt := range tests {
		c := config.Default()
		c.Upstream, c.Unknown = "http://127.0.0.1:1", "limit"
		tt.change(&c)
		err := c.Complete()
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%s: Complete = %v, want %q", tt.name, err, tt.want)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: Complete = %v, want %q and no password", tt.name, err, want)
			}
		}
	}
}

// Beside a server there is no file, and no part of its URL becomes a path.
func TestFilesBesideDatabase(t *testing.T) {
	for _, tt := range []struct{ db, table, keys, want, copied string }{
		{"sqlite:/var/a.db", "", "", "/var/a.db.secret", "/var/a.db.last-good.json"},
		{"postgres://u:hidden@h/d", "", "", "headgate.db.secret", "headgate-46db0b5a754b.last-good.json"},
		{"postgres://u:hidden@h/d", "plans", "sqlite:/var/k.db", "/var/k.db.secret",
			"/var/k.db.table-736ae14eb69f.last-good.json"},
		{"sqlite:/var/theirs.db", "plans", "sqlite:/var/k.db", "/var/k.db.secret",
			"/var/k.db.table-e65c244afe24.last-good.json"},
	} {
		c := config.Default()
		c.DB, c.Database.Table, c.Database.Keys = tt.db, tt.table, tt.keys
		if c.FillPaths(); c.SecretFile != tt.want {
			t.Errorf("secret file of %s with table %q is %s, want %s", tt.db, tt.table, c.SecretFile, tt.want)
		}
		if c.LastGood != tt.copied {
			t.Errorf("last good rules of %s with table %q are kept in %s, want %s", tt.db, tt.table,
				c.LastGood, tt.copied)
		}
	}
}

// Gateways on different servers, started in one folder, do not share a copy; one
// whose user or password was changed finds its own.
func TestCopiesOfServersAreApart(t *testing.T) {
	copied := func(dsn string) string {
		c := config.Default()
		c.DB = dsn
		c.FillPaths()
		return c.LastGood
	}
	const one = "postgres://u:hidden@h/d"
	for dsn, same := range map[string]bool{
		"postgres://v:other@h/d":                true,
		"postgres://h/d":                        true,
		"postgres://u:hid@den@h/d":              true,
		"postgres://h/d?sslmode=disable":        true,
		"postgres://h/d?password=x&user=y":      true,
		"postgres://u:hidden@h2/d":              false,
		"postgres://u:hidden@h:5433/d":          false,
		"postgres://u:hidden@h,h2/d":            false,
		"postgres://u:hidden@h/d2":              false,
		"postgres://u:hidden@h/d?search_path=x": false,
		"postgres:///d?host=h":                  false,
		"mysql://u:hidden@h/d":                  false,
	} {
		if got := copied(dsn) == copied(one); got != same {
			t.Errorf("the copies of %s and %s are %s and %s, want one file: %v", dsn, one, copied(dsn),
				copied(one), same)
		}
	}
}

// Two gateways with one file of keys, or one gateway before and after it was
// given another table, do not begin with the rules of each other.
func TestCopiesOfTablesAreApart(t *testing.T) {
	copied := func(dsn, table string) string {
		c := config.Default()
		c.DB, c.Database.Table, c.Database.Keys = dsn, table, "sqlite:/var/k.db"
		c.FillPaths()
		return c.LastGood
	}
	one := copied("postgres://u:hidden@h/d", "plans")
	for _, tt := range []struct {
		dsn, table string
		same       bool
	}{
		{"postgres://v:other@h/d", "plans", true},
		{"postgres://u:hidden@h/d", "limits.plans", false},
		{"postgres://u:hidden@h/d2", "plans", false},
		{"mysql://u:hidden@h/d", "plans", false},
		{"sqlite:/var/theirs.db", "plans", false},
	} {
		if got := copied(tt.dsn, tt.table); (got == one) != tt.same {
			t.Errorf("the copies of %s, %s and of the first are %s and %s, want one file: %v", tt.dsn, tt.table,
				got, one, tt.same)
		}
	}
	if a, b := copied("sqlite:/var/a.db", "plans"), copied("sqlite:/var/b.db", "plans"); a == b {
		t.Errorf("two files have one copy, %s", a)
	}
}
