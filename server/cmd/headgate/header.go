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

// bodyFlag is a body: the text, or that of a file.
type bodyFlag struct {
	text  *string
	stdin func() io.Reader
}

// String is the text, none at first. What says nothing is refused (refuseEmpty).
func (f bodyFlag) String() string {
	if f.text == nil {
		return "" // pflag asks an empty one
	}
	return *f.text
}

// Type is how the help names it.
func (bodyFlag) Type() string { return "string" }

// Set takes the text, or reads the file.
func (f bodyFlag) Set(text string) (err error) {
	*f.text = text
	if strings.HasPrefix(text, "@") {
		const want = "a body that an API would take"
		if *f.text, err = atFile(text, f.stdin, want); err == nil && *f.text == "" {
			err = fmt.Errorf("%s is empty, want %s", text, want)
		}
	}
	return err
}

// atFile reads what @FILE names, or @- for standard input: want, in words.
func atFile(text string, stdin func() io.Reader, want string) (string, error) {
	from := stdin()
	if name := text[1:]; name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		from = file
	}
	all, err := io.ReadAll(io.LimitReader(from, maxHeader+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", text, err)
	case len(all) > maxHeader:
		return "", fmt.Errorf("%s has more than %d bytes, want %s", text, maxHeader, want)
	}
	return string(all), nil
}

// maxHeader is how many bytes a file with lines of a header, or a body, may have.
const maxHeader = 1 << 20

// addHeader adds --header, whose lines are those of whose: "the request", say.
func addHeader(cmd *cobra.Command, lines *[]string, whose string) {
	cmd.Flags().Var(headerFlag{lines, cmd.InOrStdin}, "header", "header of "+whose+
		", as 'Name: value', or @FILE with such lines, @- for standard input (repeatable)")
}

// Set adds a line, or those of a file.
func (f headerFlag) Set(text string) error {
	if !strings.HasPrefix(text, "@") {
		*f.lines = append(*f.lines, text)
		return nil
	}
	all, err := atFile(text, f.stdin, "lines Name: value")
	if err != nil {
		return err
	}
	before := len(*f.lines)
	for line := range strings.Lines(all) {
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
