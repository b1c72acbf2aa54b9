// Command scaling measures what an API really receives from several gateways that share its limits, and writes the page about it.
//
// For every number of gateways and every scope of a rule it starts that many real `headgate serve` processes before one API, on one Redis, sends
// three times the limit through them, and notes when each request reaches the API. From these times alone it computes the most that was
// received in any interval beyond the rate: the Lindley maximum. It stands beside the bound that Headgate publishes for the scope.
//
//	go run ./scaling                                     all of it, and the page: some minutes
//	go run ./scaling -replicas 2 -scopes local -dry      a quick look, on standard output
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
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
	dry      bool
}

func run(args []string, stdout, stderr io.Writer) error {
	p := plan{traffics: traffics}
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Int64Var(&p.limit, "limit", 200, "tokens a second, and the burst")
	flags.Float64Var(&p.over, "over", 3, "how many times the limit is sent")
	flags.DurationVar(&p.span, "span", 6*time.Second, "how long each cell lasts")
	replicasFlag := flags.String("replicas", "1,2,4,8", "numbers of gateways")
	scopesFlag := flags.String("scopes", strings.Join(allScopes, ","), "scopes of the rule")
	flags.BoolVar(&p.dry, "dry", false, "print the page instead of writing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, text := range strings.Split(*replicasFlag, ",") {
		k, err := strconv.Atoi(text)
		if err != nil || k < 1 || k > 64 {
			return fmt.Errorf("-replicas has %q, want numbers from 1 to 64", text)
		}
		p.replicas = append(p.replicas, k)
	}
	for _, scope := range strings.Split(*scopesFlag, ",") {
		if _, ok := scopes[scope]; !ok {
			return fmt.Errorf("-scopes has %q, want some of %s", scope, strings.Join(allScopes, ","))
		}
		p.scopes = append(p.scopes, scope)
	}
	cells, err := p.all(stderr)
	if err != nil {
		return err
	}
	return page.Publish("scaling", p.page(cells, time.Now()), nil, p.dry, stdout, stderr)
}

// all measures every cell.
func (p plan) all(progress io.Writer) (cells []Cell, err error) {
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
	for _, scope := range p.scopes {
		for _, k := range p.replicas {
			for _, traffic := range p.traffics {
				if k == 1 && len(p.traffics) > 1 && traffic.name != "uniform" {
					continue // one gateway gets all of it anyway
				}
				cell, err := p.measure(store, scope, k, traffic)
				if err != nil {
					return nil, fmt.Errorf("%s with %d gateways, %s: %w", scope, k, traffic.name, err)
				}
				fmt.Fprintln(progress, cell)
				cells = append(cells, cell)
			}
		}
	}
	for _, k := range p.replicas {
		cell, err := p.naive(store, k, traffics[0])
		if err != nil {
			return nil, fmt.Errorf("naive script with %d callers: %w", k, err)
		}
		fmt.Fprintln(progress, cell)
		cells = append(cells, cell)
	}
	return cells, nil
}
