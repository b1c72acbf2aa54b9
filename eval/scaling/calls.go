package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	shared "github.com/headgate-io/headgate/server/redis"

	buckets "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/eval/page"
)

// What the store is asked is counted where many keys are limited at once, most of them seldom asked
// for: by Zipf's law with an exponent of one, the nth key gets an nth of what the first gets. The
// replicas are stores of this process, each with a client of its own, as a gateway has them.
const (
	callReplicas = 4
	callKeys     = 10_000
	callRate     = 5_000 // decisions a second, of all replicas
	callCallers  = 64
	callSpan     = 5 * time.Second
	callGather   = time.Millisecond // as gateways have it
)

// callScope is a scope and how much of its limit is free.
type callScope struct {
	name  string
	scope bucket.Scope
	free  int
	wait  time.Duration // for others to go by the same message
}

var callScopes = []callScope{
	{"local", bucket.Local, 0, 0}, {"strict", bucket.Strict, 0, 0},
	{"lease without a free part", bucket.Lease, 0, callGather}, {"lease", bucket.Lease, leaseFree, callGather},
	{"sync", bucket.Sync, 0, callGather},
}

// CallCell is what one scope cost under one limit.
type CallCell struct {
	Scope     string
	Limit     int64 // a second, and burst
	Calls     int64 // scripts that the server ran
	Decisions int64
	CPU       float64       // of the server, in seconds
	Used      float64       // of what could be admitted
	Median    time.Duration // that a decision took
	// by which it is longer than that of decisions under `local`, one of which is made beside each
	Added  time.Duration
	P99    time.Duration
	Failed int64
}

func (c CallCell) String() string {
	return fmt.Sprintf("%-16s %4d per second: %6d calls for %6d decisions, %.3f s of the server, used %.3f, median "+
		"%v, %v more than local, p99 %v, %d failed", c.Scope, c.Limit, c.Calls, c.Decisions,
		c.CPU, c.Used, c.Median, c.Added, c.P99, c.Failed)
}

// callLimits are the limits of each key, a second, and their bursts.
var callLimits = []int64{100, 1000}

// countCalls measures scopes under one limit after the other, on a server of its own.
func countCalls(limits []int64, scopes []callScope, span time.Duration,
	progress func(string, ...any)) (cells []CallCell, err error) {
	dir, err := os.MkdirTemp("", "headgate-scaling-calls-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := startRedis(dir)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	for _, limit := range limits {
		for _, scope := range scopes {
			cell, err := count(store, scope, limit, span)
			if err != nil {
				return nil, fmt.Errorf("calls of %s: %w", scope.name, err)
			}
			progress("%v", cell)
			cells = append(cells, cell)
		}
	}
	return cells, nil
}

// replicas are stores as gateways make them.
func replicas(store *redis, scope callScope) (stores []*scoped.Store, stop func(), err error) {
	var clients []*shared.Client
	stop = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	prefix := "c" + strconv.Itoa(int(rand.Uint32()))
	for range callReplicas {
		client, err := shared.Dial(shared.Options{Addresses: []string{store.address}})
		if err != nil {
			return nil, stop, err
		}
		clients = append(clients, client)
		local, err := memory.New(memory.Options{})
		if err != nil {
			return nil, stop, err
		}
		strict, err := buckets.New(buckets.Options{Server: client, Prefix: prefix})
		if err != nil {
			return nil, stop, err
		}
		authority, err := buckets.NewAuthority(strict, buckets.AuthorityOptions{})
		if err != nil {
			return nil, stop, err
		}
		leases, err := lease.New(lease.Options{Authority: authority, Deadline: callDeadline, Gather: scope.wait})
		if err != nil {
			return nil, stop, err
		}
		ledger, err := buckets.NewLedger(strict, buckets.LedgerOptions{})
		if err != nil {
			return nil, stop, err
		}
		reports, err := report.New(report.Options{
			Authority: ledger,
			Interval:  syncInterval,
			Deadline:  callDeadline,
			Gather:    scope.wait,
		})
		if err != nil {
			return nil, stop, err
		}
		one, err := scoped.New(scoped.Options{
			Local: local, Strict: strict, Leases: leases, Reports: reports, Free: scope.free, Deadline: callDeadline,
			// whose lanes have filled
			Replicas: func() int { return callReplicas }, Began: time.Now().Add(-time.Hour).UnixNano(),
		})
		if err != nil {
			return nil, stop, err
		}
		stores = append(stores, one)
	}
	return stores, stop, nil
}

// callDeadline is longer than that of gateways: the machine that measures runs everything at once.
const callDeadline = 100 * time.Millisecond

// zipf draws numbers below callKeys, by a law with an exponent of one.
type zipf []float64

func newZipf() zipf {
	z, sum := make(zipf, callKeys), 0.0
	for i := range z {
		sum += 1 / float64(i+1)
		z[i] = sum
	}
	return z
}

func (z zipf) draw(r *rand.Rand) int {
	return min(sort.SearchFloat64s(z, r.Float64()*z[len(z)-1]), len(z)-1)
}

// count fills one cell.
func count(store *redis, scope callScope, limit int64, span time.Duration) (cell CallCell, err error) {
	shape, err := rate.Compile(rate.Limit{Tokens: limit, Per: time.Second, Burst: limit})
	if err != nil {
		return cell, err
	}
	stores, stop, err := replicas(store, scope)
	defer stop()
	if err != nil {
		return cell, err
	}
	before, cpu, err := store.work()
	if err != nil {
		return cell, err
	}
	law := newZipf()
	callers := make([]*caller, callCallers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		callers[i] = &caller{
			r:      rand.New(rand.NewPCG(uint64(i), 1)),
			stores: stores,
			scope:  scope.scope,
			shape:  shape,
			law:    law,
			wanted: make([]int64, callKeys),
		}
		all.Go(func() { callers[i].decide(began, span) })
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	after, cpuAfter, err := store.work()
	if err != nil {
		return cell, err
	}
	cell = CallCell{Scope: scope.name, Limit: limit, Calls: after - before, CPU: cpuAfter - cpu}
	var took, tookLocal []time.Duration
	wanted, admitted := make([]int64, callKeys), int64(0)
	for _, c := range callers {
		took, tookLocal = append(took, c.took...), append(tookLocal, c.tookLocal...)
		admitted += c.admitted
		cell.Failed += c.failed
		for n := range c.wanted {
			wanted[n] += c.wanted[n]
		}
	}
	could := int64(0)
	for _, n := range wanted {
		could += min(n, limit+int64(float64(limit)*seconds))
	}
	slices.Sort(took)
	slices.Sort(tookLocal)
	cell.Decisions = int64(len(took))
	cell.Used, cell.Median, cell.P99 = float64(admitted)/float64(could), took[len(took)/2], took[len(took)*99/100]
	cell.Added = cell.Median - tookLocal[len(tookLocal)/2]
	return cell, nil
}

// caller makes one decision after the other.
type caller struct {
	r      *rand.Rand
	stores []*scoped.Store
	scope  bucket.Scope
	shape  rate.Shape
	law    zipf

	took, tookLocal  []time.Duration // by decisions, and by those beside them
	wanted           []int64         // tokens, by key
	admitted, failed int64
}

// decide makes decisions for so long, at random times.
func (c *caller) decide(began time.Time, span time.Duration) {
	takes, outs := make([]bucket.Take, 1), make([]bucket.Outcome, 1)
	for next := began; next.Sub(began) < span; next = next.Add(
		time.Duration(c.r.ExpFloat64() * callCallers / callRate * float64(time.Second))) {
		time.Sleep(time.Until(next))
		n, one := c.law.draw(c.r), c.stores[c.r.IntN(len(c.stores))]
		ask := func(apart uint64, scope bucket.Scope) (allowed bool, took time.Duration, err error) {
			of := key.Key{Hi: uint64(n)*0x9e3779b97f4a7c15 + apart, Lo: uint64(n)*0xbf58476d1ce4e5b9 + 7}
			takes[0] = bucket.Take{Key: of, Shape: c.shape, Cost: 1, Reach: bucket.NewReach(scope, bucket.LossClosed)}
			start := time.Now()
			allowed, err = one.TryConsume(context.Background(), start.UnixNano(), takes, outs)
			return allowed, time.Since(start), err
		}
		local := func() {
			_, took, _ := ask(2, bucket.Local)
			c.tookLocal = append(c.tookLocal, took)
		}
		// Whoever comes second finds the processor awake and its caches warm.
		first := c.r.IntN(2) == 0
		if first {
			local()
		}
		allowed, took, err := ask(1, c.scope)
		if !first {
			local()
		}
		c.took = append(c.took, took)
		c.wanted[n]++
		if err != nil {
			c.failed++
		} else if allowed {
			c.admitted++
		}
	}
}

// work is how many scripts the server has run, and how many seconds of processor time it took for all it did.
func (r *redis) work() (scripts int64, cpu float64, err error) {
	if scripts, err = r.calls(); err != nil {
		return 0, 0, err
	}
	info, err := r.do("INFO cpu")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("INFO cpu: %w", err)
			}
			cpu += seconds
		}
	}
	return scripts, cpu, nil
}

// leastCalls is how many calls a lease needs about, relative to decisions, where each replica asks
// for a key only for what the key's free part cannot give, no more often than once in a TTL, and by
// one call for all keys that it asks for within callGather.
//
// For example, a replica that gets 25 requests a second for a key whose free part gives 5 has to
// ask for 20. If they come at random, two of them follow each that asks within its TTL of 100 ms:
// that is 20/(1+2) calls a second.
func leastCalls(limit int64) float64 {
	const replicas = float64(callReplicas)
	ttl, sum := lease.Terms{}.Complete().TTL.Seconds(), 0.0
	for _, upTo := range newZipf() {
		sum = upTo
	}
	calls := 0.0 // a second, of one replica
	for n := range callKeys {
		wanted := callRate / sum / float64(n+1) / replicas
		beyond := max(0, min(wanted, float64(limit)/replicas)-float64(limit)*leaseFree/100/replicas)
		calls += beyond / (1 + beyond*ttl)
	}
	return calls / (1 + calls*callGather.Seconds()) * replicas / callRate
}

// callLeast says what callTable is to be held against.
func callLeast(cells []CallCell) string {
	var least []string
	for _, c := range cells {
		if c.Scope == "lease" {
			least = append(least, fmt.Sprintf("%.3f under %d/s", leastCalls(c.Limit), c.Limit))
		}
	}
	if len(least) == 0 {
		return ""
	}
	return "\nAbout the least that a `lease` can do with, relative to decisions: " + strings.Join(least, ", ") + ".\n"
}

// callTable is what the store was asked.
func callTable(cells []CallCell) page.Table {
	t := page.Table{{"limit of each key", "scope", "calls", "of those of `strict`", "µs of the store for a decision",
		"of the limits used", "median of a decision", "more than `local`", "99 % of decisions", "failed"}}
	for _, c := range cells {
		t = append(t, []string{fmt.Sprintf("%d/s", c.Limit), c.Scope, fmt.Sprint(c.Calls),
			fmt.Sprintf("%.3f", c.of(cells)), fmt.Sprintf("%.1f", c.CPU*1e6/float64(c.Decisions)),
			fmt.Sprintf("%.3f", c.Used), fmt.Sprint(c.Median), fmt.Sprint(c.Added),
			fmt.Sprint(c.P99.Round(time.Microsecond)), fmt.Sprint(c.Failed)})
	}
	return t
}

// beside is the cell of another scope under the same limit.
func (c CallCell) beside(cells []CallCell, scope string) (other CallCell) {
	for _, o := range cells {
		if o.Scope == scope && o.Limit == c.Limit {
			other = o
		}
	}
	return other
}

// of is how many calls it took, relative to those of strict.
func (c CallCell) of(cells []CallCell) float64 {
	return float64(c.Calls) / float64(max(1, c.beside(cells, "strict").Calls))
}

// callGoals are what leases are to reach.
func callGoals(cells []CallCell, row func(goal, wanted, measured string, reached bool)) {
	for _, c := range cells {
		if c.Scope != "lease" {
			continue
		}
		under := fmt.Sprintf(", %d per second a key, by Zipf's law", c.Limit)
		row("calls of `lease` to the store, relative to `strict`, at 4 replicas"+under, "≤ 0.1",
			fmt.Sprintf("%.3f", c.of(cells)), c.of(cells) <= 0.1)
		row("of the limits used by `lease`"+under, "≥ 0.97", fmt.Sprintf("%.3f", c.Used), c.Used >= 0.97)
		row("what `lease` adds to the median of a decision"+under, "≤ 2 µs", fmt.Sprint(c.Added),
			c.Added <= 2*time.Microsecond)
	}
}
