package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A header's lines come from where no list of processes and no history of a shell has them, as well as from arguments.
func TestHeaderLines(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "header.txt", "X-Api-Key: one\r\n\nX-Other: @two\n")
	write(t, dir, "empty.txt", "\n\n")
	write(t, dir, "large.txt", strings.Repeat("X: y\n", maxHeader/5+1))
	t.Chdir(dir)
	for _, c := range []struct {
		args, stdin string
		lines       []string
		refused     string
	}{
		{args: "--header A:b --header A:c", lines: []string{"A:b", "A:c"}},
		{args: "--header @header.txt --header A:b", lines: []string{"X-Api-Key: one", "X-Other: @two", "A:b"}},
		{args: "--header @-", stdin: "Authorization: Bearer x", lines: []string{"Authorization: Bearer x"}},
		{args: "--header @-", refused: "@- is empty, want lines Name: value"},
		{args: "--header @empty.txt", refused: "@empty.txt is empty, want lines Name: value"},
		{args: "--header @large.txt", refused: "@large.txt has more than 1048576 bytes, want lines Name: value"},
		{args: "--header @none.txt", refused: "open none.txt"},
	} {
		var lines []string
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.SetIn(strings.NewReader(c.stdin))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(strings.Fields(c.args))
		addHeader(cmd, &lines, "a request")
		err := cmd.Execute()
		switch {
		case c.refused == "" && (err != nil || !slices.Equal(lines, c.lines)):
			t.Errorf("%s: %q, %v, want %q", c.args, lines, err, c.lines)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", c.args, err, c.refused)
		}
	}
}
