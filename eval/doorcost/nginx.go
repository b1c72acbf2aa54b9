package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// nginx is how long an answer takes behind it, in microseconds.
type nginx struct {
	plain  float64 // without a question
	empty  float64 // asking a server that does nothing
	asking float64
}

// behindNginx measures the example of nginx as it is, with its question to an empty server, and without it, in turn.
func (w *world) behindNginx(rounds int, stderr io.Writer) (found nginx, err error) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	defer api.Close()
	root, err := harness.Root()
	if err != nil {
		return found, err
	}
	text, err := os.ReadFile(filepath.Join(root, "examples", "nginx", "nginx.conf"))
	if err != nil {
		return found, err
	}
	headgate, err := url.Parse(w.headgate.Decisions)
	if err != nil {
		return found, err
	}
	asked := [3]string{headgate.Host, w.bare.at, headgate.Host}
	asks := regexp.MustCompile(`(?m)^.*auth_request /.*;.*\n`)
	if len(asks.FindAllIndex(text, -1)) == 0 {
		return found, errors.New("examples/nginx/nginx.conf has no auth_request")
	}
	var at [3]string
	for i := range at {
		port, err := freeport.Pick()
		if err != nil {
			return found, err
		}
		at[i] = fmt.Sprintf("127.0.0.1:%d", port)
		conf := strings.NewReplacer(":8000", fmt.Sprintf(":%d", port), "127.0.0.1:9000", api.Listener.Addr().String(),
			"127.0.0.1:8082", asked[i]).Replace(string(text))
		if i == 0 {
			conf = asks.ReplaceAllString(conf, "")
		}
		dir := filepath.Join(w.dir, fmt.Sprint("nginx", i))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return found, err
		}
		if err := errors.Join(os.Chmod(w.dir, 0o755), os.Chmod(dir, 0o777),
			os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o644)); err != nil {
			return found, err
		}
		path, err := exec.LookPath("nginx")
		if err != nil {
			path = "/usr/sbin/nginx"
		}
		cmd := exec.Command(path, "-p", ".", "-c", "nginx.conf", "-g", "daemon off;", "-e", "stderr")
		cmd.Dir = dir
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := mortal.Start(cmd, syscall.SIGTERM); err != nil {
			return found, err
		}
		defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
		if !harness.Eventually(time.Minute, func() bool { return listens(at[i]) }) {
			return found, fmt.Errorf("it does not listen: %s", said.String())
		}
	}
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext}}
	var times [3][]float64
	for round := range rounds {
		for i := range at {
			n := (i + round) % len(at)
			all := make([]float64, 0, 2000)
			for range cap(all) {
				began := time.Now()
				response, err := client.Get("http://" + at[n] + "/v1/items/7")
				if err != nil {
					return found, err
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK {
					return found, fmt.Errorf("answered %s", response.Status)
				}
				all = append(all, float64(time.Since(began).Nanoseconds())/1000)
			}
			fmt.Fprintf(stderr, "round %d of %d  nginx, asking: %-9s %29.1f µs\n", round+1, rounds,
				[...]string{"nobody", "nothing", "Headgate"}[n], median(all))
			times[n] = append(times[n], median(all))
		}
	}
	return nginx{median(times[0]), median(times[1]), median(times[2])}, nil
}
