package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func newPolicyDiff() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff [FROM] TO",
		Short: "Show what is different between two versions of the rules",
		Long: `Show what is different in version TO from version FROM, or from the version before
TO. A line stands for a rule or a project's tier: + is new, - is gone, ~ is
different. "headgate policy history" lists the versions.`,
		Example: `  headgate policy diff 17
  headgate policy diff 12 17`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			versions, err := versionArguments(args)
			if err != nil {
				return err
			}
			return readRules(cmd, &from, func(ctx context.Context, db editor, _ policy.CompileOptions) error {
				changes, err := difference(ctx, db, versions)
				if err != nil {
					return sayNoVersion(err)
				}
				return writeChanges(cmd.OutOrStdout(), changes, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	takesNumber(cmd, wrongVersion)
	return cmd
}

func versionArguments(args []string) (versions []int64, err error) {
	for _, arg := range args {
		v, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || v < 1 {
			return nil, usageError{wrongVersion(arg)}
		}
		versions = append(versions, v)
	}
	return versions, nil
}

func wrongVersion(value string) error {
	return fmt.Errorf("version is %q, want a whole number, 1 or more; `headgate policy history` lists them", value)
}

func difference(ctx context.Context, db rules.Editor, versions []int64) ([]record.Change, error) {
	if len(versions) == 1 {
		return db.Changes(ctx, versions[0])
	}
	return db.Diff(ctx, versions[0], versions[1])
}

func writeChanges(w io.Writer, changes []record.Change, asJSON bool) error {
	if asJSON {
		return writeJSON(w, rules.ChangeEntries(changes))
	}
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "nothing is different")
		return err
	}
	colours := map[byte]string{}
	if isTerminal(w) && os.Getenv("NO_COLOR") == "" {
		colours = map[byte]string{'+': "\x1b[32m", '-': "\x1b[31m", '~': "\x1b[33m"}
	}
	out := bufio.NewWriter(w)
	for _, c := range changes {
		line := plain(rules.Describe(c))
		if colour := colours[line[0]]; colour != "" {
			line = colour + line + "\x1b[0m"
		}
		fmt.Fprintln(out, line)
	}
	return out.Flush()
}

// isTerminal reports whether somebody sees or types what goes through f.
func isTerminal(f any) bool {
	opened, ok := f.(*os.File)
	return ok && isatty.IsTerminal(opened.Fd())
}
