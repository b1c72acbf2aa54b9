package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/server/dsn"
)

// Database says more about the database than DB does; see docs/databases.md.
type Database struct {
	// PasswordFile holds the password of a server's user in its first line.
	// Default none: PGPASSWORD, MYSQL_PWD, or what stands in db.
	PasswordFile string `yaml:"db_password_file"`

	// Notify lets PostgreSQL tell of changes, over a connection of its own.
	// False for poolers that share connections out by transaction. Default true.
	Notify bool `yaml:"db_notify"`

	// Table is a table or view that somebody else keeps, in which the rules
	// stand; it is only read. Columns are what its columns are called that
	// are not called as headgate calls them. Default none: headgate's tables.
	Table   string            `yaml:"db_table"`
	Columns map[string]string `yaml:"db_columns"`

	// VersionQuery is a query for one value that differs after every change of
	// that table. Default none: every look reads it whole.
	VersionQuery string `yaml:"db_version_query"`

	// Keys is the database of the API keys and the audit beside such a table, or
	// beside rules in Kubernetes. Default sqlite:headgate.db.
	Keys string `yaml:"db_keys"`
}

// inKubernetes begins a DB that is a namespace, in which rules are objects.
const inKubernetes = "kubernetes:"

// RulesElsewhere reports whether the rules are kept by somebody else, and headgate only reads them.
func (c *Config) RulesElsewhere() bool {
	return c.Database.Table != "" || strings.HasPrefix(c.DB, inKubernetes)
}

func defaultDatabase() Database { return Database{Notify: true, Keys: "sqlite:headgate.db"} }

// keysAt is the path of the file beside which secrets and copies are kept: the
// database's, if it is a file of headgate's.
func (c *Config) keysAt() string {
	dsn := c.DB
	if c.RulesElsewhere() {
		dsn = c.Database.Keys
	}
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return path
	}
	return "headgate.db" // beside where it runs; no password may become part of a path
}

// copyAt is keysAt for the last good rules. Those of a server, or of a table that
// is only read, are not kept where those of a file or of another server in the
// same folder are: the rules of one would come into force for the other.
func (c *Config) copyAt() string {
	file := strings.HasPrefix(c.DB, "sqlite:")
	switch {
	case strings.HasPrefix(c.DB, inKubernetes):
		return c.keysAt() + ".kubernetes-" + digest(c.DB)
	case c.Database.Table != "" && file:
		return c.keysAt() + ".table-" + digest(c.DB+" "+c.Database.Table)
	case c.Database.Table != "":
		return c.keysAt() + ".table-" + digest(serverName(c.DB)+" "+c.Database.Table)
	case !file:
		return "headgate-" + digest(serverName(c.DB))
	}
	return c.keysAt()
}

// serverName tells the databases of servers apart by address and name. It knows
// no user and no password: they may change, and are in no path.
func serverName(dsn string) string {
	scheme, _, _ := strings.Cut(dsn, ":")
	bare, _, _ := strings.Cut(dsn, "?")
	address := strings.TrimPrefix(bare, scheme+"://")
	name := scheme + " " + address[strings.LastIndexByte(address, '@')+1:]
	if _, text, ok := strings.Cut(dsn, "?"); ok {
		query, _ := url.ParseQuery(text) // what is wrong with it is told when the database is opened
		for _, part := range []string{"host", "port", "dbname", "search_path"} {
			name += fmt.Sprintf(" %q", query.Get(part))
		}
	} else {
		name += ` "" "" "" ""`
	}
	return name
}

// digest is a part of a file's name that tells what is in it from the like.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}

func (c *checker) database(conf *Config) {
	d := conf.Database
	scheme, _, _ := strings.Cut(conf.DB, ":")
	server := slices.Contains([]string{"postgres", "postgresql", "mysql", "mariadb"}, scheme)
	objects := strings.HasPrefix(conf.DB, inKubernetes)
	if scheme != "sqlite" && !server && !objects || scheme == conf.DB {
		c.wrong("db", dsn.Redact(conf.DB),
			"sqlite:PATH, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or kubernetes:NAMESPACE")
	}
	if objects && d.Table != "" {
		c.wrong("db_table", d.Table, "none: in Kubernetes rules are objects")
	}
	if d.PasswordFile != "" && !server {
		c.wrong("db_password_file", d.PasswordFile, "none: a file has no password")
	}
	if d.Table == "" {
		for _, unused := range []struct{ field, value string }{{"db_columns", fmt.Sprint(d.Columns)},
			{"db_version_query", d.VersionQuery}} {
			if unused.value != "" && unused.value != "map[]" {
				c.wrong(unused.field, unused.value,
					"none, or db_table set: it is about a table that headgate only reads")
			}
		}
	}
	if !conf.RulesElsewhere() {
		return
	}
	if !strings.HasPrefix(d.Keys, "sqlite:") || d.Keys == "sqlite:" {
		c.wrong("db_keys", dsn.Redact(d.Keys), "sqlite:PATH")
	}
	if d.Keys == conf.DB {
		c.wrong("db_keys", d.Keys, "another file than db, which is only read")
	}
}
