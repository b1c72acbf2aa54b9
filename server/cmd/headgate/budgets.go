package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/developers"
)

func newBudgets() *cobra.Command {
	var door doorFlags
	var endpoint string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "budgets",
		Short: "Show what is left to you at an API behind Headgate",
		Long: `Show every limit that applies to the holder of an API key or bearer token, what is
left of it, and what was admitted and denied in the last hour. It is for those who
call an API behind Headgate, and asks its gateway where its operator lets developers
ask (developers.path). Asking takes nothing from any budget.`,
		Example: `  headgate budgets --url https://api.example.com --key-file key.txt
  headgate budgets --url https://api.example.com --token-file token.txt --endpoint 'GET /v1/items/{id}' --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if endpoint != "" {
				query.Set("endpoint", endpoint)
			}
			var report developers.Report
			if err := door.ask(cmd.Context(), http.MethodGet, "/v1/budgets", query, nil, &report); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), report)
			}
			return writeBudgets(cmd.OutOrStdout(), &report)
		},
	}
	door.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&endpoint, "endpoint", "", "one endpoint, as 'GET /v1/items/{id}' (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// writeBudgets prints a table with a bar for each bucket: blocks on a terminal,
// characters that every program knows elsewhere.
func writeBudgets(w io.Writer, report *developers.Report) error {
	full, empty := "#", "."
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		full, empty = "█", "░"
	}
	writeCaller(w, report)
	if len(report.Budgets) == 0 {
		_, err := fmt.Fprintln(w, "no limit applies")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LIMIT\tENDPOINTS\tAT MOST\tLEFT\t\tFULL IN\tLAST HOUR")
	for i := range report.Budgets {
		b := &report.Budgets[i]
		left := [3]string{b.Needs, "", "-"}
		if b.Left != nil {
			left = leftCells(b.Left, b.Burst, full, empty)
		} else {
			left[0] = "known by " + left[0]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", plain(b.Rule), plain(endpointsOf(b)), atMost(b),
			plain(left[0]), left[1], left[2], hourText(b.LastHour))
		for _, u := range b.Used {
			cells := leftCells(&u, b.Burst, full, empty)
			fmt.Fprintf(table, "\t%s\t\t%s\t%s\t%s\t\n", plain(u.Endpoint), cells[0], cells[1], cells[2])
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if report.More > 0 {
		_, err := fmt.Fprintf(w, "and %d more: name one endpoint with --endpoint\n", report.More)
		return err
	}
	return nil
}

func writeCaller(w io.Writer, report *developers.Report) {
	c := report.Caller
	text := strings.ReplaceAll(c.Kind, "_", " ") + " " + c.ID
	if c.Project != "" {
		text += ", project " + c.Project
	}
	if c.Tier != "" {
		text += ", tier " + c.Tier
	}
	fmt.Fprintln(w, plain(text))
	if h := report.LastHour; h != nil {
		fmt.Fprintf(w, "last hour: %d requests admitted, %d denied", h.Admitted, h.Denied)
		if !h.Complete {
			fmt.Fprintf(w, "; counted since %s only", h.Since.Format(time.RFC3339))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// endpointsOf says where a limit applies.
func endpointsOf(b *developers.Budget) string {
	switch {
	case b.Endpoints == 0:
		return "all together"
	case b.Endpoints == 1 && b.Left != nil:
		return b.Left.Endpoint
	case b.Endpoints == 1:
		return b.Endpoint
	}
	return fmt.Sprintf("each of %d", b.Endpoints)
}

func atMost(b *developers.Budget) string {
	text := policy.Rule{Limit: b.Limit, Per: time.Duration(b.PerSeconds) * time.Second}.Rate()
	if b.Burst != b.Limit {
		text += fmt.Sprintf(", burst %d", b.Burst)
	}
	if b.Mode == policy.Shadow.String() {
		text += ", denies nothing"
	}
	if !b.Until.IsZero() {
		text += ", until " + b.Until.Format(time.RFC3339)
	}
	return text
}

// barWidth is how many characters a full bucket is.
const barWidth = 10

func leftCells(l *developers.Left, burst int64, full, empty string) [3]string {
	cells := int(min(barWidth, float64(l.Remaining)/float64(max(burst, 1))*barWidth))
	if l.Remaining > 0 {
		cells = max(cells, 1)
	}
	cells = max(cells, 0)
	amount := fmt.Sprintf("%d of %d", l.Remaining, burst)
	if l.RetryAfterSeconds > 0 {
		amount += ", one in " + span(l.RetryAfterSeconds)
	}
	return [3]string{strings.Repeat(full, cells) + strings.Repeat(empty, barWidth-cells), amount, span(l.ResetSeconds)}
}

// span is a number of seconds as people read it: 250ms, 1.5s, 19m42s, 1h.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	text := d.Round(time.Second).String()
	if trimmed, whole := strings.CutSuffix(text, "m0s"); whole {
		text = trimmed + "m"
	}
	if trimmed, whole := strings.CutSuffix(text, "h0m"); whole {
		text = trimmed + "h"
	}
	return text
}

func hourText(h *developers.Hour) string {
	switch {
	case h == nil, h.Admitted+h.Denied == 0:
		return "-"
	}
	return fmt.Sprintf("%d admitted, %d denied", h.Admitted, h.Denied)
}
