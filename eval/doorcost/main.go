// Command doorcost measures what a decision costs at each door, in processor time of the process that
// answers, and writes the page about it. Beside the doors stand what they are built on: an empty
// service of grpc-go, and Redis.
//
//	go run ./doorcost          all of it, and the page: three minutes
//	go run ./doorcost -dry     on standard output
//	go run ./doorcost -only 'ShouldRateLimit|empty'     some ways, whose figures are printed as they come
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/peers"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "doorcost:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("doorcost", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "how often each way to ask is measured, in turn")
	span := flags.Duration("sample", time.Second, "how long a sample lasts")
	dry := flags.Bool("dry", false, "print the page instead of writing it")
	only := flags.String("only", "", "measure the ways that this regular expression matches, and write no page")
	others := flags.Bool("others", true, "measure gubernator too, which takes two minutes to build, once")
	empty := flags.String("empty", "",
		"for the program's own use: be the empty service, as it comes (stock) or with what Headgate sets (tuned); "+
			"a server of net/http without (http) or with the middleware (limited); "+
			"or one that sends five numbers whenever it has read (numbers)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch *empty {
	case "":
	case "http", "limited":
		return serveHTTP(stdout, *empty == "limited")
	case "numbers":
		return serveNumbers(stdout)
	default:
		return serveEmpty(stdout, *empty == "tuned")
	}
	if *rounds < 1 || *span < 100*time.Millisecond {
		return errors.New("want -rounds of 1 or more and a -sample of 100ms or more")
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	w, err := newWorld(*others)
	if err != nil {
		return err
	}
	defer w.close()
	ways, err := w.ways()
	if err != nil {
		return err
	}
	ways = slices.DeleteFunc(ways, func(w way) bool { return !wanted.MatchString(w.name) })
	found := make([][]float64, len(ways)) // microseconds a decision
	for round := range *rounds {
		for i := range ways {
			at := (i + round) % len(ways) // nobody is always first
			each, err := ways[at].measure(*span)
			if err != nil {
				return fmt.Errorf("%s: %w", ways[at].name, err)
			}
			fmt.Fprintf(stderr, "round %d of %d  %-45s %8.2f µs\n", round+1, *rounds, ways[at].name, each)
			found[at] = append(found[at], each)
		}
	}
	if *only != "" {
		for i, w := range ways {
			fmt.Fprintf(stdout, "%-55s %8.2f µs\n", w.name, median(found[i]))
		}
		return nil
	}
	behind, err := w.behindNginx(*rounds, stderr)
	if err != nil {
		return fmt.Errorf("nginx: %w", err)
	}
	return page.Publish("doors", report(ways, found, behind), nil, *dry, stdout, stderr)
}

// way is one way to ask.
type way struct {
	name, floor string // and the way that it stands beside
	pid         int
	store       int // the process that it keeps its counters in, whose work counts too; 0 for none
	askers      int
	decisions   int                                  // of one call
	open        func() (ask func() error, err error) // for each asker
}

// measure returns the processor time of a decision in microseconds, after a warm-up of a fifth of the span.
func (w *way) measure(span time.Duration) (float64, error) {
	var made atomic.Int64
	failed := make(chan error, w.askers)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	for range w.askers {
		ask, err := w.open()
		if err != nil {
			return 0, err
		}
		all.Go(func() {
			for ctx.Err() == nil {
				if err := ask(); err != nil {
					failed <- err
					return
				}
				made.Add(int64(w.decisions))
			}
		})
	}
	time.Sleep(span / 5)
	from := made.Load()
	before, err := w.cpu()
	time.Sleep(span)
	after, errAfter := w.cpu()
	n := made.Load() - from
	stop()
	all.Wait()
	close(failed)
	return float64((after - before).Nanoseconds()) / 1000 / float64(max(1, n)), errors.Join(err, errAfter, <-failed)
}

// cpu is how long what answers has worked so far, its store included.
func (w *way) cpu() (time.Duration, error) {
	own, err := harness.CPU(w.pid)
	if w.store == 0 || err != nil {
		return own, err
	}
	store, err := harness.CPU(w.store)
	return own + store, err
}

// world is a Headgate with all its doors, and what stands beside it.
type world struct {
	dir      string
	headgate *harness.Gateway
	stock    empty         // the empty service, as it comes
	tuned    empty         // and with what Headgate sets
	bare     empty         // a server of net/http
	limited  empty         // behind httplimit
	numbers  empty         // reads and writes
	peer     *peers.Server // envoyproxy/ratelimit
	node     *peers.Server // gubernator; nil if it is left out
	cell     *peers.Server // redis-cell
	crab     *peers.Server // throttlecrab; nil if nobody has built it
	redis    *exec.Cmd
	redisAt  string
	client   *http.Client
	calls    map[string]*grpc.ClientConn
}

func newWorld(others bool) (w *world, err error) {
	w = &world{
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		calls:  map[string]*grpc.ClientConn{},
	}
	if w.dir, err = os.MkdirTemp("", "doorcost"); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"routes.txt": "GET /v1/items/{id}\n",
		"limits.yaml": "domain: eval\ndescriptors: [{key: key, rate_limit: {unit: second, requests_per_unit: " +
			"1000000}}]\n",
		"headgate.yaml": "listen: none\nroutes: [routes.txt]\ndecisions: {listen: '127.0.0.1:0', grpc: " +
			"'127.0.0.1:0', resp: '127.0.0.1:0', spoe: '127.0.0.1:0', ratelimit: [limits.yaml]}\n",
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := harness.Command(w.dir, "policy", "set", "default", "1000000", "--db", "sqlite:headgate.db"); err != nil {
		return nil, err
	}
	if w.headgate, err = harness.Start(w.dir, "--config", "headgate.yaml", "--listen", "none"); err != nil {
		return nil, err
	}
	if w.stock, err = startEmpty("stock"); err != nil {
		return nil, err
	}
	if w.tuned, err = startEmpty("tuned", "GOGC=400"); err != nil { // as headgate serve sets it
		return nil, err
	}
	if w.bare, err = startEmpty("http", "GOGC=400"); err != nil {
		return nil, err
	}
	if w.limited, err = startEmpty("limited", "GOGC=400"); err != nil {
		return nil, err
	}
	if w.numbers, err = startEmpty("numbers", "GOGC=400"); err != nil {
		return nil, err
	}
	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}
	w.redisAt = fmt.Sprintf("127.0.0.1:%d", port)
	w.redis = exec.Command("redis-server", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no",
		"--loglevel", "warning")
	w.redis.Dir = w.dir
	if err := mortal.Start(w.redis, syscall.SIGKILL); err != nil {
		return nil, err
	}
	if !harness.Eventually(time.Minute, func() bool { return listens(w.redisAt) }) {
		return nil, errors.New("redis-server does not listen")
	}
	if err := os.Mkdir(filepath.Join(w.dir, "cell"), 0o755); err != nil {
		return nil, err
	}
	if w.cell, err = peers.Redis(filepath.Join(w.dir, "cell")); err != nil {
		return nil, err
	}
	if w.crab, err = peers.Throttlecrab(1 << 17); err != nil {
		return nil, err
	}
	binary, err := peers.BuildRateLimit()
	if err != nil {
		return nil, err
	}
	w.peer, err = peers.StartRateLimit(binary, filepath.Join(w.dir, "peer"), w.redisAt,
		"- {key: key, rate_limit: {unit: second, requests_per_unit: 1000000}}\n")
	if err != nil || !others {
		return w, err
	}
	if binary, err = peers.BuildGubernator(); err != nil {
		return nil, err
	}
	w.node, err = peers.StartGubernator(binary, 1<<17)
	return w, err
}

// empty is a process of the empty service.
type empty struct {
	cmd *exec.Cmd
	at  string
}

func startEmpty(kind string, settings ...string) (e empty, err error) {
	self, err := os.Executable()
	if err != nil {
		return e, err
	}
	e.cmd = exec.Command(self, "-empty", kind)
	e.cmd.Env = append(os.Environ(), settings...)
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return e, err
	}
	if err := mortal.Start(e.cmd, syscall.SIGKILL); err != nil {
		return e, err
	}
	e.at, err = bufio.NewReader(out).ReadString('\n')
	e.at = strings.TrimSpace(e.at)
	return e, err
}

func listens(at string) bool {
	c, err := net.Dial("tcp", at)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func (w *world) close() {
	for _, c := range w.calls {
		_ = c.Close()
	}
	for _, peer := range []*peers.Server{w.peer, w.node, w.cell, w.crab} {
		if peer != nil {
			peer.Stop()
		}
	}
	for _, cmd := range []*exec.Cmd{w.stock.cmd, w.tuned.cmd, w.bare.cmd, w.limited.cmd, w.numbers.cmd, w.redis} {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	w.headgate.Kill()
	_ = os.RemoveAll(w.dir)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
}

// goals is what was to be reached, in ratios of one run where machines differ.
func goals(of map[string]float64, behind nginx) page.Table {
	t := page.Table{{"goal", "wanted", "measured", "reached"}}
	row := func(goal, unit string, measured, most float64) {
		yes := "yes"
		if measured > most {
			yes = "**no**"
		}
		t = append(t, []string{goal, fmt.Sprintf("≤ %.4g %s", most, unit), fmt.Sprintf("%.3g %s", measured, unit), yes})
	}
	row("the rate limit service, of an empty service of grpc-go as it comes", "×", of[rlsRow]/of[emptyRow], 0.87)
	row("the same, of envoyproxy/ratelimit with its Redis", "×", of[rlsRow]/of[peerRow], 0.2)
	if node := of[nodeRow]; node > 0 {
		row("the same, of a node of gubernator", "×", of[rlsRow]/node, 1/2.6)
	}
	row("`CL.THROTTLE`, of Redis' `INCR`", "×", of[respRow]/of[incrRow], 1)
	row("the same, 32 in a pipeline, of Redis' `PING`", "×", of[respPipe]/of[pingRow], 3.2/1.4)
	row("a decision of 100 in a batch, in JSON", "µs", of[batchRow], 1.5)
	row("what `/nginx` adds behind nginx", "µs", behind.asking-behind.plain, 40)
	row("the same, of what a question to an empty server of net/http adds", "×",
		(behind.asking-behind.plain)/(behind.empty-behind.plain), 1)
	return t
}

func report(ways []way, found [][]float64, behind nginx) string {
	var b strings.Builder
	of := map[string]float64{}
	for i := range ways {
		of[ways[i].name] = median(found[i])
	}
	table := page.Table{{"asked by", "µs of processor time a decision", "spread", "beside"}}
	for i, w := range ways {
		beside := ""
		if w.floor != "" {
			beside = fmt.Sprintf("%.2f × %s", of[w.name]/of[w.floor], w.floor)
		}
		table = append(table, []string{w.name, fmt.Sprintf("%.2f", of[w.name]),
			fmt.Sprintf("%.2f–%.2f", slices.Min(found[i]), slices.Max(found[i])), beside})
	}
	fmt.Fprintf(&b, "%s\n%s\n### Goals\n\n%s\n", page.Conditions(time.Now(), "make doors-bench"), table,
		goals(of, behind))
	fmt.Fprintf(&b, "Behind nginx, one connection at a time, medians: an answer takes %.0f µs without a question, "+
		"%.0f µs with one to a server of net/http that says yes to everything, and %.0f µs with one to `/nginx`: "+
		"%.0f µs more, of which Headgate is %.0f µs.\n",
		behind.plain, behind.empty, behind.asking, behind.asking-behind.plain, behind.asking-behind.empty)
	return b.String()
}
