// Command garden puts the gateway before real servers of many kinds and sends them what was made to
// be read in two ways: mutated targets, queries, forms, methods, framing and HTTP/2 frames. Two
// things must hold: the route that served is the endpoint that paid, and the server has seen no
// request that no decision let through.
//
// It first asks each server itself. What it says there becomes server/kinds/kinds.json, which the
// gateway's setting endpoint.server and headgate doctor read; and every profile that doctor
// approves for a kind is held against all of the answers.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/doctor"
	"github.com/headgate-io/headgate/server/kinds"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "garden:", err)
		os.Exit(1)
	}
}

type options struct {
	n        int
	seed     uint64
	measure  bool
	write    bool
	through  bool      // all requests go through the gateway
	progress io.Writer // what is being done, every few seconds
}

func run(args []string, out, progress io.Writer) error {
	var o options
	var only string
	var together int
	flags := flag.NewFlagSet("garden", flag.ContinueOnError)
	flags.IntVar(&o.n, "n", 90_000, "requests to each server")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64()%1e6, "seed of the requests")
	flags.StringVar(&only, "only", "", "kinds, separated by commas (default: all)")
	flags.IntVar(&together, "together", 3, "servers that are asked at a time: most wait for their clients now and then")
	flags.BoolVar(&o.through, "through", false, "send all through the gateway, and nothing to the servers themselves")
	flags.BoolVar(&o.measure, "measure", false, "write server/kinds/kinds.json, and do no more")
	flags.BoolVar(&o.write, "write", false, "write the figures into docs/benchmarks/attacks.md")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := all
	if only != "" {
		chosen = nil
		for kind := range strings.SplitSeq(only, ",") {
			s, ok := find(kind)
			if !ok {
				return fmt.Errorf("-only is %q, want kinds of the garden", kind)
			}
			chosen = append(chosen, s)
		}
	}
	if o.measure {
		return writeKinds(chosen, out)
	}
	fmt.Fprintf(out, "seed %d\n", o.seed)
	o.progress = progress
	reports, err := visitAll(chosen, together, o, out)
	if err != nil {
		return err
	}
	if o.write {
		if err := writePage(reports); err != nil {
			return err
		}
	}
	var all report
	failed := false
	for _, r := range reports {
		all.direct, all.through, all.framed = all.direct+r.direct, all.through+r.through, all.framed+r.framed
		all.plain, all.admitted, all.seen = all.plain+r.plain, all.admitted+r.admitted, all.seen+r.seen
		failed = failed || len(r.failures) > 0
	}
	fmt.Fprintf(out, "%d requests to %d kinds of servers, %d of them through the gateway, of which %d were plain and "+
		"read by the engine for these; %d decisions let requests through, and the servers saw %d\n",
		all.direct+all.through+all.framed, len(reports), all.through+all.framed, all.plain, all.admitted, all.seen)
	if failed {
		return errConfused
	}
	return nil
}

// visitAll visits servers, so many at a time, and says what came of each as soon as it is known.
func visitAll(chosen []server, together int, o options, out io.Writer) ([]report, error) {
	reports, errs := make([]report, len(chosen)), make([]error, len(chosen))
	var mu sync.Mutex // guards out
	var wg sync.WaitGroup
	free := make(chan bool, max(together, 1))
	order := make([]int, len(chosen)) // the slowest begin first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return chosen[a].window - chosen[b].window })
	for _, i := range order {
		s := chosen[i]
		free <- true
		wg.Go(func() {
			defer func() { <-free }()
			begun := time.Now()
			r, err := visit(s, o)
			reports[i], errs[i] = r, err
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(out, "%-20s %d itself (%d served, %d profiles), %d through the gateway (%d let through, %d "+
				"served), %d framed, %d plain, %d decisions, %d seen, %s\n",
				s.kind, r.direct, r.served, r.profiles, r.through, r.counted, r.reached, r.framed,
				r.plain, r.admitted, r.seen, time.Since(begun).Round(time.Second))
			for _, f := range r.failures {
				fmt.Fprintf(out, "  FAIL %s: %s\n", s.kind, f)
			}
		})
	}
	wg.Wait()
	return reports, errors.Join(errs...)
}

// writeKinds measures servers and writes what they are into kinds.json, beside those that were not asked.
func writeKinds(chosen []server, out io.Writer) error {
	top, err := root()
	if err != nil {
		return err
	}
	list := slices.Clone(kinds.All())
	for _, s := range chosen {
		reading, err := s.read()
		if err != nil {
			return err
		}
		k := kinds.Kind{
			Kind:    s.kind,
			Name:    s.name,
			Version: s.version(),
			Date:    time.Now().UTC().Format(time.DateOnly),
			Reading: reading,
		}
		if i := slices.IndexFunc(list, func(old kinds.Kind) bool { return old.Kind == s.kind }); i >= 0 {
			list[i] = k
		} else {
			list = append(list, k)
		}
		fmt.Fprintln(out, "measured", s.kind, k.Version)
	}
	slices.SortFunc(list, func(a, b kinds.Kind) int { return index(a.Kind) - index(b.Kind) })
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(top, "server", "kinds", "kinds.json"), append(text, '\n'), 0o644)
}

func index(kind string) int {
	return slices.IndexFunc(all, func(s server) bool { return s.kind == kind })
}

// read starts s and measures it.
func (s server) read() (kinds.Reading, error) {
	addr, stop, err := s.run()
	if err != nil {
		return kinds.Reading{}, err
	}
	defer stop()
	return measure(addr, s.window), nil
}

// report is what was found at one server.
type report struct {
	server
	version string

	direct, served   int    // requests to it without the gateway, and those that a route served
	profiles         int    // that doctor approves, and that all of these were held against
	through, counted int    // requests through the gateway, and those that were let through
	reached          int    // those of them that a route served
	framed           int    // requests in frames or framing of their own
	plain            uint64 // those through the gateway that the engine for plain requests read, where there is one
	admitted, seen   int64  // decisions that let a request through, and answers of the server
	failures         []string
}

// visit does all there is to do with one server.
func visit(s server, o options) (r report, err error) {
	addr, stop, err := s.run()
	if err != nil {
		return r, err
	}
	defer stop()
	r.server, r.version = s, s.version()
	begun := time.Now()
	said := begun
	say := func(what string) func(int) {
		return func(done int) {
			if o.progress == nil || time.Since(said) < 5*time.Second {
				return
			}
			said = time.Now()
			done += r.direct + r.through + r.framed
			fmt.Fprintf(o.progress, "%s: %s, %d of %d requests, %.0f a second\n", s.kind, what, done, o.n,
				float64(done)/time.Since(begun).Seconds())
		}
	}
	k, err := kinds.Find(s.kind)
	if err != nil {
		return r, fmt.Errorf("kinds.json has no such kind: make garden-kinds writes it: %w", err)
	}
	got := measure(addr, s.window)
	if !reflect.DeepEqual(got, k.Reading) { // once more: a busy machine may have left a question unanswered
		got = measure(addr, s.window)
	}
	if !reflect.DeepEqual(got, k.Reading) {
		r.failures = append(r.failures, fmt.Sprintf("reads as %+v, but kinds.json says %+v", got, k.Reading))
	}
	g, err := newGrammar(o.seed, uint64(index(s.kind)))
	if err != nil {
		return r, err
	}
	itself := o.n / 2
	if o.through {
		itself = 0
	}
	requests, answers := direct(addr, s, g, itself, say("itself"))
	r.direct, r.served = itself, len(requests)
	for _, p := range approved(s.kind) {
		wrong, err := wrongUnder(p, requests, answers)
		if err != nil {
			return r, err
		}
		r.profiles++
		if wrong != "" {
			r.failures = append(r.failures, fmt.Sprintf("under %+v: %s", config.EndpointOf(p), wrong))
			break
		}
	}
	for _, at := range []struct {
		name string
		p    endpoint.Profile
	}{{"defaults", endpoint.Strictest()}, {"its own profile", k.Profile()}} {
		f, err := newFront(addr, at.p)
		if err != nil {
			return r, err
		}
		res, err := through(f, g, (o.n-itself)/2, say(at.name))
		if err != nil {
			return r, err
		}
		r.through, r.counted, r.reached = r.through+res.sent, r.counted+res.through, r.reached+res.served
		for _, failure := range res.failures {
			r.failures = append(r.failures, at.name+": "+failure)
		}
		framed, failures, err := frames(f, g, max(o.n/100, 50), say("framing, "+at.name))
		if err != nil {
			return r, err
		}
		r.framed += framed
		for _, failure := range failures {
			r.failures = append(r.failures, at.name+": "+failure)
		}
		admitted, seen := f.settled()
		if seen > admitted {
			r.failures = append(r.failures, fmt.Sprintf("%s: the server answered %d requests, and %d were let through",
				at.name, seen, admitted))
		}
		r.admitted, r.seen = r.admitted+res.admitted, r.seen+res.seen
		if f.fast != nil {
			r.plain += f.fast.Stats().Plain
		}
		f.stop()
	}
	return r, nil
}

// approved are the profiles of a kind in which doctor finds no mismatch.
func approved(kind string) (all []endpoint.Profile) {
	for i := range 3 * 3 * 2 * 2 * 64 {
		p := endpoint.Profile{EncodedSlash: endpoint.EncodedSlash(i % 3), Params: endpoint.Params(i / 3 % 3),
			CaseInsensitive: i/9%2 != 0, AllowDoubleEncoding: i/18%2 != 0, Refuse: endpoint.Refusal(i / 36)}
		r, err := doctor.Upstream(kind, config.EndpointOf(p), doctor.Routes{Tails: true, Queries: true})
		if err == nil && r.Healthy() {
			all = append(all, p)
		}
	}
	return all
}

// withTheRest adds to a table the rows that the page has of kinds that this run left out, and their
// requests to a total.
func withTheRest(file string, table page.Table, total int) (page.Table, int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	full := page.Table{table[0]}
	for _, s := range all {
		i := slices.IndexFunc(table, func(row []string) bool { return row[0] == s.name })
		if i >= 0 {
			full = append(full, table[i])
			continue
		}
		_, rest, ok := strings.Cut(string(text), "\n| "+s.name+" | ")
		line, _, _ := strings.Cut(rest, " |\n")
		row := append([]string{s.name}, strings.Split(line, " | ")...)
		if !ok || len(row) != len(table[0]) {
			continue
		}
		for _, column := range []int{2, 5, 8} { // itself, through the gateway, framed
			n, err := strconv.Atoi(row[column])
			if err != nil {
				return nil, 0, fmt.Errorf("%s, row of %s: %w", file, s.name, err)
			}
			total += n
		}
		full = append(full, row)
	}
	return full, total, nil
}

// writePage writes what was found into the page about attacks.
func writePage(reports []report) error {
	top, err := root()
	if err != nil {
		return err
	}
	table := page.Table{{"server", "version", "requests to itself", "served", "profiles approved",
		"through the gateway",
		"let through", "served", "framing and frames", "confused or uncounted"}}
	total := 0
	for _, r := range reports {
		table = append(table, []string{r.name, r.version, fmt.Sprint(r.direct), fmt.Sprint(r.served),
			fmt.Sprint(r.profiles), fmt.Sprint(r.through), fmt.Sprint(r.counted), fmt.Sprint(r.reached),
			fmt.Sprint(r.framed), fmt.Sprint(len(r.failures))})
		total += r.direct + r.through + r.framed
	}
	others := ""
	if len(reports) < len(all) {
		others = " The other rows are of the run before."
		var err error
		if table, total, err = withTheRest(filepath.Join(top, "docs", "benchmarks", "attacks.md"), table,
			total); err != nil {
			return err
		}
	}
	text := table.String() + fmt.Sprintf("\n%d requests in all. ", total) + page.Conditions(time.Now(),
		strings.TrimSpace("go run ./garden "+strings.Join(os.Args[1:], " ")))
	text = strings.TrimSuffix(text, "\n") + others + "\n"
	return page.Between(filepath.Join(top, "docs", "benchmarks", "attacks.md"), "<!-- begin: make garden -->\n",
		"<!-- end -->\n", text)
}
