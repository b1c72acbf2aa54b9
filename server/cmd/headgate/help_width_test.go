package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The help of every command fits into a terminal, and no flag has a backquote in its words: the library takes what
// stands between two for the name of its value.
func TestHelpFits(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, line := range strings.Split(c.Long, "\n") {
			if len([]rune(line)) > helpWidth {
				t.Errorf("%s: a line of %d columns: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
		flags := false
		for _, line := range strings.Split(c.UsageString(), "\n") {
			// a word is not cut
			if flags = flags || strings.HasPrefix(line, "Flags:"); flags && len([]rune(line)) > helpWidth+20 {
				t.Errorf("%s: a line of %d columns: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: a backquote in %q", c.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(newRoot(io.Discard, io.Discard))
}

// TestGivenFlagsAreNotEmpty: a flag for text tells what it was given, or refuseEmpty would take it for empty.
func TestGivenFlagsAreNotEmpty(t *testing.T) {
	given := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" || f.Value.Set("x") != nil {
				return // or it takes no such text
			}
			if given++; f.Value.String() == "" {
				t.Errorf("%s --%s x: String() is empty, want the text", c.CommandPath(), f.Name)
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(newRoot(io.Discard, io.Discard))
	if given < 200 {
		t.Errorf("%d flags took a text, want more", given)
	}
}
