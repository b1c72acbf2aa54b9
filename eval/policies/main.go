// Command policies measures how long rules take from a database into force, what they weigh there,
// and what requests notice of it. It writes the page about it.
//
// It starts a PostgreSQL and a MariaDB of its own and makes databases of several sizes. What is
// measured is measured in a process of its own each time, in turn.
//
//	go run ./policies                                     all of it, and the page: at most eight minutes
//	go run ./policies -dry -rounds 1 -most 100000         a quick look, on standard output
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/server/collector"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// plan is what to measure.
type plan struct {
	rounds  int
	within  time.Duration // no round begins that would probably end later
	most    int           // rules of the largest database
	changes int           // whose effect is waited for, in a round
	phases  int           // of each kind, in a round
	phase   time.Duration // how long each lasts
	dry     bool

	// Of a child.
	task    string
	at      measured
	started func() // lets the collector run as it does after a start; of a load only
}

// sizes are the numbers of rules, as far as the plan goes.
func (p plan) sizes() (sizes []int) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		if n <= p.most {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// served is how many rules requests are measured under.
func (p plan) served() int { return min(p.most, 100_000) }

func run(args []string, stdout, stderr io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("policies", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.rounds, "rounds", 3, "how often everything is measured, if there is time")
	flags.DurationVar(&p.within, "within", 9*time.Minute,
		"how long all of it may take: a round that would take longer is left out, but for the first")
	flags.IntVar(&p.most, "most", 1_000_000, "the largest number of rules")
	flags.IntVar(&p.changes, "changes", 200, "changes whose effect is waited for, in one round only")
	flags.IntVar(&p.phases, "phases", 8, "phases of each kind, in a round")
	flags.DurationVar(&p.phase, "phase", 500*time.Millisecond, "how long a phase lasts")
	flags.BoolVar(&p.dry, "dry", false, "print the page instead of writing it")
	flags.StringVar(&p.task, "task", "",
		"measure in this process and print it as JSON; for the program's own use, as are the flags that follow")
	flags.StringVar(&p.at.Kind, "kind", "", "of the database")
	flags.StringVar(&p.at.DSN, "dsn", "", "of the database")
	flags.IntVar(&p.at.Rules, "rules", 0, "in the database")
	flags.BoolVar(&p.at.Poll, "poll", false, "look for changes, and do not listen")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch p.task {
	case "":
	case "load":
		p.started = collector.Relax()
	default:
		collector.Relax()()
	}
	switch p.task {
	case "":
	case "loads":
		return p.loads(os.Stdin, stdout)
	default:
		found, err := p.measure()
		if err != nil {
			return fmt.Errorf("%s of %s with %d rules: %w", p.task, p.at.Kind, p.at.Rules, err)
		}
		return json.NewEncoder(stdout).Encode(found)
	}
	found, err := p.all(stderr)
	if err != nil {
		return err
	}
	return page.Publish("policies", p.page(found, time.Now()), nil, p.dry, stdout, stderr)
}

// measure does the task of a child.
func (p plan) measure() (any, error) {
	switch p.task {
	case "load":
		return p.measureLoad()
	case "lookup":
		return p.measureLookUp()
	case "check":
		return p.measureCheck()
	case "change":
		return p.measureChange()
	}
	return nil, fmt.Errorf("task is %q, want load, loads, lookup, check or change", p.task)
}

// findings are what the rounds found, by database.
type findings struct {
	rounds  int
	loads   map[measured][]Load
	lookUps []LookUp
	checks  map[measured][]Check
	changes map[measured]Change
}

// all measures everything, round by round.
func (p plan) all(stderr io.Writer) (*findings, error) {
	begun := time.Now()
	at, stop, err := p.makeDatabases(stderr)
	if err != nil {
		return nil, err
	}
	defer stop()
	found := &findings{loads: map[measured][]Load{}, checks: map[measured][]Check{}}
	if found.changes, err = p.allChanges(at); err != nil {
		return nil, err
	}
	fmt.Fprintf(stderr, "%6s changes: %+v\n", time.Since(begun).Round(time.Second), found.changes)
	for longest := time.Duration(0); found.rounds < p.rounds; found.rounds++ {
		round := time.Now()
		if found.rounds > 0 && round.Add(longest).After(begun.Add(p.within)) {
			fmt.Fprintf(stderr, "%6s no time for another round\n", time.Since(begun).Round(time.Second))
			break
		}
		if err := p.round(at, found, stderr); err != nil {
			return nil, err
		}
		longest = max(longest, time.Since(round))
	}
	return found, nil
}

// round measures everything but changes: what differs most from process to process, in several.
func (p plan) round(at []measured, found *findings, stderr io.Writer) error {
	begun := time.Now()
	for _, d := range at {
		fmt.Fprintf(stderr, "%6s of round %d: %v\n", time.Since(begun).Round(time.Second), found.rounds+1, d)
		for range d.starts() {
			if err := spawn(p, "load", d, &found.loads); err != nil {
				return err
			}
		}
		if d.Rules != p.served() || d.Kind == mariaDB || d.Full {
			continue
		}
		for range d.starts() {
			if err := spawn(p, "check", d, &found.checks); err != nil {
				return err
			}
		}
	}
	one, err := child[LookUp](p, "lookup", measured{})
	found.lookUps = append(found.lookUps, one)
	return err
}

// allChanges measures changes that a database tells of, and then, all at once, those that are
// looked for: that is mostly a wait.
func (p plan) allChanges(at []measured) (map[measured]Change, error) {
	found := map[measured]Change{}
	var looked []measured
	for _, d := range changed(at) {
		if d.Kind != postgreSQL || d.Poll {
			looked = append(looked, d)
			continue
		}
		one, err := child[Change](p, "change", d)
		if err != nil {
			return nil, err
		}
		found[d] = one
	}
	ones := make([]Change, len(looked))
	err := together(len(looked), func(i int) (err error) {
		ones[i], err = child[Change](p, "change", looked[i])
		return err
	})
	for i, d := range looked {
		found[d] = ones[i]
	}
	return found, err
}

// together runs do for 0 to n-1 at the same time.
func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// changed are the databases whose changes are waited for: the small ones, and PostgreSQL's twice.
func changed(at []measured) (some []measured) {
	for _, d := range at {
		if d.Rules > 1_000 || d.Full {
			continue
		}
		some = append(some, d)
		if d.Kind == postgreSQL {
			d.Poll = true
			some = append(some, d)
		}
	}
	return some
}

func spawn[T any](p plan, task string, d measured, into *map[measured][]T) error {
	one, err := child[T](p, task, d)
	(*into)[d] = append((*into)[d], one)
	return err
}

// child measures in a process of its own.
func child[T any](p plan, task string, d measured) (T, error) {
	return page.Child[T]("-task", task, "-kind", d.Kind, "-dsn", d.DSN, "-rules", d.Rules, fmt.Sprint("-poll=", d.Poll),
		"-most", p.most, "-changes", p.changes, "-phases", p.phases, "-phase", p.phase)
}
