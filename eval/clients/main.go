// Command clients runs the algorithms of package pace against one shared quota, in
// virtual time, and prints what each costs: the experiment of Farkiani, Liu and
// Crowley (IEEE CCNC 2026), with an optimum beside it.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/pace"
)

func main() {
	log.SetFlags(0)
	runs := flag.Int("runs", 30, "runs of each cell, each with another workload")
	only := flag.String("only", "", "one of: "+strings.Join(partNames(), ", ")+" (default all)")
	from := flag.String("workload", "", "file of \"headgate clients from-log\", to run its clients and nothing else")
	program := flag.String("lp", "", "with -workload: write how to serve it best into this file, as a program for "+
		"a solver (CPLEX's LP format), and run nothing")
	flag.Parse()
	if *runs < 1 {
		log.Fatalf("-runs is %d, want 1 or more", *runs)
	}
	if *program != "" && *from == "" {
		log.Fatal("-lp is for -workload, which is missing")
	}
	if *from != "" {
		w, err := workloadIn(*from)
		if err == nil && *program != "" {
			err = writeProgram(w, *program)
		} else if err == nil {
			printWorkload(*from, w, *runs)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	found := false
	for _, p := range parts {
		if *only != "" && *only != p.name {
			continue
		}
		found = true
		fmt.Printf("\n## %s\n", p.title)
		p.print(*runs)
	}
	if !found {
		log.Fatalf("-only is %q, want one of %s", *only, strings.Join(partNames(), ", "))
	}
}

// workloadIn reads a file of "headgate clients from-log".
func workloadIn(file string) (workload, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	w, err := readWorkload(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return w, nil
}

// writeProgram writes what a solver finds the optimum of. Costs and weights are all 1.
func writeProgram(w workload, file string) error {
	p := problemOf(w, capacity, newLimiter(capacity, perMinute).gap(), func(int) (int64, int64) { return 1, 1 })
	text, always, err := p.program()
	if err != nil {
		return err
	}
	fmt.Printf("the sum of all waits, in slots of %v, is %d more than the optimum of %s\n",
		newLimiter(capacity, perMinute).gap(), always, file)
	return os.WriteFile(file, text, 0o644)
}

// printWorkload runs the clients of a file. Runs differ in what clients draw.
func printWorkload(file string, w workload, runs int) {
	papers := pace.Papers()
	s := scenario{file, func(*rand.Rand, int) workload { return w }, papers[0]}
	ub := measure(s, 0, runs, contenderNamed(s, "UB"), environment{})
	table := page.Table{head}
	for _, c := range contenders(s, pace.Corrected) {
		table = append(table, row(c.name, measure(s, 0, runs, c, environment{}), ub))
	}
	fmt.Printf("%d clients, a quota of %d and %d a minute, means of %d runs\n\n%s", len(w), capacity,
		perMinute, runs, table)
}

// parts are what is measured.
var parts = []struct {
	name, title string
	print       func(runs int)
}{
	{"paper", "The paper's experiment, and what came after", printPaper},
	{"profiles", "The paper's algorithms in three readings", printProfiles},
	{"limiters", "Other limiters", printLimiters},
	{"charged", "A limiter that charges what it refuses", printCharged},
	{"mixed", "Half of the clients each", printMixed},
	{"telemetry", "Telemetry that is lost, or lies", printTelemetry},
	{"figure", "The figure, into docs/benchmarks/clients.svg", writeFigure},
	{"search", "Parameters, searched on one half of the workloads and tried on the other", printSearch},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func writeFigure(runs int) {
	docs, err := page.Docs()
	if err == nil {
		err = os.WriteFile(filepath.Join(docs, "clients.svg"), figure(runs).SVG(), 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// row is one line of a table, against UB.
func row(name string, got, ub cell) []string {
	fewer := "-"
	if ub.refused >= 1 {
		fewer = fmt.Sprintf("%+.1f %%", over(got.refused, ub.refused))
	}
	return []string{
		name, fmt.Sprintf("%.0f", got.seconds), fmt.Sprintf("%+.1f %%", over(got.seconds, ub.seconds)),
		fmt.Sprintf("%.0f", got.refused), fewer, fmt.Sprintf("%.2f", got.service),
		fmt.Sprintf("%.1f", got.response), fmt.Sprintf("%.0f", got.p99), fmt.Sprintf("%.0f", got.messages),
	}
}

var head = []string{"", "duration, s", "against UB", "429s", "against UB", "service, s", "response, s",
	"p99, s", "reports"}

func printPaper(runs int) {
	for _, s := range scenarios() {
		for _, requests := range loads {
			ub := measure(s, requests, runs, contenderNamed(s, "UB"), environment{})
			table := page.Table{head}
			for _, c := range contenders(s, pace.Corrected) {
				got := measure(s, requests, runs, c, environment{})
				table = append(table, row(c.name, got, ub))
				if got.unfinished > 0 {
					fmt.Printf("%s leaves %d requests unserved\n", c.name, got.unfinished)
				}
			}
			fmt.Printf("\n%s, %d requests, a quota of %d and %d a minute, means of %d runs\n\n%s", s.name, requests,
				capacity, perMinute, runs, table)
		}
	}
}

func printProfiles(runs int) {
	names := map[pace.Profile]string{
		pace.Corrected: "corrected",
		pace.Published: "published",
		pace.Reference: "reference",
	}
	for _, s := range scenarios()[:2] {
		for _, requests := range []int{500, 800} {
			ub := measure(s, requests, runs, contenderNamed(s, "UB"), environment{})
			table := page.Table{head}
			for profile := range pace.Profile(3) {
				for _, c := range contenders(s, profile)[1:4] {
					table = append(table, row(c.name+", "+names[profile],
						measure(s, requests, runs, c, environment{}), ub))
				}
			}
			fmt.Printf("\n%s, %d requests\n\n%s", s.name, requests, table)
		}
	}
}

func printLimiters(runs int) {
	for _, l := range []struct{ capacity, perMinute float64 }{{100, 80}, {10, 80}, {1, 80}} {
		for _, s := range scenarios()[:2] {
			e := environment{capacity: l.capacity, perMinute: l.perMinute}
			ub := measure(s, 800, runs, contenderNamed(s, "UB"), e)
			table := page.Table{head}
			for _, c := range contenders(s, pace.Corrected) {
				table = append(table, row(c.name, measure(s, 800, runs, c, e), ub))
			}
			fmt.Printf("\n%s, 800 requests, a quota of %v and %v a minute\n\n%s", s.name, l.capacity,
				l.perMinute, table)
		}
	}
}

func printCharged(runs int) {
	for _, s := range scenarios()[:2] {
		e := environment{chargesRefused: true}
		ub := measure(s, 800, runs, contenderNamed(s, "UB"), e)
		table := page.Table{head}
		for _, c := range contenders(s, pace.Corrected) {
			got := measure(s, 800, runs, c, e)
			r := row(c.name, got, ub)
			if got.unfinished > 0 {
				r[0] += fmt.Sprintf(" (%d unserved)", got.unfinished)
			}
			table = append(table, r)
		}
		fmt.Printf("\n%s, 800 requests\n\n%s", s.name, table)
	}
}

// mixes are algorithms that share a quota, half of the clients each.
var mixes = [][2]string{{"UB", "ATB"}, {"UB", "AATB"}, {"UB", "AP"}, {"UB", "HATB"}, {"obeys, reserved", "HATB"}}

func printMixed(runs int) {
	for _, s := range scenarios()[:2] {
		table := page.Table{{"first half, second half", "response of the first, s", "of the second, s",
			"duration, s", "429s"}}
		for _, m := range mixes {
			got := mixed(s, runs, m)
			table = append(table, []string{
				m[0] + ", " + m[1], fmt.Sprintf("%.0f", got.first), fmt.Sprintf("%.0f", got.second),
				fmt.Sprintf("%.0f", got.seconds), fmt.Sprintf("%.0f", got.refused),
			})
		}
		fmt.Printf("\n%s, 800 requests\n\n%s", s.name, table)
	}
}

func mixed(s scenario, runs int, m [2]string) cell {
	a, b := contenderNamed(s, m[0]), contenderNamed(s, m[1])
	a.says = max(a.says, b.says)
	return measure(s, 800, runs, a, environment{second: &b})
}

func printTelemetry(runs int) {
	for _, s := range scenarios()[:2] {
		ub := measure(s, 800, runs, contenderNamed(s, "UB"), environment{})
		table := page.Table{head}
		gated := s.paper.AATB(pace.Corrected)
		gated.Gate = true
		for _, c := range []contender{
			{name: "AATB, reference", algorithm: s.paper.AATB(pace.Reference), telemetry: true},
			{name: "AATB, corrected", algorithm: s.paper.AATB(pace.Corrected), telemetry: true},
			{name: "AATB, corrected, gated", algorithm: gated, telemetry: true},
			contenderNamed(s, "XATB"),
			{name: "XATB, gated", algorithm: pace.XATB{Gate: true}, telemetry: true},
		} {
			for _, e := range []struct {
				name string
				environment
			}{
				{"all arrives", environment{}}, {"a tenth is lost", environment{loss: 0.1}},
				{"half is lost", environment{loss: 0.5}},
				{"all is lost", environment{loss: 1}}, {"one refusal is made up", environment{fakeRefusals: 1}},
				{"1000 are", environment{fakeRefusals: 1000}},
			} {
				table = append(table, row(c.name+": "+e.name, measure(s, 800, runs, c, e.environment), ub))
			}
		}
		fmt.Printf("\n%s, 800 requests\n\n%s", s.name, table)
	}
}
