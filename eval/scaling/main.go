// Command scaling measures what an API really receives from several gateways that share its limits,
// and writes the page about it.
//
// For every number of gateways it starts that many real `headgate serve` processes before one API,
// on one Redis, sends three times the limit through them under a rule of every scope, and notes
// when each request reaches the API. From these times alone it computes the most that was received
// in any interval beyond the rate: the Lindley maximum. It stands beside the bound that Headgate
// publishes for the scope, and beside what other limiters on the same Redis let through. Then it
// breaks the store and the gateways amid a load, and counts what a decision costs.
//
//	go run ./scaling                                     all of it, and the pages: some minutes
//	go run ./scaling -replicas 2 -scopes strict -dry     a part of it, on standard output
//
// It fails if a Headgate admitted more than is published, whatever else was measured.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/peers"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "scaling:", err)
		os.Exit(1)
	}
}

// plan is what to measure.
type plan struct {
	limit    int64         // tokens a second, and burst
	over     float64       // how much more than the limit is sent
	span     time.Duration // how long each cell lasts
	replicas []int
	scopes   []string
	traffics []traffic
	faults   []fault
	kills    []kill
	troubles []trouble
	seed     uint64        // of what is composed at random
	naive    bool          // measure the naive script too
	peer     bool          // and envoyproxy/ratelimit
	others   bool          // and Envoy, nginx, HAProxy, redis-cell and a model of AWS WAF
	rounds   int           // of decisions that are counted; 0 for none
	sample   time.Duration // how long one of them lasts
	calls    bool          // count what the store is asked about many keys
	dry      bool
}

func run(args []string, stdout, stderr io.Writer) error {
	p := plan{
		traffics: traffics, naive: true, peer: true, others: true, calls: true,
		faults: allFaults, kills: allKills, troubles: allTroubles,
	}
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Int64Var(&p.limit, "limit", 200, "tokens a second, and the burst")
	flags.Float64Var(&p.over, "over", 3, "how many times the limit is sent")
	flags.DurationVar(&p.span, "span", 3*time.Second, "how long each cell lasts")
	replicasFlag := flags.String("replicas", "1,2,4,8", "numbers of gateways")
	scopesFlag := flags.String("scopes", strings.Join(allScopes, ","), "scopes of the rule")
	partsFlag := flags.String("parts", strings.Join(allParts, ","),
		"what to measure; the pages are only written with all of it")
	flags.IntVar(&p.rounds, "rounds", 5, "how often every way to decide is measured")
	flags.DurationVar(&p.sample, "sample", time.Second, "how long a sample of decisions lasts")
	flags.Uint64Var(&p.seed, "seed", 1, "of what is composed at random between gateways")
	flags.BoolVar(&p.dry, "dry", false, "print the pages instead of writing them")
	child := flags.String("part", "", "for the program's own use: do this in this process")
	address := flags.String("store", "", "for the program's own use: the address of the store of -part")
	pid := flags.Int("pid", 0, "for the program's own use: the process of the store of -part")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *child != "" {
		return p.part(*child, *address, *pid, stdout)
	}
	for text := range strings.SplitSeq(*replicasFlag, ",") {
		k, err := strconv.Atoi(text)
		if err != nil || k < 1 || k > 64 {
			return fmt.Errorf("-replicas has %q, want numbers from 1 to 64", text)
		}
		p.replicas = append(p.replicas, k)
	}
	for scope := range strings.SplitSeq(*scopesFlag, ",") {
		if _, ok := scopes[scope]; !ok {
			return fmt.Errorf("-scopes has %q, want some of %s", scope, strings.Join(allScopes, ","))
		}
		p.scopes = append(p.scopes, scope)
	}
	if err := p.choose(strings.Split(*partsFlag, ",")); err != nil {
		return err
	}
	found, err := p.all(stderr)
	if err != nil {
		return err
	}
	return errors.Join(p.publish(found, time.Now(), stdout, stderr), found.beyond())
}

var allParts = []string{"cells", "naive", "ratelimit", "peers", "faults", "kills", "gossip", "decisions", "calls"}

// choose leaves out what is not among parts.
func (p *plan) choose(parts []string) error {
	for _, part := range parts {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-parts has %q, want some of %s", part, strings.Join(allParts, ","))
		}
	}
	without := func(part string) bool { return !slices.Contains(parts, part) }
	if without("cells") {
		p.scopes = nil
	}
	p.naive, p.peer = !without("naive"), !without("ratelimit")
	p.others, p.calls = !without("peers"), !without("calls")
	if without("faults") {
		p.faults = nil
	}
	if without("kills") {
		p.kills = nil
	}
	if without("gossip") {
		p.troubles = nil
	}
	if without("decisions") {
		p.rounds = 0
	}
	p.dry = p.dry || len(parts) < len(allParts)
	return nil
}

// findings is everything measured.
type findings struct {
	Store     string
	Load      string // of the machine when it began: processes that wanted to run, on average of a minute
	Cells     []Cell
	Faults    []Fault
	Kills     []Unrest
	Troubles  []Unrest
	Decisions [][]Work // by contender, a sample each round
	Calls     []CallCell
}

// beyond is an error if a Headgate admitted more than is published.
func (found *findings) beyond() error {
	var errs []error
	for _, c := range found.Cells {
		if !c.within() {
			errs = append(errs, fmt.Errorf("beyond its bound: %v", c))
		}
	}
	for _, f := range found.Faults {
		for _, o := range f.Outcomes {
			if !o.within() {
				errs = append(errs, fmt.Errorf("beyond its bound: %s, %s: %d of %d", f.Name, o.Rule, o.Excess, o.Bound))
			}
		}
	}
	for _, u := range slices.Concat(found.Kills, found.Troubles) {
		if !u.within() {
			errs = append(errs, fmt.Errorf("beyond its bound: %v", u))
		}
	}
	return errors.Join(errs...)
}

// all measures everything that is planned.
func (p plan) all(stderr io.Writer) (found *findings, err error) {
	began := time.Now()
	progress := func(format string, a ...any) {
		fmt.Fprintf(stderr, "%4.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, a...))
	}
	dir, err := os.MkdirTemp("", "headgate-scaling-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := startRedis(dir)
	if err != nil {
		return nil, err
	}
	defer store.stop()
	backend := newAPI()
	defer backend.Close()
	f := &field{plan: p, store: store, api: backend, client: newClient(), progress: progress}
	defer f.client.CloseIdleConnections()
	found = &findings{}
	if found.Store, err = store.version(); err != nil {
		return nil, err
	}
	if found.Load, err = machineLoad(); err != nil {
		return nil, err
	}
	var peer string
	if p.peer || p.others || p.rounds > 0 {
		progress("building %s %s, unless it is there", peers.RateLimitModule, peers.RateLimitVersion)
		if peer, err = peers.BuildRateLimit(); err != nil {
			return nil, err
		}
	}
	if found.Cells, err = f.cells(peer); err != nil {
		return nil, err
	}
	if len(p.faults) > 0 {
		if found.Faults, err = f.faults(p.faults); err != nil {
			return nil, err
		}
	}
	if len(p.kills) > 0 {
		if found.Kills, err = f.kills(p.kills, killed); err != nil {
			return nil, err
		}
	}
	if len(p.troubles) > 0 {
		if found.Troubles, err = f.troubles(p.troubles, p.seed); err != nil {
			return nil, err
		}
	}
	if p.rounds > 0 {
		if found.Decisions, err = f.decisions(peer); err != nil {
			return nil, err
		}
	}
	if p.calls {
		found.Calls, err = countCalls(callLimits, callScopes, callSpan, progress)
	}
	return found, err
}

// cells measures what gateways let through, and what other limiters do.
func (f *field) cells(peer string) (cells []Cell, err error) {
	measure := func(one func(k int) ([]Cell, error)) {
		for _, k := range f.replicas {
			if err == nil {
				var more []Cell
				more, err = one(k)
				cells = append(cells, more...)
			}
		}
	}
	if len(f.plan.scopes) > 0 {
		measure(f.scopes)
	}
	if f.plan.naive {
		measure(f.naive)
	}
	if f.peer && err == nil {
		var more []Cell
		more, err = f.rateLimits(peer)
		cells = append(cells, more...)
	}
	if f.others && err == nil {
		var more []Cell
		more, err = f.peers(peer)
		cells = append(cells, more...)
	}
	return cells, err
}
