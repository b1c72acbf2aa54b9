package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/peers"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
)

// redis is a server of this program's own.
type redis struct {
	address string
	dir     string
	cmd     *exec.Cmd // nil while it does not run
}

// startRedis starts a server on a free port that keeps nothing on disk.
func startRedis(dir string) (*redis, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	r := &redis{address: address, dir: dir}
	return r, r.start()
}

// freeAddress is one of this machine that nobody listens on.
func freeAddress() (string, error) {
	port, err := freeport.Pick()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// start starts the server, which knows nothing, and waits until it answers.
func (r *redis) start() error {
	_, port, err := net.SplitHostPort(r.address)
	if err != nil {
		return err
	}
	module, err := peers.RedisCell()
	if err != nil {
		return err
	}
	r.cmd = exec.Command("redis-server", "--loadmodule", module, "--bind", "127.0.0.1", "--port", port, "--save", "",
		"--appendonly", "no", "--dir", r.dir)
	if err := mortal.Start(r.cmd, syscall.SIGKILL); err != nil {
		r.cmd = nil
		return fmt.Errorf("redis-server: %w (make deps installs it)", err)
	}
	for range 6000 { // a minute
		if _, err := r.do("PING"); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	return fmt.Errorf("redis-server does not answer at %s", r.address)
}

// stop ends the server as a crash does.
func (r *redis) stop() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// freeze stops the server where it is: it keeps its connections and answers nothing. thaw lets it go on.
func (r *redis) freeze() error { return r.cmd.Process.Signal(syscall.SIGSTOP) }
func (r *redis) thaw() error   { return r.cmd.Process.Signal(syscall.SIGCONT) }

// calls is how many commands about buckets the server was sent: scripts, and what a limiter counts by that uses none.
func (r *redis) calls() (n int64, err error) {
	info, err := r.do("INFO commandstats")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		for _, command := range []string{"evalsha", "eval", "incrby", "cl.throttle"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				count, _, _ := strings.Cut(rest, ",")
				one, err := strconv.ParseInt(count, 10, 64)
				if err != nil {
					return 0, fmt.Errorf("INFO commandstats: %w", err)
				}
				n += one
			}
		}
	}
	return n, nil
}

// version is what the server calls itself.
func (r *redis) version() (string, error) {
	info, err := r.do("INFO server")
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return "Redis " + strings.TrimSpace(version), nil
		}
	}
	return "", errors.Join(err, errors.New("INFO server has no redis_version"))
}

// do sends a command and returns the text that is answered.
func (r *redis) do(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", r.address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	first, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "$") {
		return strings.TrimSpace(first), err
	}
	size, err := strconv.Atoi(strings.TrimSpace(first[1:]))
	if err != nil {
		return "", err
	}
	text := make([]byte, size)
	_, err = io.ReadFull(in, text)
	return string(text), err
}
