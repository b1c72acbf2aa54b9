// Command policies measures how long rules take from a database into force, what they weigh there, and what requests notice of it. It writes
// the page about it.
//
// It starts a PostgreSQL and a MariaDB of its own and makes databases of several sizes. What is measured is measured in a process of its own
// each time, in turn.
//
//	go run ./policies                                     all of it, and the page: ten minutes
//	go run ./policies -dry -rounds 1 -most 100000         a quick look, on standard output
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
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// plan is what to measure.
type plan struct {
	rounds  int
	most    int           // rules of the largest database
	changes int           // whose effect is waited for, in a round
	phases  int           // quiet ones, and as many under reloads, in a round
	phase   time.Duration // how long each lasts
	dry     bool

	// Of a child.
	task string
	at   database
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
	flags.IntVar(&p.rounds, "rounds", 3, "how often everything is measured")
	flags.IntVar(&p.most, "most", 1_000_000, "the largest number of rules")
	flags.IntVar(&p.changes, "changes", 200, "changes whose effect is waited for, in one round only")
	flags.IntVar(&p.phases, "phases", 8, "phases without reloads and with them, in a round")
	flags.DurationVar(&p.phase, "phase", 500*time.Millisecond, "how long a phase lasts")
	flags.BoolVar(&p.dry, "dry", false, "print the page instead of writing it")
	flags.StringVar(&p.task, "task", "", "measure in this process and print it as JSON; for the program's own use, as are the flags that follow")
	flags.StringVar(&p.at.Kind, "kind", "", "of the database")
	flags.StringVar(&p.at.DSN, "dsn", "", "of the database")
	flags.IntVar(&p.at.Rules, "rules", 0, "in the database")
	flags.BoolVar(&p.at.Poll, "poll", false, "look for changes, and do not listen")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.task != "" {
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
	return nil, fmt.Errorf("task is %q, want load, lookup, check or change", p.task)
}

// findings are what the rounds found, by database.
type findings struct {
	loads   map[database][]Load
	lookUps []LookUp
	checks  map[database][]Check
	changes map[database]Change
}

// all measures everything, round by round.
func (p plan) all(stderr io.Writer) (*findings, error) {
	at, stop, err := p.makeDatabases(stderr)
	if err != nil {
		return nil, err
	}
	defer stop()
	found := &findings{loads: map[database][]Load{}, checks: map[database][]Check{}, changes: map[database]Change{}}
	begun := time.Now()
	for round := range p.rounds {
		for _, d := range at {
			fmt.Fprintf(stderr, "%6s round %d of %d: %v\n", time.Since(begun).Round(time.Second), round+1, p.rounds, d)
			if err := spawn(p, "load", d, &found.loads); err != nil {
				return nil, err
			}
			if d.Rules == p.served() && d.Kind != mariaDB {
				if err := spawn(p, "check", d, &found.checks); err != nil {
					return nil, err
				}
			}
		}
		one, err := child[LookUp](p, "lookup", database{})
		if err != nil {
			return nil, err
		}
		found.lookUps = append(found.lookUps, one)
	}
	for _, d := range changed(at) {
		if found.changes[d], err = child[Change](p, "change", d); err != nil {
			return nil, err
		}
		fmt.Fprintf(stderr, "changes of %s: %+v\n", d, found.changes[d])
	}
	return found, nil
}

// changed are the databases whose changes are waited for: the small ones, and PostgreSQL's twice.
func changed(at []database) (some []database) {
	for _, d := range at {
		if d.Rules > 1_000 {
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

func spawn[T any](p plan, task string, d database, into *map[database][]T) error {
	one, err := child[T](p, task, d)
	(*into)[d] = append((*into)[d], one)
	return err
}

// child measures in a process of its own.
func child[T any](p plan, task string, d database) (T, error) {
	return page.Child[T]("-task", task, "-kind", d.Kind, "-dsn", d.DSN, "-rules", d.Rules, fmt.Sprint("-poll=", d.Poll),
		"-most", p.most, "-changes", p.changes, "-phases", p.phases, "-phase", p.phase)
}
