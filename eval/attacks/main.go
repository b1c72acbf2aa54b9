// Command attacks runs the adversarial cases A1 to A6 of the paper's section 12 against the real
// gateway process and against other limiters, all of them over sockets and before the same API, and
// writes the page about it.
//
// What is measured is what the API saw: every attacking request carries a number, the API notes
// when which number arrived and what it was about, and one Lindley pass over that record says by
// how much any interval of it exceeds the limit.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

func main() {
	if holdApart() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("attacks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	span := flags.Duration("span", 8*time.Second, "how long an attack lasts")
	holding := flags.Bool("holding", false, "measure what a client can hold alone")
	vector := flags.String("vector", "",
		"of the ways to hold, those alone whose name has this in it, and print what they cost")
	dry := flags.Bool("dry", false, "print the page instead of writing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	attacked, svg := "", []byte(nil)
	if !*holding && *vector == "" {
		found, err := l.runAll(*span, stderr)
		if err != nil {
			return err
		}
		attacked, svg = report(found, *span, l.nginx, time.Now()), chart(found).SVG()
	}
	all, err := l.holdAll(*span, *vector, stderr)
	if err != nil {
		return err
	}
	command := "make attacks"
	if *holding {
		command = "go run ./attacks -holding"
	}
	held := reportHeld(all, *span, time.Now(), command)
	if *dry || *vector != "" {
		_, err := io.WriteString(stdout, attacked+held)
		return err
	}
	benchmarks, err := page.Docs()
	if err != nil {
		return err
	}
	file := filepath.Join(benchmarks, "attacks.md")
	if err := page.Between(file, "<!-- begin: what a client can hold -->\n", "<!-- end -->\n", held); err != nil ||
		attacked == "" {
		return err
	}
	if err := page.Between(file, "<!-- begin: make attacks -->\n", "<!-- end -->\n", attacked); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(benchmarks, "attacks.svg"), svg, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "wrote docs/benchmarks/attacks.md and attacks.svg")
	return nil
}
