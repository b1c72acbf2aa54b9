// Command rivals measures Headgate's table of buckets beside the rate limiters that Go programs use
// today, and writes the page about it.
//
// Every limiter runs in a process of its own, all in turn in every round, so that what disturbs the
// machine disturbs all of them. A process measures one key and a million keys, with one goroutine
// and with two; what a live key costs in memory; and what a collection costs with all of them live.
// The page compares medians of rounds, and ratios within a round.
//
//	go run ./rivals                  five rounds, and the page
//	go run ./rivals -rounds 1 -dry   a quick look, on standard output
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/rivals/peer"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
}

// plan is what to measure.
type plan struct {
	rounds  int
	keys    int
	samples int
	sample  time.Duration
	large   int
	dry     bool
	part    string
	serve   string
	body    string
}

func run(args []string, stdout, stderr io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("rivals", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.rounds, "rounds", 5, "how often every limiter is measured")
	flags.IntVar(&p.keys, "keys", 1<<20, "how many keys are many")
	flags.IntVar(&p.samples, "samples", 7, "samples of each case in a round, of which the median counts")
	flags.DurationVar(&p.sample, "sample", 60*time.Millisecond, "how long a sample takes")
	flags.IntVar(&p.large, "large", 1<<26, "slots of the large table, which is measured once; 0 for none")
	flags.BoolVar(&p.dry, "dry", false, "print the page instead of writing it")
	flags.StringVar(&p.part, "part", "",
		"measure this part in this process and print it as JSON; for the program's own use")
	flags.StringVar(&p.serve, "serve", "", "serve behind this middleware; for the program's own use")
	flags.StringVar(&p.body, "body", twoBytes, "what to answer then; for the program's own use")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.serve != "" {
		return serve(p.serve, p.body, stdout)
	}
	if p.part != "" {
		return p.measure(stdout)
	}
	found, err := p.everything(stderr)
	if err != nil {
		return err
	}
	return page.Publish("rivals", p.page(found, time.Now()), chart(found, p.keys).SVG(), p.dry, stdout, stderr)
}

// measure does one part in this process.
func (p plan) measure(stdout io.Writer) error {
	var result any
	var err error
	switch p.part {
	case partRules:
		result, err = p.measureRules()
	case partSized:
		result, err = p.measureSized()
	case partLarge:
		result, err = measureLarge(p.large)
	default:
		var which peer.Peer
		if which, err = peer.Find(p.part); err == nil {
			result, err = p.measurePeer(which)
		}
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// Parts that are no peers.
const (
	partRules = "rules"
	partSized = "sized"
	partLarge = "large"
)

// findings is everything measured. Results of a peer, and rules, have one element a round.
type findings struct {
	Peers map[string][]Result
	Rules []Rules
	Sized Sized
	Large *Large
	HTTP  map[string][]float64 // microseconds of each turn, by the name of a middleware, of an answer of two bytes
	API   map[string][]float64 // the same of one in JSON
}

func (p plan) everything(progress io.Writer) (*findings, error) {
	found := &findings{Peers: map[string][]Result{}}
	peers := peer.All()
	for round := range p.rounds {
		for i := range peers {
			which := peers[(i+round)%len(peers)] // nobody is always first
			r, err := child[Result](p, which.Name)
			if err != nil {
				return nil, err
			}
			found.Peers[which.Name] = append(found.Peers[which.Name], r)
			fmt.Fprintf(progress, "round %d of %d  %-24s %s\n", round+1, p.rounds, which.Name, r)
		}
		rules, err := child[Rules](p, partRules)
		if err != nil {
			return nil, err
		}
		found.Rules = append(found.Rules, rules)
		fmt.Fprintf(progress, "round %d of %d  %-24s %s\n", round+1, p.rounds, "three rules", rules)
	}
	var err error
	if found.Sized, err = child[Sized](p, partSized); err != nil {
		return nil, err
	}
	if found.HTTP, err = p.measureHTTP(twoBytes, progress); err != nil {
		return nil, err
	}
	if found.API, err = p.measureHTTP(item, progress); err != nil {
		return nil, err
	}
	if p.large > 0 {
		fmt.Fprintf(progress, "filling a table of %d slots\n", p.large)
		large, err := child[Large](p, partLarge)
		if err != nil {
			return nil, err
		}
		found.Large = &large
		fmt.Fprintln(progress, found.Large)
	}
	return found, nil
}

// child measures a part in a process of its own.
func child[T any](p plan, part string) (T, error) {
	found, err := page.Child[T]("-part", part, "-keys", p.keys, "-samples", p.samples, "-sample", p.sample,
		"-large", p.large)
	if err != nil {
		err = fmt.Errorf("%s: %w", part, err)
	}
	return found, err
}
