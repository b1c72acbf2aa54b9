// Command overhead measures what each stage of a request costs inside a running process, and writes the page about it.
//
// A run is a process of its own that has everything a gateway has: the templates of two real APIs,
// a policy database on disk with its cache, a ring of API keys, a token verifier, the table of
// buckets, and an HTTP server under a steady load. While that load goes on, the process times every
// stage call by call. The page shows percentiles: medians over the runs, with the least and the
// most of them.
//
//	go run ./overhead                  five runs, and the page
//	go run ./overhead -runs 1 -dry     a quick look, on standard output
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

// plan is what to measure.
type plan struct {
	runs    int
	samples int // of each stage in a run
	rules   int // in the database
	keys    int // API keys
	buckets int // many keys are so many
	load    int // requests a second beside the measurement
	dry     bool
	child   bool
}

func run(args []string, stdout, stderr io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("overhead", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.runs, "runs", 5, "how many processes are measured, one after the other")
	flags.IntVar(&p.samples, "samples", 200_000, "how often a stage is timed in a run")
	flags.IntVar(&p.rules, "rules", 100_000, "rules in the database")
	flags.IntVar(&p.keys, "keys", 100_000, "API keys")
	flags.IntVar(&p.buckets, "buckets", 1<<20, "how many keys are many")
	flags.IntVar(&p.load, "load", 500, "requests a second that the process serves meanwhile")
	flags.BoolVar(&p.dry, "dry", false, "print the page instead of writing it")
	flags.BoolVar(&p.child, "child", false, "measure in this process and print it as JSON; for the program's own use")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.child {
		rows, err := p.measure()
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(rows)
	}
	var found [][]Row
	for i := range p.runs {
		rows, err := p.spawn()
		if err != nil {
			return err
		}
		found = append(found, rows)
		fmt.Fprintf(stderr, "run %d of %d: %s\n", i+1, p.runs, rows[len(rows)-1])
	}
	return page.Publish("overhead", p.page(found, time.Now()), chart(found).SVG(), p.dry, stdout, stderr)
}

// spawn measures in a process of its own.
func (p plan) spawn() ([]Row, error) {
	return page.Child[[]Row]("-child", "-samples", p.samples, "-rules", p.rules, "-keys", p.keys, "-buckets", p.buckets,
		"-load", p.load)
}
