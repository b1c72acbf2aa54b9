package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/rivals/peer"
)

// clients is how many connections ask a server of net/http at once.
const clients = 16

// What a server answers with: the least that there is, which net/http sends without a header of the handler's, and what
// an API sends.
const (
	twoBytes = "ok"
	item     = `{"id":4711,"name":"Enamel mug, 0.4 l","price":{"amount":1499,"currency":"EUR"},"stock":12,` +
		`"tags":["kitchen","camping"],"updated":"2026-11-02T09:30:00Z"}` + "\n"
)

// handler is what stands behind every middleware.
func handler(body string) http.Handler {
	sent := []byte(body)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if body != twoBytes {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = w.Write(sent)
	})
}

// serve answers every request behind a middleware, and prints where.
func serve(name, body string, stdout io.Writer) error {
	all := peer.Middlewares()
	at := slices.IndexFunc(all, func(m peer.Middleware) bool { return m.Name == name })
	if at < 0 {
		return fmt.Errorf("there is no middleware %q", name)
	}
	h, err := all[at].Wrap(handler(body))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(l)
}

// server is a process that serves.
type server struct {
	cmd   *exec.Cmd
	conns []net.Conn
	end   []byte // of each answer
}

func startServer(name, body string) (s *server, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s = &server{cmd: exec.Command(self, "-serve", name, "-body", body), end: []byte("\r\n\r\n" + body)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	var at string
	if _, err := fmt.Fscanln(out, &at); err != nil {
		return nil, fmt.Errorf("%s did not say where it serves: %w", name, err)
	}
	for range clients {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

func (s *server) stop() {
	for _, c := range s.conns {
		_ = c.Close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// request is what is asked, by bytes: what asks must not be what is waited for.
const request = "GET /v1/items/4711 HTTP/1.1\r\nHost: api.example\r\nUser-Agent: rivals\r\nAccept: */*\r\n\r\n"

// measure is the server's processor time of a request, in microseconds.
func (s *server) measure(span time.Duration) (float64, error) {
	var answered atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, len(s.conns))
	before, err := harness.CPU(s.cmd.Process.Pid)
	until := time.Now().Add(span)
	for _, c := range s.conns {
		all.Go(func() {
			answer := make([]byte, 1<<10)
			for n := range int64(1 << 62) {
				if time.Now().After(until) {
					answered.Add(n)
					return
				}
				_, err := io.WriteString(c, request)
				got := 0
				if err == nil {
					got, err = c.Read(answer) // in one piece, as a few hundred bytes are
				}
				if err == nil && !bytes.HasSuffix(answer[:got], s.end) {
					err = fmt.Errorf("answered %q", answer[:got])
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	after, errAfter := harness.CPU(s.cmd.Process.Pid)
	close(failed)
	return float64((after - before).Nanoseconds()) / 1000 / float64(max(1, answered.Load())),
		errors.Join(err, errAfter, <-failed)
}

// measureHTTP asks each server in turn for a moment, again and again, and returns the microseconds of each turn.
func (p plan) measureHTTP(body string, progress io.Writer) (map[string][]float64, error) {
	all, found := peer.Middlewares(), map[string][]float64{}
	servers := make([]*server, len(all))
	for i, m := range all {
		s, err := startServer(m.Name, body)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		servers[i] = s
	}
	turns := p.rounds * p.samples
	for turn := range turns + 1 {
		for i := range all {
			i = (i + turn) % len(all) // nobody is always first
			each, err := servers[i].measure(5 * p.sample)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].Name, err)
			}
			if turn > 0 { // the first warms up
				found[all[i].Name] = append(found[all[i].Name], each)
			}
		}
		if turn%p.samples == 0 {
			fmt.Fprintf(progress, "behind net/http, %d bytes: turn %d of %d\n", len(body), turn, turns)
		}
	}
	return found, nil
}

// overNone is what a middleware's server works for a request, over what one without a limiter does in the same turn.
func overNone(found map[string][]float64, name string) float64 {
	return median(ratios(found[name], found[peer.Middlewares()[0].Name]))
}

func httpTable(bare, api map[string][]float64) page.Table {
	t := page.Table{{
		"middleware", "two bytes: µs of CPU a request", "over none", "JSON: µs of CPU a request", "over none",
		"fields in each answer", "version",
	}}
	for _, m := range peer.Middlewares() {
		version := "this repository"
		if m.Module != "" {
			version = strings.TrimPrefix(m.Module, "github.com/") + " " + page.Version(m.Module)
		}
		row := []string{m.Name}
		for _, found := range []map[string][]float64{bare, api} {
			all := found[m.Name]
			row = append(row, fmt.Sprintf("%s [%s–%s]", short(median(all)), short(slices.Min(all)),
				short(slices.Max(all))), fmt.Sprintf("%.2f", overNone(found, m.Name)))
		}
		t = append(t, append(row, m.Fields, version))
	}
	return t
}
