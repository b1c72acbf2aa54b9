package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/headgate-io/headgate/server/dsn"
	"github.com/pressly/goose/v3"
)

// mysqlKind is what MySQL and MariaDB have of their own.
type mysqlKind struct{}

var _ kind = mysqlKind{}

// mysqlConfig reads mysql://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS, or
// mysql: and what the driver takes. The parameters are the driver's, and those of
// mysqlFiles; socket is the path of one to connect by.
func (o Options) mysqlConfig() (*mysql.Config, error) {
	_, form, _ := strings.Cut(o.DSN, ":")
	var files mysqlFiles
	if strings.HasPrefix(form, "//") {
		u, err := parseURL(o.DSN)
		if err != nil {
			return nil, err
		}
		q := u.Query()
		files = takeMySQLFiles(q)
		u.RawQuery = q.Encode()
		form = driverForm(u)
	}
	c, err := mysql.ParseDSN(form)
	if err != nil {
		// the driver's words may have the password
		return nil,
			fmt.Errorf("database is %q, want mysql://USER@HOST/DATABASE with the parameters of Go's driver, or "+
				"mysql: and that driver's form", dsn.Redact(o.DSN))
	}
	if err := files.apply(c); err != nil {
		return nil, fmt.Errorf("database is %q: %w", dsn.Redact(o.DSN), err)
	}
	switch password, err := o.password(); {
	case err != nil:
		return nil, err
	case password != "":
		c.Passwd = password
	case c.Passwd == "":
		c.Passwd = os.Getenv("MYSQL_PWD")
	}
	if c.DBName == "" {
		return nil, fmt.Errorf("database is %q, want the name of a database after the host", dsn.Redact(o.DSN))
	}
	if c.Timeout == 0 {
		c.Timeout = connectWait
	}
	c.ClientFoundRows = true // a row that is found counts, though nothing in it changes
	c.ParseTime = true
	c.MultiStatements = false
	c.Logger = &mysql.NopLogger{} // what it says is an error of ours too
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params["innodb_lock_wait_timeout"] = fmt.Sprint(int(lockWait.Seconds()))
	return c, nil
}

// driverForm writes a URL as the driver reads it: user:password@tcp(host)/name.
func driverForm(u *url.URL) string {
	network, address := "tcp", u.Host
	q := u.Query()
	if socket := q.Get("socket"); socket != "" {
		network, address = "unix", socket
		q.Del("socket")
	} else if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "3306")
	}
	user := u.User.Username()
	if password, ok := u.User.Password(); ok {
		user += ":" + password
	}
	form := user + "@" + network + "(" + address + ")/" + url.PathEscape(strings.TrimPrefix(u.Path, "/"))
	if len(q) > 0 {
		form += "?" + q.Encode()
	}
	return form
}

func openMySQL(ctx context.Context, o Options) (engine, error) {
	c, err := o.mysqlConfig()
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("database is %q: its parameters do not go together", dsn.Redact(o.DSN))
	}
	return openServer(ctx, mysqlKind{}, title("mysql", c.User, c.Addr, c.DBName), sql.OpenDB(connector), o)
}

func (mysqlKind) dialect() *dialect { return &mysqlDialect }

func (mysqlKind) migrations() (string, goose.Dialect) {
	return "migrations/mysql", goose.DialectMySQL
}

func (mysqlKind) begin() []string { return []string{selectVersion + " FOR UPDATE"} }

// The snapshot of a transaction is taken at its first query that does not lock:
// after it has waited for its turn.
func (mysqlKind) writing() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
}

func (mysqlKind) tables() string {
	return "SELECT table_name FROM information_schema.tables WHERE table_schema = database() ORDER BY table_name"
}

func (mysqlKind) broken(err error) bool { return errors.Is(err, mysql.ErrInvalidConn) }

// alone takes a lock of the server's: a migration is no transaction here, so
// that two at once would meet in the middle.
func (mysqlKind) alone(ctx context.Context, db *sql.DB, do func() error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// names have at most 64 bytes, and MySQL 9 has no sha1
	const lock = "concat('headgate.', left(sha2(database(), 256), 40))"
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT get_lock("+lock+", 60)").Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fault("is being brought up to date by another process for more than 60s, want that ended")
	}
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO release_lock("+lock+")")
	}()
	return do()
}

func (mysqlKind) spare() time.Duration { return 0 } // there is one host

func (mysqlKind) meaning(err error) (text string, passing bool) {
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		if errors.Is(err, mysql.ErrInvalidConn) {
			return "closed the connection", false
		}
		return "", false
	}
	switch my.Number {
	case 1045, 1044, 1698:
		return "refuses the user (" + oneLine(my.Message) +
			"), want another password or user: in the URL, in db_password_file or in MYSQL_PWD", false
	case 1049:
		return "does not exist, want it made: CREATE DATABASE", false
	case 1142, 1143, 1227, 1370:
		return "does not let the user do that (" + oneLine(my.Message) + "), want the right to, or a user who has it",
			false
	case 1290, 1792, 1836:
		return "is read-only, a replica perhaps, want the server that leads", false
	case 1146, 1054:
		return "lacks what this headgate reads (" + oneLine(my.Message) + "), want headgate's tables back", false
	case 1021, 1114:
		return "does not fit on its disk any more, want room made", false
	case 1040, 1203:
		return "has no connection left, want its max_connections raised or other connections closed", false
	case 1053:
		return "is stopping", false
	case 1205:
		return fmt.Sprintf(
			"has been locked by another transaction for more than %v, want that ended (a shell after BEGIN?)",
			lockWait), false
	case 1213:
		return "is changed by somebody else who locks in another order, want it tried again", true
	case 1419:
		return "does not let the user make triggers while it keeps a binary log, want " +
			"log_bin_trust_function_creators = 1, or headgate started once as a user with SUPER", false
	}
	return "said: " + oneLine(my.Message), false
}

// watch ends at once: nobody tells of changes, so they are looked for.
func (mysqlKind) watch(context.Context, func()) {}
