// Command rivals measures Headgate's table of buckets beside the rate limiters that Go programs use today, and writes the page about it.
//
// Every limiter runs in a process of its own, all in turn in every round, so that what disturbs the machine disturbs all of them. A process
// measures one key and a million keys, with one goroutine and with two; what a live key costs in memory; and what a collection costs
// with all of them live. The page compares medians of rounds, and ratios within a round.
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
	"os/exec"
	"path/filepath"
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
	flags.StringVar(&p.part, "part", "", "measure this part in this process and print it as JSON; for the program's own use")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.part != "" {
		return p.measure(stdout)
	}
	found, err := p.everything(stderr)
	if err != nil {
		return err
	}
	return p.publish(found, stdout, stderr)
}

// measure does one part in this process.
func (p plan) measure(stdout io.Writer) error {
	var result any
	var err error
	switch p.part {
	case partRules:
		result, err = p.measureRules()
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
	partLarge = "large"
)

// findings is everything measured. Results of a peer, and rules, have one element a round.
type findings struct {
	Peers map[string][]Result
	Rules []Rules
	Large *Large
}

func (p plan) everything(progress io.Writer) (*findings, error) {
	found := &findings{Peers: map[string][]Result{}}
	peers := peer.All()
	for round := range p.rounds {
		for i := range peers {
			which := peers[(i+round)%len(peers)] // nobody is always first
			var r Result
			if err := p.child(which.Name, &r); err != nil {
				return nil, err
			}
			found.Peers[which.Name] = append(found.Peers[which.Name], r)
			fmt.Fprintf(progress, "round %d of %d  %-24s %s\n", round+1, p.rounds, which.Name, r)
		}
		var rules Rules
		if err := p.child(partRules, &rules); err != nil {
			return nil, err
		}
		found.Rules = append(found.Rules, rules)
		fmt.Fprintf(progress, "round %d of %d  %-24s %s\n", round+1, p.rounds, "three rules", rules)
	}
	if p.large > 0 {
		fmt.Fprintf(progress, "filling a table of %d slots\n", p.large)
		found.Large = new(Large)
		if err := p.child(partLarge, found.Large); err != nil {
			return nil, err
		}
		fmt.Fprintln(progress, found.Large)
	}
	return found, nil
}

// child measures a part in a process of its own.
func (p plan) child(part string, result any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-part", part, "-keys", fmt.Sprint(p.keys), "-samples", fmt.Sprint(p.samples),
		"-sample", p.sample.String(), "-large", fmt.Sprint(p.large))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("measure %s: %w", part, err)
	}
	if err := json.Unmarshal(out, result); err != nil {
		return fmt.Errorf("measure %s: %w", part, err)
	}
	return nil
}

func (p plan) publish(found *findings, stdout, stderr io.Writer) error {
	text := p.page(found, time.Now())
	if p.dry {
		_, err := io.WriteString(stdout, text)
		return err
	}
	docs, err := page.Docs()
	if err != nil {
		return err
	}
	if err := page.Replace(filepath.Join(docs, "rivals.md"), "rivals", text); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "rivals.svg"), chart(found, p.keys).SVG(), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "wrote docs/benchmarks/rivals.md and rivals.svg")
	return nil
}
