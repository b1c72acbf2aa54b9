// Package dbtest runs database servers for tests: real ones, each in a
// folder of its own, that listen on a socket in it and on no port. They end with
// the process that started them, at the latest. None waits for a disk: what it has
// written outlives a crash of the server, not one of the machine.
package dbtest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/headgate-io/headgate/internal/mortal"
)

// Server is a database server that a test has started.
type Server struct {
	kind kind
	dir  string

	besides string // another folder that goes with it; "" for none

	mu     sync.Mutex
	cmd    *exec.Cmd     // guarded by mu; nil while stopped
	ended  chan struct{} // guarded by mu; closed when cmd has ended
	output *bytes.Buffer
	made   int // guarded by mu; databases
}

// kind is how servers of one kind are run.
type kind struct {
	name    string
	driver  string
	program string
	folders string // where it may be, besides PATH; a pattern
	install func(dir string) []string
	serve   func(dir string) []string
	env     []string
	stop    syscall.Signal // drops connections and ends soon
	admin   string         // database to make others from
	options string         // of CREATE DATABASE
	open    func(dir, database string) string
	dsn     func(dir, database string) string
	socket  func(dir string) string
	port    int // on the loopback, besides the socket; 0 for none

	standby  standby
	clock    string                            // an expression for what time it is, in Unix seconds
	first    []string                          // statements that make it ready
	password func(dir, password string) string // a statement
}

var postgres = kind{
	name: "PostgreSQL", driver: "pgx", program: "postgres", folders: "/usr/lib/postgresql/*/bin",
	install: func(dir string) []string {
		return []string{"initdb", "-D", dir + "/data", "-A", "trust", "-U", "shell", "-E", "UTF8",
			"--no-locale", "--no-sync"}
	},
	serve: func(dir string) []string {
		return []string{"postgres", "-D", dir + "/data", "-c", "listen_addresses=", "-c",
			"unix_socket_directories=" + dir,
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c",
			"max_connections=300", "-c", "shared_buffers=64MB"}
	},
	stop: syscall.SIGINT, admin: "postgres", options: " OWNER app",
	open: func(dir, database string) string {
		return "host=" + dir + " user=shell dbname=" + database
	},
	dsn: func(dir, database string) string {
		return "postgres://app@/" + database + "?host=" + dir
	},
	socket: func(dir string) string { return dir + "/.s.PGSQL.5432" },
	standby: standby{
		copy: func(leader, dir string) []string {
			return []string{"pg_basebackup", "-D", dir + "/data", "-h", leader, "-U", "shell", "-R", "-X", "stream",
				"--checkpoint=fast", "--no-sync"}
		},
		// what is committed is written a while later (synchronous_commit)
		position: "SELECT pg_current_wal_insert_lsn()::text",
		reached:  func(position string) string { return "SELECT pg_last_wal_replay_lsn() >= '" + position + "'" },
		cut:      []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"},
		isCut:    "SELECT count(*) = 0 FROM pg_stat_wal_receiver",
		promote:  []string{"SELECT pg_promote()"},
	},
	clock:    "extract(epoch FROM clock_timestamp())",
	first:    []string{"CREATE ROLE app LOGIN"},
	password: func(_, password string) string { return "ALTER ROLE app PASSWORD '" + password + "'" },
}

var mariadb = kind{
	name: "MariaDB", driver: "mysql", program: "mariadbd", folders: "/usr/sbin",
	install: func(dir string) []string {
		return []string{"mariadb-install-db", "--no-defaults", "--datadir=" + dir + "/data",
			"--auth-root-authentication-method=normal", "--skip-test-db",
			"--debug-no-sync", "--innodb-flush-method=nosync"}
	},
	serve: func(dir string) []string {
		return []string{"mariadbd", "--no-defaults", "--datadir=" + dir + "/data", "--skip-networking",
			"--socket=" + dir + "/s",
			"--pid-file=" + dir + "/pid", "--tmpdir=" + dir, "--innodb-flush-log-at-trx-commit=0", "--debug-no-sync",
			"--innodb-flush-method=nosync", "--skip-log-bin"}
	},
	// what is wrong without a character set of the tables' own
	stop: syscall.SIGTERM, admin: "", options: " CHARACTER SET latin1",
	open: func(dir, database string) string {
		return "root@unix(" + dir + "/s)/" + database + "?multiStatements=true"
	},
	dsn: func(dir, database string) string {
		return "mysql://app@/" + database + "?socket=" + dir + "/s"
	},
	socket: func(dir string) string { return dir + "/s" },
	standby: standby{
		position: "SELECT @@gtid_current_pos",
		reached:  func(position string) string { return "SELECT @@gtid_slave_pos = '" + position + "'" },
		cut:      []string{"STOP SLAVE IO_THREAD"},
		isCut:    "SELECT true",
		promote:  []string{"STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF"},
	},
	clock: "unix_timestamp()",
	// A user like an application's: root would write to a server that is read-only.
	first: []string{"CREATE USER app@localhost", "GRANT CREATE, DROP, ALTER, INDEX, TRIGGER, REFERENCES, " +
		"SELECT, INSERT, UPDATE, DELETE ON *.* TO app@localhost"},
	password: func(_, password string) string { return "ALTER USER app@localhost IDENTIFIED BY '" + password + "'" },
}

// Postgres starts a PostgreSQL, MariaDB a MariaDB, or the MySQL that the
// environment names by MySQLProgram in its place. Stop it.
func Postgres() (*Server, error) { return start(postgres) }

func MariaDB() (*Server, error) {
	if program := os.Getenv(MySQLProgram); program != "" {
		return start(mysqlOf(program))
	}
	return start(mariadb)
}

// MySQLProgram is the variable with the path of a mysqld that tests use instead
// of MariaDB. Debian's stable releases have none; see `make mysql`.
const MySQLProgram = "HEADGATE_TEST_MYSQLD"

func mysqlOf(program string) kind {
	k := mariadb
	k.name = "MySQL"
	k.install = func(dir string) []string {
		return []string{program, "--no-defaults", "--initialize-insecure", "--datadir=" + dir + "/data",
			"--secure-file-priv=NULL", "--innodb-flush-method=nosync"}
	}
	k.serve = func(dir string) []string {
		return []string{program, "--no-defaults", "--datadir=" + dir + "/data", "--skip-networking", "--mysqlx=OFF",
			"--secure-file-priv=NULL", "--socket=" + dir + "/s",
			"--pid-file=" + dir + "/pid", "--tmpdir=" + dir, "--innodb-flush-method=nosync",
			"--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"}
	}
	return k
}

// nobody is who a server runs as when the test is root's: neither would run as
// root.
const nobody = 65534

func start(k kind) (*Server, error) {
	s, err := install(k, k.install)
	if err != nil {
		return nil, err
	}
	return s, s.Exec(k.first...)
}

// install makes the files of a server with a program of its own, and starts it.
func install(k kind, program func(dir string) []string) (_ *Server, err error) {
	// Not a test's own folder: its name would be too long for a socket, and
	// nobody could not search it.
	dir, err := os.MkdirTemp("/tmp", "headgate-db-")
	if err != nil {
		return nil, err
	}
	s := &Server{kind: k, dir: dir}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return nil, err
		}
	}
	cmd, err := s.command(program(dir))
	if err != nil {
		return nil, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("set up %s: %w\n%s", k.name, err, out)
	}
	return s, s.Start()
}

// write makes a file that a server which runs as nobody can read, whatever the
// umask of the test.
func write(path string, text []byte) error {
	return errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, 0o644))
}

// Exec runs statements as the server's administrator.
func (s *Server) Exec(statements ...string) error {
	db, err := s.Shell(s.kind.admin)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// RequirePassword lets the user of the DSNs in with a password only.
func (s *Server) RequirePassword(password string) error {
	if err := s.Exec(s.kind.password(s.dir, strings.ReplaceAll(password, "'", "''"))); err != nil ||
		s.kind.name != "PostgreSQL" {
		return err
	}
	hba := s.dir + "/data/pg_hba.conf"
	if err := os.WriteFile(hba, []byte("local all shell trust\nlocal all all scram-sha-256\n"), 0o600); err != nil {
		return err
	}
	return s.Exec("SELECT pg_reload_conf()")
}

// command is a program of the server's, as a user who may run it.
func (s *Server) command(args []string) (*exec.Cmd, error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		found, _ := filepath.Glob(filepath.Join(s.kind.folders, args[0]))
		if len(found) == 0 {
			return nil, fmt.Errorf("%s is not installed (scripts/install-test-deps installs it): %w", s.kind.name, err)
		}
		program = found[len(found)-1]
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Dir = s.dir
	cmd.Env = []string{"HOME=" + s.dir, "TMPDIR=" + s.dir, "LC_ALL=C",
		"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/usr/bin"}
	cmd.Env = append(cmd.Env, s.kind.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd, nil
}

// patience is how long a server may take to start or to end.
const patience = 60 * time.Second

// Start starts a server that was stopped, and waits until it answers.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return nil
	}
	cmd, err := s.command(s.kind.serve(s.dir))
	if err != nil {
		return err
	}
	output := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := mortal.Start(cmd, s.kind.stop); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	db, err := sql.Open(s.kind.driver, s.kind.open(s.dir, s.kind.admin))
	if err != nil {
		return err
	}
	defer db.Close()
	deadline := time.Now().Add(patience)
	for {
		err := db.Ping()
		if err == nil {
			s.cmd, s.ended, s.output = cmd, ended, output
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("start %s: it ended\n%s", s.kind.name, output)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			<-ended
			return fmt.Errorf("start %s: %w\n%s", s.kind.name, err, output)
		}
	}
}

// Halt stops the server, and drops its connections. Start starts it again.
func (s *Server) Halt() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(s.kind.stop); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.ended
		return fmt.Errorf("stop %s: it did not end within %v", s.kind.name, patience)
	}
	s.cmd = nil
	return nil
}

// Stop ends the server for good, and removes what it has written.
func (s *Server) Stop() error {
	if s == nil {
		return nil
	}
	var err error
	if s.kind.env != nil {
		err = s.FreeDisk()
	}
	// Killed, since nobody reads its files any more: on a busy machine one of many databases takes
	// a minute to end well.
	err = errors.Join(err, s.Kill(), os.RemoveAll(s.dir))
	if s.besides != "" {
		err = errors.Join(err, os.RemoveAll(s.besides))
	}
	return err
}

// Freeze stops all processes of the server where they are: it keeps its
// connections and answers nothing. Thaw lets them go on.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }
func (s *Server) Thaw() error   { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(which syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	// The parent first, so that it makes no child which is missed.
	err := s.cmd.Process.Signal(which)
	for _, child := range children(s.cmd.Process.Pid) {
		err = errors.Join(err, syscall.Kill(child, which))
	}
	return err
}

// children reports the processes that a process has made.
func children(parent int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PARENT …, and the name may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// Database makes an empty database and reports the DSN it is opened by.
func (s *Server) Database(ctx context.Context) (name, dsn string, err error) {
	s.mu.Lock()
	s.made++
	name = fmt.Sprintf("test%d", s.made)
	s.mu.Unlock()
	db, err := s.Shell(s.kind.admin)
	if err != nil {
		return "", "", err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE DATABASE "+name+s.kind.options)
	return name, s.kind.dsn(s.dir, name), err
}

// Shell opens a database the way another program does.
func (s *Server) Shell(database string) (*sql.DB, error) {
	return sql.Open(s.kind.driver, s.kind.open(s.dir, database))
}
