package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// headerFlag is the lines of a header: one, or all of a file, so that a credential need stand neither in the list of
// processes nor in the shell's history.
type headerFlag struct {
	lines *[]string
	stdin func() io.Reader
}

// maxHeader is how many bytes a file with lines of a header may have.
const maxHeader = 1 << 20

// addHeader adds --header, whose lines are those of whose: "the request", say.
func addHeader(cmd *cobra.Command, lines *[]string, whose string) {
	cmd.Flags().Var(headerFlag{lines, cmd.InOrStdin}, "header", "header of "+whose+
		", as 'Name: value', or @FILE with such lines, @- for standard input (repeatable)")
}

// Set adds a line, or those of a file.
func (f headerFlag) Set(text string) error {
	name, ok := strings.CutPrefix(text, "@")
	if !ok {
		*f.lines = append(*f.lines, text)
		return nil
	}
	from := f.stdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	all, err := io.ReadAll(io.LimitReader(from, maxHeader+1))
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", text, err)
	case len(all) > maxHeader:
		return fmt.Errorf("%s has more than %d bytes, want lines Name: value", text, maxHeader)
	}
	before := len(*f.lines)
	for line := range strings.Lines(string(all)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			*f.lines = append(*f.lines, line)
		}
	}
	if len(*f.lines) == before {
		return fmt.Errorf("%s is empty, want lines Name: value", text)
	}
	return nil
}

// String shows no line: one may be a credential.
func (f headerFlag) String() string { return "" }

// Type is what the help calls a value.
func (f headerFlag) Type() string { return "line" }
