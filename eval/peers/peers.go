// Package peers starts other limiters as real servers before an API, set up as their documentation
// says: Envoy with its local limits and with envoyproxy/ratelimit, HAProxy with stick tables, nginx,
// and a proxy that asks redis-cell. What cannot be had is a model (WAF).
package peers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
)

// Limit is so many requests a second, and so many at once, for each client.
type Limit struct{ Rate, Burst int64 }

// Place is where a limiter is put.
type Place struct {
	Dir string // of its own
	API string // host:port
	Limit

	// Hop says that a proxy of the operator's stands before it, whose X-Forwarded-For it is to believe.
	Hop bool

	// Together counts all clients together; else each address by itself.
	Together bool

	// Certificate is a file with one and its key, for TLS with the clients. Default none. nginx and HAProxy take it.
	Certificate string
}

// Server is one that runs.
type Server struct {
	At  string // host:port
	cmd *exec.Cmd
}

// URL is where it listens.
func (s *Server) URL() string { return "http://" + s.At }

// PID is the number of its process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop ends it.
func (s *Server) Stop() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// Address is one of this machine that nobody listens on.
func Address() (string, error) {
	port, err := freeport.Pick()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// program is where a program is, by its name or below the root of the repository. Debian's servers are
// not on everybody's PATH.
func program(name string) (string, error) {
	if strings.Contains(name, "/") {
		root, err := harness.Root()
		if err != nil {
			return "", err
		}
		name = filepath.Join(root, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		return "", fmt.Errorf("%s is not there: make deps installs it", name)
	}
	return path, nil
}

// start writes a configuration that names the address where to listen, and runs a program with it
// until it listens there. Between finding a port and listening somebody else may take it: then
// another is tried.
func start(dir, name, file string, conf func(at string) string, args ...string) (*Server, error) {
	path, err := program(name)
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	for range 3 {
		at, err := Address()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(conf(at)), 0o644); err != nil {
			return nil, err
		}
		cmd := exec.Command(path, args...)
		said.Reset()
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
		cmd.Env = append(os.Environ(), "HOME="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := mortal.Start(cmd, syscall.SIGKILL); err != nil {
			return nil, err
		}
		s := &Server{at, cmd}
		if harness.Eventually(20*time.Second, func() bool {
			c, err := net.Dial("tcp", at)
			if err == nil {
				_ = c.Close()
			}
			return err == nil || syscall.Kill(cmd.Process.Pid, 0) != nil
		}) && listens(at) {
			return s, nil
		}
		s.Stop()
	}
	return nil, fmt.Errorf("%s does not listen: %s", name, said.String())
}

// launch starts cmd, which answers at an address, and waits until it listens at one that may be another.
func launch(cmd *exec.Cmd, name, at, ready string) (*Server, error) {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := mortal.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	s := &Server{at, cmd}
	if !harness.Eventually(30*time.Second, func() bool { return listens(ready) }) {
		s.Stop()
		return nil, fmt.Errorf("%s does not listen: %s", name, said.String())
	}
	return s, nil
}

func listens(at string) bool {
	c, err := net.Dial("tcp", at)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func port(at string) string {
	_, p, _ := net.SplitHostPort(at)
	return p
}

// Versions are those of the servers that are started, in words.
func Versions() string {
	said := func(name string, args ...string) string {
		path, err := program(name)
		if err != nil {
			return "?"
		}
		out, _ := exec.Command(path, args...).CombinedOutput()
		return version.FindString(string(out))
	}
	return fmt.Sprintf("Envoy %s, HAProxy %s, nginx %s, redis-cell 0.2.2, AWS WAF as a model",
		said("bin/garden/venv/bin/envoy", "--version"), said("haproxy", "-v"), said("nginx", "-v"))
}

var version = regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+`)

var errOneByOne = errors.New("it counts each client by itself alone")
