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
	only := flags.Bool("holding", false, "measure what a client can hold alone, and print it")
	dry := flags.Bool("dry", false, "print the page instead of writing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	if *only {
		holding, err := l.holdAll(*span, stderr)
		if err == nil {
			_, err = fmt.Fprint(stdout, heldTable(holding))
		}
		return err
	}
	found, err := l.runAll(*span, stderr)
	if err != nil {
		return err
	}
	holding, err := l.holdAll(*span, stderr)
	if err != nil {
		return err
	}
	text := report(found, holding, *span, l.nginx, time.Now())
	if *dry {
		_, err := io.WriteString(stdout, text)
		return err
	}
	benchmarks, err := page.Docs()
	if err != nil {
		return err
	}
	if err := page.Between(filepath.Join(benchmarks, "attacks.md"), "<!-- begin: make attacks -->\n", "<!-- end -->\n", text); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(benchmarks, "attacks.svg"), chart(found).SVG(), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "wrote docs/benchmarks/attacks.md and attacks.svg")
	return nil
}
