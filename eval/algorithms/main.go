// Command algorithms measures what every algorithm admits at worst, and writes it into docs/algorithms.md:
//
//	go run ./eval/algorithms          prints the table
//	go run ./eval/algorithms -write   puts it between the markers of the page
//
// An adversary that knows where windows begin tries schedules against the real table of buckets,
// keeps what brought in more, and changes it again. Its seeds are fixed, so every run finds the
// same.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/eval/harness"
)

const (
	begins = "<!-- begin: go run ./eval/algorithms -write -->\n"
	ends   = "<!-- end -->\n"
)

func main() {
	write := flag.Bool("write", false, "write the table into docs/algorithms.md")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "algorithms:", err)
		os.Exit(1)
	}
}

func run(write bool) error {
	results, err := measure()
	if err != nil {
		return err
	}
	text := table(results)
	if !write {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	name, err := page()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	renewed, err := replace(old, text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, renewed, 0o644)
}

func page() (string, error) {
	root, err := harness.Root()
	return filepath.Join(root, "docs", "algorithms.md"), err
}

// replace puts text between the markers of a page.
func replace(page []byte, text string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(begins))
	_, after, ok2 := bytes.Cut(rest, []byte(ends))
	if !ok || !ok2 {
		return nil, errors.New("the markers of the table are missing")
	}
	return bytes.Join([][]byte{before, []byte(begins), []byte(text), []byte(ends), after}, nil), nil
}

// table writes the results as Markdown, in multiples of the limit.
func table(results []result) string {
	var b bytes.Buffer
	b.WriteString("| algorithm | at one moment | bound | in any W | bound | in any 10 W | bound |\n" +
		"|---|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s |", r.name)
		for i := range spans {
			fmt.Fprintf(&b, " %.2f | %.2f |", float64(r.most[i])/limit, float64(r.bound[i])/limit)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
