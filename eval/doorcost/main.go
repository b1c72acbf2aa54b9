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
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
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

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/peers"
	"github.com/headgate-io/headgate/httplimit"
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

// serveHTTP answers every request with two bytes, if limited behind the middleware: one rule, both fields.
func serveHTTP(stdout io.Writer, limited bool) error {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	})
	if limited {
		lim, err := headgate.New(headgate.Options{Rules: []string{"GET /v1/items/{id} 1000000/s", "default 20/s"}})
		if err != nil {
			return err
		}
		h = httplimit.Handler(lim, h, httplimit.Options{})
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

// serveNumbers answers whatever it reads as CL.THROTTLE is answered, and does nothing else: no server in Go that waits
// for each connection by itself works less.
func serveNumbers(stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			for room := make([]byte, 4<<10); ; {
				if _, err := c.Read(room); err != nil {
					return
				}
				if _, err := io.WriteString(c, "*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:1\r\n"); err != nil {
					return
				}
			}
		}()
	}
}

// serveEmpty answers ShouldRateLimit with OK, by grpc-go as it comes, or with what Headgate sets: goroutines that it
// keeps, and windows of a fixed size.
func serveEmpty(stdout io.Writer, keeps bool) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	var options []grpc.ServerOption
	if keeps {
		options = append(options, grpc.NumStreamWorkers(128),
			grpc.StaticStreamWindowSize(256<<10), grpc.StaticConnWindowSize(1<<20))
	}
	s := grpc.NewServer(options...)
	ratelimit.RegisterRateLimitServiceServer(s, emptyService{})
	return s.Serve(l)
}

type emptyService struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (emptyService) ShouldRateLimit(context.Context,
	*ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// somebody is one of 65,536 addresses, so that buckets are found in a table of some size.
func somebody() string { return fmt.Sprintf("198.18.%d.%d", rand.IntN(256), rand.IntN(256)) }

const (
	emptyRow = "an empty service of grpc-go, as it comes"
	tunedRow = "the same, with what Headgate sets"
	peerRow  = "envoyproxy/ratelimit (ShouldRateLimit), and its Redis"
	nodeRow  = "gubernator (GetRateLimits), one node"
	readRow  = "a server in Go that reads and writes, and nothing else"
	incrRow  = "Redis, INCR"
	pipeRow  = "Redis, INCR, 32 in a pipeline"
	bareRow  = "net/http, without a limiter"
	pingRow  = "Redis, PING, 32 in a pipeline"

	rlsRow   = "Envoy's rate limit filter (ShouldRateLimit)"
	batchRow = "a program, in JSON, 100 in a batch"
	respRow  = "CL.THROTTLE"
	respPipe = "CL.THROTTLE, 32 in a pipeline"

	cellRow, cellPipe = "redis-cell in Redis, CL.THROTTLE", "redis-cell in Redis, CL.THROTTLE, 32 in a pipeline"
	crabRow, crabPipe = "throttlecrab, THROTTLE", "throttlecrab, THROTTLE, 32 in a pipeline"
)

// ways are those to ask, in the order of the page.
func (w *world) ways() ([]way, error) {
	_, respPort, err := net.SplitHostPort(w.headgate.RESP)
	if err != nil {
		return nil, err
	}
	resp, pid := "127.0.0.1:"+respPort, w.headgate.PID()
	throttle := func() string { return command("CL.THROTTLE", somebody(), "999999", "1000000", "1") }
	check := func() string { return command("HG.CHECK", "GET", "/v1/items/7", somebody()) }
	incr := func() string { return command("INCR", somebody()) }
	all := []way{
		{emptyRow, "", w.stock.cmd.Process.Pid, 0, 64, 1, w.shouldRateLimit(w.stock.at)},
		{tunedRow, emptyRow, w.tuned.cmd.Process.Pid, 0, 64, 1, w.shouldRateLimit(w.tuned.at)},
		{peerRow, emptyRow, w.peer.PID(), w.redis.Process.Pid, 64, 1, w.shouldRateLimit(w.peer.At)},
		{rlsRow, emptyRow, pid, 0, 64, 1, w.shouldRateLimit(w.headgate.GRPC)},
		{"Envoy's ext_authz, by gRPC", emptyRow, pid, 0, 64, 1, w.authorize()},
		{"HAProxy's spoe", "", pid, 0, 64, 1, w.overSPOE()},
		{"nginx, Caddy and others (/forward)", "", pid, 0, 64, 1, w.forward()},
		{"a program, in JSON", "", pid, 0, 64, 1, w.inJSON(1)},
		{batchRow, "", pid, 0, 8, 100, w.inJSON(100)},
		{incrRow, "", w.redis.Process.Pid, 0, 64, 1, pipeline(w.redisAt, 1, 1, incr)},
		{readRow, incrRow, w.numbers.cmd.Process.Pid, 0, 64, 1, pipeline(w.numbers.at, 1, 6, throttle)},
		{respRow, incrRow, pid, 0, 64, 1, pipeline(resp, 1, 6, throttle)},
		{"HG.CHECK", incrRow, pid, 0, 64, 1, pipeline(resp, 1, 9, check)},
		{pingRow, "", w.redis.Process.Pid, 0, 16, 32,
			pipeline(w.redisAt, 32, 1, func() string { return command("PING") })},
		{pipeRow, "", w.redis.Process.Pid, 0, 16, 32, pipeline(w.redisAt, 32, 1, incr)},
		{respPipe, pipeRow, pid, 0, 16, 32, pipeline(resp, 32, 6, throttle)},
		{"HG.CHECK, 32 in a pipeline", pipeRow, pid, 0, 16, 32, pipeline(resp, 32, 9, check)},
		{bareRow, "", w.bare.cmd.Process.Pid, 0, 16, 1, w.get(w.bare.at)},
		{"net/http behind `httplimit`, with both fields", bareRow, w.limited.cmd.Process.Pid, 0, 16, 1,
			w.get(w.limited.at)},
	}
	beside := func(row string, more ...way) {
		at := slices.IndexFunc(all, func(w way) bool { return w.name == row })
		all = slices.Insert(all, at+1, more...)
	}
	beside(incrRow, way{cellRow, incrRow, w.cell.PID(), 0, 64, 1, pipeline(w.cell.At, 1, 6, throttle)})
	beside(pipeRow, way{cellPipe, pipeRow, w.cell.PID(), 0, 16, 32, pipeline(w.cell.At, 32, 6, throttle)})
	if w.crab != nil {
		take := func() string { return command("THROTTLE", somebody(), "999999", "1000000", "1") }
		beside(cellRow, way{crabRow, incrRow, w.crab.PID(), 0, 64, 1, pipeline(w.crab.At, 1, 6, take)})
		beside(cellPipe, way{crabPipe, pipeRow, w.crab.PID(), 0, 16, 32, pipeline(w.crab.At, 32, 6, take)})
	}
	if w.node != nil {
		all = slices.Insert(all, 3, way{nodeRow, emptyRow, w.node.PID(), 0, 64, 1, w.getRateLimits()})
	}
	return all, nil
}

func (w *world) dial(at string) (*grpc.ClientConn, error) {
	if c := w.calls[at]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.calls[at] = c
	return c, err
}

func (w *world) shouldRateLimit(at string) func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := w.dial(at)
		if err != nil {
			return nil, err
		}
		client := ratelimit.NewRateLimitServiceClient(conn)
		return func() error {
			answer, err := client.ShouldRateLimit(context.Background(), &ratelimit.RateLimitRequest{
				Domain: "eval", Descriptors: []*wire.RateLimitDescriptor{
					{Entries: []*wire.RateLimitDescriptor_Entry{{Key: "key", Value: somebody()}}}},
			})
			if err == nil && answer.GetOverallCode() != ratelimit.RateLimitResponse_OK {
				err = errors.New("the limit was met")
			}
			return err
		}, nil
	}
}

// getRateLimits asks gubernator in its own protocol: a GetRateLimitsReq (pb.gubernator) with one RateLimitReq, of which
// name, unique_key, hits, limit and duration are fields 1 to 5; and the error of a RateLimitResp is field 5.
func (w *world) getRateLimits() func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := w.dial(w.node.At)
		if err != nil {
			return nil, err
		}
		return func() error {
			one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "eval")
			one = protowire.AppendString(protowire.AppendTag(one, 2, protowire.BytesType), somebody())
			for i, n := range []uint64{1, 1_000_000, 1000} {
				one = protowire.AppendVarint(protowire.AppendTag(one, protowire.Number(3+i), protowire.VarintType), n)
			}
			question := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one)
			var answer []byte
			err := conn.Invoke(context.Background(), "/pb.gubernator.V1/GetRateLimits", question, &answer,
				grpc.ForceCodecV2(asItIs{}))
			if err == nil && (bytes.Contains(answer, []byte("pool is empty")) || len(answer) < 10) {
				err = fmt.Errorf("answered %q", answer)
			}
			return err
		}, nil
	}
}

// asItIs sends messages that are written already.
type asItIs struct{}

func (asItIs) Name() string { return "proto" }

func (asItIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (asItIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (w *world) authorize() func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := w.dial(w.headgate.GRPC)
		if err != nil {
			return nil, err
		}
		client := auth.NewAuthorizationClient(conn)
		return func() error {
			answer, err := client.Check(context.Background(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
				Source: &auth.AttributeContext_Peer{Address: &core.Address{
					Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: somebody()}}}},
				Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET",
					Path: "/v1/items/7", HeaderMap: &core.HeaderMap{Headers: []*core.HeaderValue{
						{Key: "accept", RawValue: []byte("*/*")}, {Key: "user-agent", RawValue: []byte("doorcost")},
					}}}},
			}})
			if err == nil && answer.GetOkResponse() == nil {
				err = errors.New("the request was refused")
			}
			return err
		}, nil
	}
}

// posted sends a request and wants 200, with a text in its answer.
func (w *world) posted(r *http.Request, want string) error {
	response, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(want)) ||
		bytes.Contains(body, []byte(`"allowed":false`))) {
		err = fmt.Errorf("%s: %.200s", response.Status, body)
	}
	return err
}

func (w *world) forward() func() (func() error, error) {
	return func() (func() error, error) {
		return func() error {
			r, err := http.NewRequest(http.MethodGet, w.headgate.Decisions+"/forward", http.NoBody)
			if err != nil {
				return err
			}
			r.Header = http.Header{
				"X-Forwarded-Method": {"GET"},
				"X-Forwarded-Uri":    {"/v1/items/7"},
				"X-Forwarded-For":    {somebody()},
				"User-Agent":         {"doorcost"},
			}
			return w.posted(r, "")
		}, nil
	}
}

// get asks a server of net/http over a connection for each asker, by bytes: what asks must not be what is waited for.
func (w *world) get(at string) func() (func() error, error) {
	const request = "GET /v1/items/7 HTTP/1.1\r\nHost: api\r\n\r\n"
	return func() (func() error, error) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return nil, err
		}
		answer := make([]byte, 1<<10)
		return func() error {
			if _, err := io.WriteString(c, request); err != nil {
				return err
			}
			n, err := c.Read(answer) // in one piece, as a few hundred bytes are
			if err == nil && !bytes.HasSuffix(answer[:n], []byte("\r\n\r\nok")) {
				err = fmt.Errorf("answered %q", answer[:n])
			}
			return err
		}, nil
	}
}

func (w *world) inJSON(n int) func() (func() error, error) {
	return func() (func() error, error) {
		return func() error {
			var b strings.Builder
			for i := range n {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, `{"method":"GET","target":"/v1/items/7","client":"%s"}`, somebody())
			}
			text := b.String()
			if n > 1 {
				text = `{"requests":[` + text + `]}`
			}
			r, err := http.NewRequest(http.MethodPost, w.headgate.Decisions+"/v1/check", strings.NewReader(text))
			if err != nil {
				return err
			}
			return w.posted(r, `"allowed":true`)
		}, nil
	}
}

func command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// pipeline asks by n commands at once, of which each is answered by some lines.
func pipeline(at string, n, lines int, one func() string) func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return nil, err
		}
		in := bufio.NewReaderSize(conn, 64<<10)
		return func() error {
			var b strings.Builder
			for range n {
				b.WriteString(one())
			}
			if _, err := io.WriteString(conn, b.String()); err != nil {
				return err
			}
			for range n * lines {
				line, err := in.ReadSlice('\n')
				if err != nil {
					return err
				}
				if line[0] == '-' {
					return errors.New(string(line))
				}
			}
			return nil
		}, nil
	}
}

// overSPOE asks by frames as HAProxy writes them, one at a time on each connection.
func (w *world) overSPOE() func() (func() error, error) {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) } // all below 240 bytes
	frame := func(kind byte, payload []byte) []byte {
		return append([]byte{0, 0, 0, byte(7 + len(payload)), kind, 0, 0, 0, 1, 0, 0}, payload...)
	}
	hello := text(append(text(nil, "supported-versions"), 8), "2.0")
	hello = append(text(hello, "max-frame-size"), 3, 0xfc, 0xf0, 0x06) // 16,380
	return func() (func() error, error) {
		conn, err := net.Dial("tcp", w.headgate.SPOE)
		if err != nil {
			return nil, err
		}
		in := bufio.NewReader(conn)
		read := func() ([]byte, error) {
			head, err := in.Peek(4)
			if err != nil {
				return nil, err
			}
			whole, err := in.Peek(4 + int(head[2])<<8 + int(head[3]))
			_, _ = in.Discard(len(whole))
			return whole, err
		}
		if _, err := conn.Write(frame(1, hello)); err != nil {
			return nil, err
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		return func() error {
			q := append(text(nil, "check"), 4)
			q = text(append(text(q, "method"), 8), "GET")
			q = text(append(text(q, "target"), 8), "/v1/items/7")
			q = text(append(text(q, "headers"), 9), "\x06Accept\x03*/*\x00\x00")
			q = append(append(text(q, "client"), 6), 198, 18, byte(rand.IntN(256)), byte(rand.IntN(256)))
			if _, err := conn.Write(frame(3, q)); err != nil {
				return err
			}
			answer, err := read()
			if err == nil && !bytes.Contains(answer, []byte("within_limits")) {
				err = fmt.Errorf("the answer is %q", answer)
			}
			return err
		}, nil
	}
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
