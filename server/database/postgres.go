package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/dsn"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// postgres is what PostgreSQL has of its own.
type postgres struct {
	config *pgx.ConnConfig
	notify bool
	quiet  time.Duration // without a notification, after which the server is asked whether it is there
}

var _ kind = (*postgres)(nil)

// postgresConfig reads a URL of PostgreSQL. TLS and the other settings are
// those of libpq.
func (o Options) postgresConfig() (*pgx.ConnConfig, error) {
	u, err := parseURL(o.DSN)
	if err != nil {
		return nil, err
	}
	password, err := o.password()
	if err != nil {
		return nil, err
	}
	c, err := pgx.ParseConfig(u.String())
	if err != nil {
		text := "is not understood"
		if inner := errors.Unwrap(err); inner != nil { // the words around it have the URL
			text = oneLine(inner.Error())
		}
		if secret, ok := u.User.Password(); ok && secret != "" {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
		for name, values := range u.Query() {
			for _, v := range values {
				if v != "" && strings.Contains(strings.ToLower(name), "pass") {
					text = strings.ReplaceAll(text, v, "xxxxx")
				}
			}
		}
		return nil, fmt.Errorf("database is %q: %s", dsn.Redact(o.DSN), text)
	}
	if password != "" {
		c.Password = password
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectWait
	}
	if _, named := c.RuntimeParams["application_name"]; !named {
		c.RuntimeParams["application_name"] = "headgate"
	}
	if o.NoNotify {
		// Nothing may be left behind in a connection that the next
		// transaction is not given: no statement by name.
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return c, nil
}

func postgresTitle(c *pgx.ConnConfig) string {
	return title("postgres", c.User, strings.Join(hosts(c), ","), c.Database)
}

// hosts are the addresses that a URL names, each once.
func hosts(c *pgx.ConnConfig) (all []string) {
	add := func(host string, port uint16) {
		if !strings.HasPrefix(host, "/") {
			host = net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
		if !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	add(c.Host, c.Port)
	for _, f := range c.Fallbacks { // also the same host, with TLS and without
		add(f.Host, f.Port)
	}
	return all
}

func (p *postgres) spare() time.Duration {
	return time.Duration(len(hosts(p.config))-1) * p.config.ConnectTimeout
}

func openPostgres(ctx context.Context, o Options) (engine, error) {
	c, err := o.postgresConfig()
	if err != nil {
		return nil, err
	}
	return openServer(ctx, &postgres{c, !o.NoNotify, listenQuiet}, postgresTitle(c), stdlib.OpenDB(*c), o)
}

func (*postgres) dialect() *dialect { return &postgresDialect }

func (*postgres) migrations() (string, goose.Dialect) {
	return "migrations/postgres", goose.DialectPostgres
}

func (*postgres) begin() []string {
	return []string{
		fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds()),
		selectVersion + " FOR UPDATE",
	}
}

// Once it has waited for its turn, a writer must see what others have written
// meanwhile.
func (*postgres) writing() *sql.TxOptions { return &sql.TxOptions{Isolation: sql.LevelReadCommitted} }

// Not information_schema, which leaves out what the user has no right to.
func (*postgres) tables() string {
	return `SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY c.relname`
}

func (*postgres) broken(err error) bool {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	return !errors.As(err, &connect) && (!errors.As(err, &pg) || pg.Code == "57P01") && !errors.Is(err, sql.ErrNoRows)
}

// alone does not lock: a migration is one transaction, and the second of two
// fails as a whole.
func (*postgres) alone(_ context.Context, _ *sql.DB, do func() error) error { return do() }

// oneServer reports whether a connection was tried to one server alone; often that is with TLS and without.
func oneServer(c *pgconn.Config) bool {
	return c != nil && !slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != c.Host || f.Port != c.Port
	})
}

func (*postgres) meaning(err error) (text string, passing bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		var connect *pgconn.ConnectError
		if errors.As(err, &connect) {
			inner := oneLine(errors.Unwrap(connect).Error())
			var op *net.OpError
			if oneServer(connect.Config) && errors.As(err, &op) {
				inner = oneLine(op.Err.Error()) // the address is said already, three times
			}
			return "cannot be reached (" + inner +
				"), want the database running there, and its port open to this machine", false
		}
		return "", false
	}
	switch pg.Code {
	case "28P01", "28000":
		return "refuses the user (" + oneLine(pg.Message) +
			"), want another password or user: in the URL, in db_password_file or in PGPASSWORD", false
	case "3D000":
		return "does not exist, want it made: CREATE DATABASE", false
	case "42501":
		return "does not let the user do that (" + oneLine(pg.Message) + "), want the right to, or a user who has it",
			false
	case "25006":
		return "is read-only, a standby perhaps, want the server that leads", false
	case "42P01", "42703":
		return "lacks what this headgate reads (" + oneLine(pg.Message) + "), want headgate's tables back", false
	case "53100":
		return "does not fit on its disk any more, want room made", false
	case "53300":
		return "has no connection left, want its max_connections raised or other connections closed", false
	case "57P03", "57P01", "57P02":
		return "is starting or stopping (" + oneLine(pg.Message) + ")", false
	case "55P03":
		return fmt.Sprintf(
			"has been locked by another transaction for more than %v, want that ended (a psql after BEGIN?)",
			lockWait), false
	case "40001", "40P01":
		return "is changed by somebody else who locks in another order, want it tried again", true
	}
	return "said: " + oneLine(pg.Message), false
}

// channel is what the triggers notify.
const channel = "headgate"

// listenAgain bounds the time between two attempts to listen. It is drawn at
// random, so that replicas do not come back to a server all at once.
const listenAgain = 2 * time.Second

// listenQuiet is the time without a notification after which a connection is
// tried out, and listenAnswer what that may take: a server that is frozen, or
// cut off without a word, is not waited for when another one leads.
const (
	listenQuiet  = 10 * time.Second
	listenAnswer = 5 * time.Second
)

// watch listens on a connection of its own. What is told while there is none
// is lost, so every connection begins as if something had changed.
func (p *postgres) watch(ctx context.Context, changed func()) {
	if !p.notify {
		return
	}
	for ctx.Err() == nil {
		p.listen(ctx, changed)
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain/4 + rand.N(listenAgain*3/4)):
		}
	}
}

// listen calls changed after each notification until the connection ends. That
// it ended is no news: whoever asks for the version finds out.
func (p *postgres) listen(ctx context.Context, changed func()) {
	c, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(closing)
	}()
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return
	}
	changed()
	for {
		switch told, err := p.wait(ctx, c); {
		case err != nil:
			return
		case told:
			changed()
		}
	}
}

// wait reports a notification, or that there was none and the connection is
// good.
func (p *postgres) wait(ctx context.Context, c *pgx.Conn) (told bool, err error) {
	quiet, cancel := context.WithTimeout(ctx, p.quiet)
	defer cancel()
	if _, err = c.WaitForNotification(quiet); err == nil {
		return true, nil
	}
	if quiet.Err() == nil || ctx.Err() != nil {
		return false, err
	}
	answer, cancel := context.WithTimeout(ctx, listenAnswer)
	defer cancel()
	return false, c.Ping(answer)
}
