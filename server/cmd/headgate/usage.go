package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/usage"
)

func newUsage() *cobra.Command {
	var gateway throughFlags
	var from, to string
	var reveal, asJSON, asCSV bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what each caller did, by the day",
		Long: `Show what callers with a verified credential did, for each caller and day (of UTC):
requests that were admitted and denied, and what those that were admitted cost, in
tokens. A gateway remembers 31 days of itself alone, and over restarts with the setting
usage.file.

Callers are named by a hash that lasts as long as the gateway runs; --reveal shows
who they are, and wants a token with the role grant where tokens are wanted.`,
		Example: `  headgate usage --from 2026-11-01
  headgate usage --csv --reveal > usage.csv`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && asCSV {
				return usagef("--json and --csv are both given, want one of the two")
			}
			for name, day := range map[string]string{"from": from, "to": to} {
				if day == "" {
					continue
				}
				if _, err := usage.ParseDay(day); err != nil {
					return usagef("--%s %v", name, err)
				}
			}
			c, err := gateway.client(cmd)
			if err != nil {
				return err
			}
			told, err := c.Usage(cmd.Context(), from, to, reveal)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(cmd.OutOrStdout(), told)
			case asCSV:
				return writeUsageCSV(cmd.OutOrStdout(), told.Rows)
			}
			return writeUsage(cmd.OutOrStdout(), told)
		},
	}
	gateway.addNeeded(cmd)
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the first day, such as 2026-11-01 (default: all that is remembered)")
	flags.StringVar(&to, "to", "", "the last day (default: today)")
	flags.BoolVar(&reveal, "reveal", false, "show who callers are")
	flags.BoolVar(&asCSV, "csv", false, "print CSV (RFC 4180)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeUsage(w io.Writer, told admin.Usage) error {
	t := newTable(w, "DAY\tCALLER\tPROJECT\tADMITTED\tDENIED\tTOKENS")
	for _, r := range told.Rows {
		t.row(r.Day, strings.TrimSpace(r.Kind+" "+callerOfRow(r)), cmp.Or(r.Project, "-"), r.Admitted,
			r.Denied, r.Tokens)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	const minute = "2006-01-02 15:04 UTC"
	fmt.Fprintf(w, "\ncounted since %s\n", told.Since.UTC().Format(minute))
	for _, gap := range told.Incomplete {
		fmt.Fprintf(w, "requests may be missing from %s to %s: the gateway was killed\n", gap.From.UTC().Format(minute),
			gap.To.UTC().Format(minute))
	}
	return nil
}

func callerOfRow(r admin.UsageRow) string {
	if r.ID != "" {
		return r.ID
	}
	return r.Hash
}

// writeUsageCSV writes RFC 4180. A name that a spreadsheet would calculate is begun by an apostrophe:
// whoever issues tokens chooses their subjects.
func writeUsageCSV(w io.Writer, rows []admin.UsageRow) error {
	safe := func(text string) string {
		if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
			return "'" + text
		}
		return text
	}
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "kind", "caller", "project", "admitted", "denied", "tokens"}) // Error has it
	for _, r := range rows {
		_ = out.Write([]string{r.Day, r.Kind, safe(callerOfRow(r)), safe(r.Project), fmt.Sprint(r.Admitted),
			fmt.Sprint(r.Denied), fmt.Sprint(r.Tokens)})
	}
	out.Flush()
	return out.Error()
}
