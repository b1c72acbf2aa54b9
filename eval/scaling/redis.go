package main

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// redis is a server of this program's own.
type redis struct {
	address string
	cmd     *exec.Cmd
}

// startRedis starts a server on a free port that keeps nothing on disk.
func startRedis(dir string) (*redis, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	r := &redis{address, exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", dir)}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis-server: %w (make deps installs it)", err)
	}
	for range 200 {
		if _, err := r.do("PING"); err == nil {
			return r, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	return nil, fmt.Errorf("redis-server does not answer at %s", address)
}

func (r *redis) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// calls is how many scripts the server has run.
func (r *redis) calls() (n int64, err error) {
	info, err := r.do("INFO commandstats")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		for _, command := range []string{"cmdstat_evalsha:", "cmdstat_eval:"} {
			if rest, ok := strings.CutPrefix(line, command+"calls="); ok {
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
	for read := 0; read < size; {
		n, err := in.Read(text[read:])
		if err != nil {
			return "", err
		}
		read += n
	}
	return string(text), nil
}
