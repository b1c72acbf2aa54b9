// Command overhead measures what each stage of a request costs inside a running process, and writes the page about it.
//
// A run is a process of its own that has everything a gateway has: the templates of two real APIs, a policy database on disk with its
// cache, a ring of API keys, a token verifier, the table of buckets, and an HTTP server under a steady load. While that load goes on, the
// process times every stage call by call. The page shows percentiles: medians over the runs, with the least and the most of them.
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
	"os/exec"
	"path/filepath"
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
	return p.publish(found, stdout, stderr)
}

// spawn measures in a process of its own.
func (p plan) spawn() ([]Row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-child", "-samples", fmt.Sprint(p.samples), "-rules", fmt.Sprint(p.rules),
		"-keys", fmt.Sprint(p.keys), "-buckets", fmt.Sprint(p.buckets), "-load", fmt.Sprint(p.load))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	var rows []Row
	if err := json.Unmarshal(out, &rows); err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	return rows, nil
}

func (p plan) publish(found [][]Row, stdout, stderr io.Writer) error {
	text := p.page(found, time.Now())
	if p.dry {
		_, err := io.WriteString(stdout, text)
		return err
	}
	docs, err := page.Docs()
	if err != nil {
		return err
	}
	if err := page.Replace(filepath.Join(docs, "overhead.md"), "overhead", text); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "overhead.svg"), chart(found).SVG(), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "wrote docs/benchmarks/overhead.md and overhead.svg")
	return nil
}
