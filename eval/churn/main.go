// Command churn attacks bounded tables of buckets with more keys than they hold, and writes the page about it.
//
// The clock is simulated, so a run is a program: it does not depend on the speed of the machine,
// and gives the same numbers again. The limiters that have no bound cannot be made to forget; of
// them the page says how much memory the same keys cost.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "churn:", err)
		os.Exit(1)
	}
}

// plan is how much to do.
type plan struct {
	slots int
	span  time.Duration
	keys  int
	dry   bool

	newcomers int // under each limit, in tables of several
}

func run(args []string, stdout, stderr io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("churn", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.slots, "slots", 1<<14, "slots of every table")
	flags.DurationVar(&p.span, "span", 5*time.Minute, "how long every attack lasts, in simulated time")
	flags.IntVar(&p.keys, "keys", 1<<21, "one-shot keys for the limiters without a bound")
	flags.IntVar(&p.newcomers, "newcomers", 1000, "clients never seen before, under each of several limits")
	flags.BoolVar(&p.dry, "dry", false, "print the page instead of writing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	results, err := p.attackAll(stderr)
	if err != nil {
		return err
	}
	several, err := p.mixAll(stderr)
	if err != nil {
		return err
	}
	growths, err := growAll(p.keys, stderr)
	if err != nil {
		return err
	}
	return page.Publish("churn", p.page(results, several, growths, time.Now()), chart(results).SVG(), p.dry,
		stdout, stderr)
}

// attackAll runs every attack against every contender, on all processors. The results are by attack, then by contender.
func (p plan) attackAll(progress io.Writer) ([][]outcome, error) {
	results := make([][]outcome, len(attacks))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error // guarded by mu, as is progress
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, a := range attacks {
		results[i] = make([]outcome, len(contenders))
		for j, c := range contenders {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				s, err := c.open(p.slots)
				if err == nil {
					results[i][j] = a.run(s, p.slots, p.span)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = err
				}
				fmt.Fprintf(progress, "%-16s %-44s %s\n", c.name, a.name, results[i][j])
			})
		}
	}
	wg.Wait()
	return results, failed
}
