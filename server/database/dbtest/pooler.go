package dbtest

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/mortal"
)

// Pooler is a PgBouncer before a PostgreSQL. Stop it.
type Pooler struct {
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// settings are those of a pooler that shares connections out by transaction.
// With one connection to each database, the next transaction always gets the
// one that the last was given: whatever is left behind in it shows.
const settings = `[databases]
* = host=%s
[pgbouncer]
listen_addr =
unix_socket_dir = %s
unix_socket_mode = 0777
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = %d
query_wait_timeout = 60
server_login_retry = 1
`

// NewPooler starts a pooler that has so many connections to each database.
func NewPooler(s *Server, connections int) (_ *Pooler, err error) {
	dir, err := os.MkdirTemp("/tmp", "headgate-pooler-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	users, file := filepath.Join(dir, "users"), filepath.Join(dir, "settings")
	err = errors.Join(
		write(users, []byte("\"app\" \"\"\n")),
		write(file, fmt.Appendf(nil, settings, s.dir, dir, users, connections)))
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return nil, err
		}
	}
	as := &Server{kind: kind{name: "PgBouncer", folders: "/usr/sbin"}, dir: dir}
	p := &Pooler{dir: dir, ended: make(chan struct{})}
	if p.cmd, err = as.command([]string{"pgbouncer", "-q", file}); err != nil {
		return nil, err
	}
	output := &bytes.Buffer{}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	if err := mortal.Start(p.cmd, syscall.SIGTERM); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	db, err := sql.Open("pgx", "host="+dir+" port=6432 user=app dbname=postgres default_query_exec_mode=exec")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for deadline := time.Now().Add(patience); ; {
		err := db.Ping()
		if err == nil {
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("start PgBouncer: it ended\n%s", output)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("start PgBouncer: %w\n%s", err, output), p.Stop())
		}
	}
}

// DSN names a database by way of the pooler, which begins to serve a client when it has a connection to that database:
// for that it may have to wait for the tests of other databases.
func (p *Pooler) DSN(database string) string {
	return "postgres://app@/" + database + "?port=6432&connect_timeout=60&host=" + p.dir
}

// Stop ends the pooler.
func (p *Pooler) Stop() error {
	if p == nil {
		return nil
	}
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		err = errors.Join(err, fmt.Errorf("stop PgBouncer: it did not end within %v", patience))
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
