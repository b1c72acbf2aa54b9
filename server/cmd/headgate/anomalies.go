package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/lint"
)

func newAnomalies() *cobra.Command {
	var gateway throughFlags
	var most int
	var reveal, asJSON bool
	cmd := &cobra.Command{
		Use:   "anomalies",
		Short: "Show the callers with the highest scores, and why they have them",
		Long: `Show the callers of a running gateway that behave least like usual ones, by their
scores: from 0 to 100, the sum of points for the rate, new endpoints, errors,
requests that match no endpoint, and spellings. Each with the numbers behind it,
and the tier by whose rules the caller pays as well. It wants the setting anomalies.

Callers are named by a hash that lasts as long as the gateway runs; --reveal shows
who they are, and wants a token with the role grant where tokens are wanted.`,
		Example: `  headgate anomalies
  headgate anomalies --limit 5 --reveal --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 || most > 1000 {
				return usagef("--limit is %d, want 1 to 1000", most)
			}
			c, err := gateway.client(cmd)
			if err != nil {
				return err
			}
			told, err := c.Anomalies(cmd.Context(), most, reveal)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(cmd.OutOrStdout(), told)
			}
			return writeAnomalies(cmd.OutOrStdout(), told)
		},
	}
	gateway.addNeeded(cmd)
	flags := cmd.Flags()
	flags.IntVar(&most, "limit", 20, "how many callers are listed at most")
	flags.BoolVar(&reveal, "reveal", false, "show who callers are")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeAnomalies(w io.Writer, told admin.Anomalies) error {
	if len(told.Callers) == 0 {
		_, err := fmt.Fprintf(w, "nobody of %s has a score above 0\n", lint.Counted(told.Counted, "caller", "callers"))
		return err
	}
	t := newTable(w, "SCORE\tCALLER\tPAYS ALSO BY\tWHY")
	for _, c := range told.Callers {
		tier := "-"
		if c.Tier != "" {
			tier = fmt.Sprintf("%s (%d or more)", c.Tier, c.From)
		}
		t.row(c.Score, callerName(c.Caller), tier, pointsOf(c.Parts))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of %s\n", told.Total, lint.Counted(told.Counted, "caller", "callers"))
	return err
}

// pointsOf says what a score is the sum of: "errors 40: 31 of 40 answers were 4xx; …".
func pointsOf(all []inspect.ScorePart) string {
	var parts []string
	for _, p := range all {
		if p.Points > 0 {
			parts = append(parts, fmt.Sprintf("%s %d: %s", p.Part, p.Points, p.Why))
		}
	}
	return strings.Join(parts, "; ")
}

// writeScores says what the callers' scores are made of.
func writeScores(w io.Writer, scores []inspect.Score) {
	for _, s := range scores {
		of := ""
		if s.Principal != "" {
			of = " of " + plain(s.Principal)
		}
		follows := ""
		if s.Tier != "" {
			follows = fmt.Sprintf(": it is %d or more, so the rules of tier %s apply as well", s.From, plain(s.Tier))
		}
		fmt.Fprintf(w, "\nscore%s  %d of 100%s\n", of, s.Score, follows)
		for _, p := range s.Parts {
			fmt.Fprintf(w, "  %-9s %3d  %s\n", p.Part, p.Points, p.Why)
		}
	}
}
