package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/internal/mortal"
)

// Work is how much a limiter decided in one sample, and what that took.
type Work struct {
	Decisions int64
	Service   time.Duration // of the processors, by the process that decides
	Store     time.Duration // by the store
}

func (w Work) each() time.Duration { return w.Service / time.Duration(max(1, w.Decisions)) }

func (w Work) String() string {
	return fmt.Sprintf("%d decisions, %v each, and %v of the store", w.Decisions, w.each(),
		w.Store/time.Duration(max(1, w.Decisions)))
}

// contender is one way to decide, whose process is measured.
type contender struct {
	name, what string
	peer       bool // the others are compared with the better of these
	sample     func(c *contest) (Work, error)
}

// contenders, in the order of the page.
var contenders = []contender{
	{
		name:   "envoyproxy/ratelimit",
		what:   "asked over gRPC",
		peer:   true,
		sample: func(c *contest) (Work, error) { return c.asked(c.peer.server.PID(), c.peer.hit) },
	},
	{name: "envoyproxy/ratelimit, pipelined", what: "asked over gRPC; commands to the store collected for 150 µs",
		peer:   true,
		sample: func(c *contest) (Work, error) { return c.asked(c.pipelined.server.PID(), c.pipelined.hit) }},
	{name: "Headgate's rate limit service, `strict`", what: "asked over gRPC, as the first two",
		sample: func(c *contest) (Work, error) { return c.asked(c.strict.gateway.PID(), c.strict.hit) }},
	{name: "Headgate's rate limit service, `local`", what: "asked over gRPC, and no store",
		sample: func(c *contest) (Work, error) { return c.asked(c.local.gateway.PID(), c.local.hit) }},
	{name: "Headgate `strict` behind HTTP", what: "asked over HTTP, by the handler of `httplimit`",
		sample: func(c *contest) (Work, error) { return c.asked(c.http.Process.Pid, c.overHTTP) }},
	{name: "Headgate `strict`", what: "asked in its own process, by `Check`; what asks counts as well",
		sample: func(c *contest) (Work, error) { return c.within() }},
}

// contest is what the contenders need, on one store.
type contest struct {
	span            time.Duration
	store           *redis
	peer, pipelined *rateLimit
	strict, local   *descriptors
	http            *exec.Cmd
	url             string
	client          *http.Client
}

// collectorTarget is what `headgate serve` sets for the collector of garbage. The others get it too.
const (
	collectorTarget = 400
	collector       = "GOGC=400"
)

// decisions lets every contender decide for a while, in turn, some rounds: the samples of each, in
// the order of contenders.
func (f *field) decisions(binary string) (found [][]Work, err error) {
	c := &contest{span: f.sample, store: f.store, client: newClient()}
	if c.peer, err = startRateLimit(binary, f.store.address, f.limit, collector); err != nil {
		return nil, err
	}
	defer c.peer.stop()
	if c.pipelined, err = startRateLimit(binary, f.store.address, f.limit, collector,
		"REDIS_PIPELINE_WINDOW=150us"); err != nil {
		return nil, err
	}
	defer c.pipelined.stop()
	if c.strict, err = startDescriptors("strict", f.store.address); err != nil {
		return nil, err
	}
	defer c.strict.stop()
	if c.local, err = startDescriptors("local", f.store.address); err != nil {
		return nil, err
	}
	defer c.local.stop()
	if err := c.startHTTP(); err != nil {
		return nil, err
	}
	defer func() { _ = c.http.Process.Kill(); _ = c.http.Wait() }()
	found = make([][]Work, len(contenders))
	for round := range f.rounds {
		for i := range contenders {
			at := (i + round) % len(contenders) // nobody is always first
			w, err := contenders[at].sample(c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[at].name, err)
			}
			f.progress("round %d of %d  %-32s %v", round+1, f.rounds, contenders[at].name, w)
			found[at] = append(found[at], w)
		}
	}
	return found, nil
}

// startHTTP starts this program as a service of its own that decides, and answers over HTTP.
func (c *contest) startHTTP() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.http = exec.Command(self, "-part", partServe, "-store", c.store.address)
	c.http.Stderr = os.Stderr
	out, err := c.http.StdoutPipe()
	if err != nil {
		return err
	}
	if err := mortal.Start(c.http, syscall.SIGKILL); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	c.url = strings.TrimSpace(line)
	return err
}

// Parts that this program measures, or is, in a process of its own.
const (
	partServe  = "serve"
	partDecide = "decide"
)

// part does one part in this process.
func (p plan) part(which, store string, pid int, stdout io.Writer) error {
	debug.SetGCPercent(collectorTarget)
	d, err := newDecider(store)
	if err != nil {
		return err
	}
	defer d.client.Close()
	if which == partServe {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, "http://"+l.Addr().String()+"/v1/items"); err != nil {
			return err
		}
		return d.serve(l)
	}
	w, err := busy(p.sample, d.decide, os.Getpid(), pid)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(w)
}

// within measures decisions of a process that decides for itself.
func (c *contest) within() (Work, error) {
	return page.Child[Work]("-part", partDecide, "-store", c.store.address, "-pid", c.store.cmd.Process.Pid,
		"-sample", c.span)
}

// asked measures decisions of a process that is asked by this one.
func (c *contest) asked(pid int, ask func() error) (Work, error) {
	return busy(c.span, ask, pid, c.store.cmd.Process.Pid)
}

// hit asks about one of many values of a key, of which each has a limit that is never reached.
func (a *asker) hit() error {
	ok, err := a.allowed("key", strconv.Itoa(rand.IntN(subjects)))
	if err == nil && !ok {
		err = errNotAllowed
	}
	return err
}

// overHTTP asks Headgate for a random address.
func (c *contest) overHTTP() error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	request.Header[clientField] = []string{somebody().String()}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s", errNotAllowed, response.Status)
	}
	_ = response.Body.Close()
	return err
}

// askers is how many ask at the same time.
const askers = 64

// busy has decisions made one after the other by many, for a while after a fifth of it that does
// not count, and looks what two processes worked.
func busy(span time.Duration, decide func() error, service, store int) (w Work, err error) {
	var made atomic.Int64
	failed := make(chan error, askers)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := decide(); err != nil {
					failed <- err
					return
				}
				made.Add(1)
			}
		})
	}
	time.Sleep(span / 5)
	from := made.Load()
	ownBefore, err := harness.CPU(service)
	storeBefore, errStore := harness.CPU(store)
	time.Sleep(span)
	own, errOwn := harness.CPU(service)
	after, errAfter := harness.CPU(store)
	w = Work{Decisions: made.Load() - from, Service: own - ownBefore, Store: after - storeBefore}
	stop()
	all.Wait()
	close(failed)
	return w, errors.Join(err, errStore, errOwn, errAfter, <-failed)
}
