//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
)

// Server is a server that a test has started. It listens on a socket in its folder, and on a port
// of this machine if it has one.
type Server struct {
	Socket string
	Port   int // 0 for none

	t      testing.TB
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	output *bytes.Buffer
}

// program is the server that is started: redis-server, unless HEADGATE_TEST_REDIS names another
// that speaks its language.
func program() string {
	if other := os.Getenv("HEADGATE_TEST_REDIS"); other != "" {
		return other
	}
	return "redis-server"
}

// patience is how long a server may take to do what it was told.
const patience = 60 * time.Second

// Start starts a server with what args configure besides ("--maxmemory", "2mb"), on a socket alone.
// It ends with the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, 0, args)
}

// StartOnPort is Start for those who are found by others: members of a cluster, what a sentinel watches.
func StartOnPort(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, FreePort(t), args)
}

func start(t testing.TB, port int, args []string) *Server {
	t.Helper()
	// Not the test's own folder: its name would be too long for a socket.
	dir, err := os.MkdirTemp("/tmp", "headgate-redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, Socket: filepath.Join(dir, "s"), Port: port}
	s.args = append([]string{"--dir", dir, "--unixsocket", s.Socket, "--port", strconv.Itoa(port), "--bind",
		"127.0.0.1", "--save", "", "--appendonly", "no"}, args...)
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	s.Start()
	return s
}

// FreePort is a port that nobody listens on, nor on the one that a cluster makes of it.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Start starts a server that was killed, without what it held.
func (s *Server) Start() {
	s.t.Helper()
	_ = os.Remove(s.Socket)
	s.output = &bytes.Buffer{}
	s.cmd = exec.Command(program(), s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := mortal.Start(s.cmd, syscall.SIGKILL); err != nil {
		s.t.Fatalf("%s (scripts/install-test-deps installs redis-server): %v", program(), err)
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(s.cmd, s.ended)
	s.Await("PING", func(answer any, err error) bool {
		select {
		case <-s.ended:
			s.t.Fatalf("%s ended:\n%s", program(), s.output)
		default:
		}
		return answer == "PONG" || err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
	})
}

// Await sends a command again and again until what it answers is good.
func (s *Server) Await(command string, good func(answer any, err error) bool) {
	s.t.Helper()
	var answer any
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if answer, err = s.Try(strings.Fields(command)...); good(answer, err) {
			return
		}
	}
	s.t.Fatalf("%s: %v, %v after %v", command, answer, err, patience)
}

// Kill ends the server as a crash does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// Freeze stops the server where it is: it keeps its connections and answers nothing. Thaw lets it go on.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }
func (s *Server) Thaw()   { s.signal(syscall.SIGCONT) }

func (s *Server) signal(which syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(which); err != nil {
		s.t.Fatal(err)
	}
}

// Try sends one command on a connection of its own.
func (s *Server) Try(command ...string) (any, error) {
	c := Dial(s.Socket)
	defer c.Close()
	return c.Do(time.Now().Add(patience), command...)
}

// Do is Try for what must succeed.
func (s *Server) Do(command ...string) any {
	s.t.Helper()
	answer, err := s.Try(command...)
	if err != nil {
		s.t.Fatalf("%q: %v", command, err)
	}
	return answer
}

// Address is where the server listens besides its socket.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// CPU is how many seconds the server has worked so far.
func (s *Server) CPU() float64 {
	s.t.Helper()
	sum := 0.0
	for line := range strings.Lines(s.Do("INFO", "cpu").(string)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			sum += seconds
		}
	}
	return sum
}

// Cluster starts a cluster of three servers, and waits until all agree that it is one.
func Cluster(t testing.TB) []*Server {
	t.Helper()
	servers := make([]*Server, 3)
	for i := range servers {
		servers[i] = StartOnPort(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
	}
	for i, s := range servers {
		const slots = 16384
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/3), strconv.Itoa((i+1)*slots/3-1))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range servers[1:] {
		servers[0].Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.Port))
	}
	for _, s := range servers {
		s.Await("CLUSTER INFO", func(answer any, err error) bool {
			text, _ := answer.(string)
			return strings.Contains(text, "cluster_state:ok") && strings.Contains(text, "cluster_known_nodes:3")
		})
	}
	return servers
}

// Replica starts a server that takes over from one of a cluster, should that be gone, and waits until all know of it.
func Replica(t testing.TB, of *Server, servers []*Server) *Server {
	t.Helper()
	r := StartOnPort(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0")
	name := of.Do("CLUSTER", "MYID").(string)
	of.Do("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	r.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(of.Port))
	r.Await("CLUSTER REPLICATE "+name, func(_ any, err error) bool { return err == nil })
	r.Await("INFO replication", func(answer any, _ error) bool {
		text, _ := answer.(string)
		return strings.Contains(text, "master_link_status:up")
	})
	for _, s := range servers {
		s.Await("CLUSTER REPLICAS "+name, func(answer any, _ error) bool {
			list, _ := answer.([]any)
			return len(list) == 1
		})
	}
	return r
}

// Sentinel starts a sentinel that watches a server under the name "headgate", and has nobody to agree with.
func Sentinel(t testing.TB, watched *Server) (port int) {
	t.Helper()
	dir := t.TempDir()
	port = FreePort(t)
	conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor headgate 127.0.0.1 %d 1\nsentinel "+
		"down-after-milliseconds headgate 500\nsentinel failover-timeout headgate 5000\n", port, dir, watched.Port)
	path := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(), path, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return port
}
