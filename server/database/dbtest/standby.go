package dbtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
)

// standby is how a second server of a kind follows a first.
type standby struct {
	copy     func(leader, dir string) []string // a program that makes the files; nil for a new server
	position string                            // a query for how far the first is
	reached  func(position string) string      // whether the second has come there
	cut      []string                          // statements that end the following
	isCut    string                            // whether it has ended
	promote  []string                          // and make it lead
}

// MariaDBLeader starts a MariaDB that others can follow: it keeps a binary log,
// and listens on a port of the loopback besides its socket.
func MariaDBLeader() (*Server, error) {
	k, err := replicated(1)
	if err != nil {
		return nil, err
	}
	return start(k)
}

// replicated is MariaDB as one of several servers.
func replicated(id int) (kind, error) {
	k := mariadb
	var err error
	if k.port, err = freeport.Pick(); err != nil {
		return kind{}, err
	}
	k.serve = func(dir string) []string {
		var args []string
		for _, arg := range mariadb.serve(dir) {
			if arg != "--skip-networking" && arg != "--skip-log-bin" {
				args = append(args, arg)
			}
		}
		return append(args, "--log-bin", "--log-slave-updates", "--log-bin-trust-function-creators",
			"--bind-address=127.0.0.1",
			fmt.Sprint("--server-id=", id), fmt.Sprint("--port=", k.port))
	}
	return k, nil
}

// Standby starts a server that follows s, and is read-only until it is promoted.
func (s *Server) Standby() (*Server, error) {
	if s.kind.standby.copy != nil {
		return install(s.kind, func(dir string) []string { return s.kind.standby.copy(s.dir, dir) })
	}
	k, err := replicated(2)
	if err != nil {
		return nil, err
	}
	follower, err := install(k, k.install)
	if err != nil {
		return nil, err
	}
	err = follower.Exec("SET GLOBAL read_only = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'root', "+
			"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1", s.kind.port),
		"START SLAVE")
	if err != nil {
		return nil, errors.Join(err, follower.Stop())
	}
	return follower, nil
}

// Follow waits until a standby has what its leader has now.
func (s *Server) Follow(leader *Server) error {
	db, err := leader.Shell(leader.kind.admin)
	if err != nil {
		return err
	}
	defer db.Close()
	var position string
	if err := db.QueryRow(leader.kind.standby.position).Scan(&position); err != nil {
		return err
	}
	return s.until(s.kind.standby.reached(position))
}

// Cut makes a standby follow no more: what its leader commits from then on is
// lost when it dies, as a part of it may be wherever replication is asynchronous.
func (s *Server) Cut() error {
	if err := s.Exec(s.kind.standby.cut...); err != nil {
		return err
	}
	return s.until(s.kind.standby.isCut)
}

// Promote makes a standby lead.
func (s *Server) Promote() error { return s.Exec(s.kind.standby.promote...) }

// until asks until the answer is true.
func (s *Server) until(query string) error {
	db, err := s.Shell(s.kind.admin)
	if err != nil {
		return err
	}
	defer db.Close()
	for deadline := time.Now().Add(patience); ; {
		var done bool
		if err := db.QueryRow(query).Scan(&done); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v", query, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Kill ends all processes of the server as a power cut would.
func (s *Server) Kill() error {
	// Frozen first: the children of a process that has ended are nobody's.
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	for _, pid := range append(children(s.cmd.Process.Pid), s.cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	<-s.ended
	s.cmd = nil
	return s.forgetMemory()
}

// forgetMemory gives back the shared memory by which PostgreSQL tells that a
// folder is in use, which outlives it: its number stands in the file.
func (s *Server) forgetMemory() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil // another kind
	}
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) < 7 {
		return fmt.Errorf("postmaster.pid has %d lines, want 7 or more", len(lines))
	}
	var key, id uintptr
	if _, err := fmt.Sscan(string(lines[6]), &key, &id); err != nil {
		return err
	}
	const remove = 0 // IPC_RMID
	if _, _, e := syscall.Syscall(syscall.SYS_SHMCTL, id, remove, 0); e != 0 {
		return fmt.Errorf("remove shared memory %d: %w", id, e)
	}
	return nil
}

// Address is the socket that the server listens on.
func (s *Server) Address() string { return s.kind.socket(s.dir) }

// DSNs names a database on several servers, of which the one that leads is
// wanted. Only PostgreSQL's drivers know of such.
func DSNs(database string, servers ...*Server) string {
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.dir)
	}
	return "postgres://app@/" + database + "?target_session_attrs=read-write&host=" + strings.Join(hosts, ",")
}
