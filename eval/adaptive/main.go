// Command adaptive measures limits that follow an API in virtual time, beside others, and writes docs/load.md.
//
// The API is a program, so a run gives the same numbers again, whatever the machine. What is measured is the real
// thing: a headgate.Limiter with its rules and buckets, and requests one by one.
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

func main() {
	if err := measure(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "adaptive:", err)
		os.Exit(1)
	}
}

func measure(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("adaptive", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dry := flags.Bool("dry", false, "print the tables instead of writing the page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := append(scenarios(3), day())
	found := runAll(all)
	text := "Simulated by `make load`, which gives the same numbers again.\n\n" + tables(all, found)
	if *dry {
		_, err := io.WriteString(stdout, text)
		return err
	}
	docs, err := page.Docs()
	if err != nil {
		return err
	}
	const begin, end = "<!-- begin: make load -->\n", "<!-- end -->\n"
	if err := page.Between(filepath.Join(docs, "..", "load.md"), begin, end, text); err != nil {
		return err
	}
	drawn := figure(all[len(all)-1], found[len(found)-1])
	if err := os.WriteFile(filepath.Join(docs, "load.svg"), drawn.SVG(), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stderr, "wrote docs/load.md and docs/benchmarks/load.svg")
	return err
}

// runAll runs all contenders through all scenarios, on all processors.
func runAll(all []scenario) [][]outcome {
	found := make([][]outcome, len(all))
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, s := range all {
		of := contenders(&s)
		found[i] = make([]outcome, len(of))
		for j, c := range of {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				found[i][j] = run(s, c.make(s.backend), 1)
			})
		}
	}
	wg.Wait()
	return found
}

func tables(all []scenario, found [][]outcome) string {
	t := page.Table{{"scenario", "limit", "goodput", "99th percentile", "variation of *m*", "*m*"}}
	for i, s := range all {
		for j, c := range contenders(&s) {
			o, name := &found[i][j], c.name
			if name == adapts || name == together {
				name = "**" + name + "**"
			}
			varies, m := fmt.Sprintf("%.3f", o.CV), fmt.Sprintf("%.2f to %.2f", o.Least, o.Most)
			if c.fixed {
				varies, m = "", ""
			}
			t = append(t, []string{s.name, name, fmt.Sprintf("%.3f", o.Goodput), seconds(o.P99), varies, m})
		}
	}
	return t.String()
}

// seconds writes a time to three digits.
func seconds(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f ms", float64(d)/1e6)
}

// step is how many seconds of the day a point of the figure is of.
const step = 300

// figure draws a day: what was answered in time, of what could have been, how long the slowest took, and the
// multiplier.
func figure(s scenario, found []outcome) page.Lines {
	f := page.Lines{Title: "A day of an API that can do 100 requests a second, and halves at 9:00, 13:54 and 19:00"}
	steps := s.seconds / step
	for n := range steps {
		label := ""
		if n*step%(3*hour) == 0 {
			label = fmt.Sprintf("%d:00", n*step/hour)
		}
		f.Steps = append(f.Steps, label)
	}
	good := page.LinePanel{Title: "answers within the objective, a second", Linear: true}
	p99 := page.LinePanel{Title: "99th percentile of answers in milliseconds, the worst second (logarithmic)"}
	part := page.LinePanel{Title: "multiplier, the least of five minutes", Linear: true}
	could := page.Line{Label: "possible", Dashed: true}
	for n := range steps {
		could.Values = append(could.Values, sum(found[0].Could[n*step:(n+1)*step])/step)
	}
	good.Lines = append(good.Lines, could)
	for j, c := range contenders(&s) {
		if !c.drawn {
			continue
		}
		o, ours := &found[j], c.name == adapts
		lines := [3]page.Line{{Label: c.name, Ours: ours}, {Label: c.name, Ours: ours}, {Label: c.name, Ours: ours}}
		for n := range steps {
			from, to := n*step, (n+1)*step
			lines[0].Values = append(lines[0].Values, sum(o.Good[from:to])/step)
			slowest, least := 0.0, math.Inf(1)
			for i := from; i < to; i++ {
				slowest, least = max(slowest, o.P99s[i]), min(least, o.Second[i])
			}
			lines[1].Values, lines[2].Values = append(lines[1].Values, slowest), append(lines[2].Values, least)
		}
		good.Lines, p99.Lines = append(good.Lines, lines[0]), append(p99.Lines, lines[1])
		if !c.fixed {
			part.Lines = append(part.Lines, lines[2])
		}
	}
	f.Panels = []page.LinePanel{good, p99, part}
	return f
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}
