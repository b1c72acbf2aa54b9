package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the table of docs/commands.md")

// TestEveryCommandIsOnItsPage compares the commands with docs/commands.md.
func TestEveryCommandIsOnItsPage(t *testing.T) {
	const begin, end = "<!-- begin: go test ./cmd/headgate -run TestEveryCommand -update -->\n", "<!-- end -->\n"
	var table strings.Builder
	table.WriteString("| command | what it does |\n|---|---|\n")
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		if len(cmd.Commands()) == 0 || cmd.LocalNonPersistentFlags().HasFlags() {
			fmt.Fprintf(&table, "| `%s` | %s |\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"),
				strings.ReplaceAll(cmd.Short, "|", `\|`))
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(newRoot(io.Discard, io.Discard))
	path := filepath.Join(repository(t), "docs", "commands.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("docs/commands.md does not hold %q and %q", begin, end)
	}
	want := before + begin + table.String() + end + after
	if *update {
		err = os.WriteFile(path, []byte(want), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Error("docs/commands.md does not list the commands as they are: go test ./cmd/headgate -run " +
			"TestEveryCommand -update, in server")
	}
}
