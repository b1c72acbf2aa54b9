package database

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/headgate-io/headgate/server/dsn"
)

// Options says which database to open. DSN is required; every other zero value
// is a safe default.
type Options struct {
	// DSN names the database: sqlite:PATH, postgres://…, mysql://…, or mysql:
	// and the form of Go's driver. A password may stand in it, in
	// PasswordFile, or where the programs of the database look for it:
	// PGPASSWORD, PGPASSFILE, MYSQL_PWD.
	DSN string

	// PasswordFile holds the password of a server's user in its first line.
	PasswordFile string

	// ReadOnly opens a database that exists and changes nothing in it, its
	// schema included.
	ReadOnly bool

	// Existing refuses a server's database without headgate's tables instead
	// of making them. It is for when there were some.
	Existing bool

	// NoNotify is for PostgreSQL behind a pooler that hands the connection
	// of one transaction to the next: no connection is kept to be told of
	// changes, and nothing is kept in one.
	NoNotify bool

	// Table is where the rules stand, if it is a table or view that somebody
	// else keeps. Then DSN is the database of that table, which is only read,
	// and Local the SQLite database of the API keys and the audit.
	Table Table
	Local string

	// Elsewhere is where the rules are kept, if that is neither. Then DSN is not used, and Local is as with Table.
	Elsewhere Elsewhere
}

// Open opens the database a DSN names for reading and writing. It makes the
// file if there is none, or the tables, and brings an older schema up to date.
//
// A backup may be moved into a file's place while a Store has it open. When
// none has, because the last one was killed, its -wal must be removed first:
// SQLite would take it for the backup's.
func Open(ctx context.Context, dsn string) (*Store, error) {
	return New(ctx, Options{DSN: dsn})
}

// OpenReadOnly opens a database that exists and changes nothing in it, its
// schema included.
func OpenReadOnly(ctx context.Context, dsn string) (*Store, error) {
	return New(ctx, Options{DSN: dsn, ReadOnly: true})
}

// New opens a database.
func New(ctx context.Context, o Options) (*Store, error) {
	if o.Table.Name == "" && o.Elsewhere == nil {
		db, err := o.open(ctx)
		if err != nil {
			return nil, err
		}
		return &Store{db: db, readOnly: o.ReadOnly}, nil
	}
	table, err := o.openTable()
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(o.Local, "sqlite:") {
		return nil,
			errors.Join(
				fmt.Errorf("the database of API keys is %q, want sqlite:PATH: the one with the rules is only read",
					dsn.Redact(o.Local)), table.close())
	}
	local := Options{DSN: o.Local, ReadOnly: o.ReadOnly}
	if o.ReadOnly {
		if _, err := os.Stat(strings.TrimPrefix(o.Local, "sqlite:")); errors.Is(err, os.ErrNotExist) {
			return &Store{db: nothing{}, table: table}, nil
		}
	}
	db, err := local.open(ctx)
	if err != nil {
		return nil, errors.Join(err, table.close())
	}
	return &Store{db: db, table: table}, nil
}

const kinds = "sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"

func (o Options) open(ctx context.Context) (engine, error) {
	switch dsn.Kind(o.DSN) {
	case "sqlite":
		return openEmbedded(ctx, o.DSN, o.ReadOnly, lockWait)
	case "postgres":
		return openPostgres(ctx, o)
	case "mysql":
		return openMySQL(ctx, o)
	}
	return nil, fmt.Errorf("database is %q, want %s", dsn.Redact(o.DSN), kinds)
}

// maxPassword bounds what is read of a password file.
const maxPassword = 4096

// password reads the first line of the password file; "" without one.
func (o Options) password() (string, error) {
	if o.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("database password: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSuffix(line, "\r")
	if line == "" || len(line) > maxPassword {
		return "", fmt.Errorf("database password: the first line of %s has %d bytes, want 1 to %d", o.PasswordFile,
			len(line), maxPassword)
	}
	return line, nil
}

// parseURL reads a DSN that is a URL. What is wrong with it is not quoted: it
// may be the password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil,
			fmt.Errorf("database is %q, which is no URL, want one; in a password, write other characters than "+
				"letters and digits as %%40 (@), %%2F (/), %%3A (:), %%25 (%%)", dsn.Redact(text))
	}
	return u, nil
}
