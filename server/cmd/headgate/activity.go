package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/record"
)

func newActivity() *cobra.Command {
	var gateway throughFlags
	var watch time.Duration
	var most int
	var reveal, asJSON bool
	cmd := &cobra.Command{
		Use:   "activity",
		Short: "Show who is denied now, and what each rule admits and denies",
		Long: `Show what a running gateway decided of late: by rule, what it admits and denies now
and what it did in the last hour; and the callers that were denied most often in
the last minute. Callers are named by a hash that lasts as long as the gateway
runs; --reveal shows who they are, and wants a token with the role grant where
tokens are wanted.

EARLY is how many of the denied requests came before the caller was told to come
again: clients that ignore Retry-After. The gateway's page in a browser, /ui/ on
the admin listener, draws the same.`,
		Example: `  headgate activity
  headgate activity --watch=2s --reveal`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("watch") && len(args) == 1 {
				return usagef("--watch takes its time after =, want --watch=%s", args[0])
			}
			return arguments(0, 0)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("watch") && watch < minWatch {
				return usagef("--watch is %v, want %v or more", watch, minWatch)
			}
			if most < 1 || most > 1000 {
				return usagef("--limit is %d, want 1 to 1000", most)
			}
			c, err := gateway.client(cmd)
			if err != nil {
				return err
			}
			show := func() error {
				now, err := c.Activity(cmd.Context(), most, reveal)
				if err != nil {
					return err
				}
				hour, err := c.Series(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), now)
				}
				return writeActivity(cmd.OutOrStdout(), &now, hour, watch > 0)
			}
			if watch == 0 {
				return show()
			}
			return again(cmd.Context(), watch, show)
		},
	}
	gateway.addNeeded(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&watch, "watch", 0, "show it again and again, with this time between")
	flags.Lookup("watch").NoOptDefVal = "2s"
	flags.IntVar(&most, "limit", 20, "how many rules, callers and endpoints are listed at most")
	flags.BoolVar(&reveal, "reveal", false, "show who callers are")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeActivity(w io.Writer, now *admin.Activity, hour activity.Series, redraw bool) error {
	if redraw {
		fmt.Fprint(w, "\x1b[H\x1b[2J") // cursor home, screen empty
	}
	columns := "RULE\tADMITTED\tDENIED\tSHADOW\tLAST HOUR\tDENIED\tSHADOW"
	waits := slices.ContainsFunc(now.Rules, func(r activity.Rate) bool { return r.Hour.Abandoned > 0 })
	if waits {
		columns += "\tLEFT WAITING"
	}
	rules := newTable(w, columns)
	for _, r := range now.Rules {
		title := r.Rule
		if title == "" {
			title = "(no rule)"
		}
		h := r.Hour
		row := []any{title, eachSecond(r.Admitted), eachSecond(r.Denied), eachSecond(r.Shadow), h.Admitted,
			h.Denied, h.Shadow}
		if waits {
			row = append(row, h.Abandoned)
		}
		rules.row(row...)
	}
	if err := rules.Flush(); err != nil {
		return err
	}
	writeWarnings(w, now)
	if len(now.Callers) == 0 {
		fmt.Fprintln(w, "\nnobody was denied in the last minute")
	} else {
		fmt.Fprintln(w)
		callers := newTable(w, "DENIED, LAST MINUTE\tRULE\tENDPOINT\tREQUESTS\tEARLY\tMAY COME AGAIN")
		for _, c := range now.Callers {
			again := "now"
			switch wait := c.Again.Sub(now.At); {
			case c.Blocked:
				again = "blocked"
			case wait > 0:
				again = "in " + span(wait.Seconds())
			}
			n := fmt.Sprint(c.Denied)
			if c.AtMost > 0 {
				n += fmt.Sprintf(", at most %d too high", c.AtMost)
			}
			callers.row(callerName(c.Caller), c.Rule, c.Endpoint, n, c.Early, again)
		}
		if err := callers.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", drawnHour(hour))
	return err
}

// writeWarnings tells what the gateway warns of at present.
func writeWarnings(w io.Writer, now *admin.Activity) {
	if now.WarningsAll == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "WARNING\tABOUT\tPERCENT\tSINCE")
	for _, e := range now.Warnings {
		about := "all requests"
		switch {
		case e.Caller != "":
			about = fmt.Sprintf("%s #%s at %s", strings.ReplaceAll(e.CallerKind, "_", " "), e.Caller, e.Rule)
		case e.Endpoint != "":
			about = e.Endpoint
		}
		t.row(strings.ReplaceAll(e.Kind, "_", " "), about, e.Percent, e.Time.Local().Format(time.TimeOnly))
	}
	_ = t.Flush() // the next line tells if nobody reads
	if more := now.WarningsAll - len(now.Warnings); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

func eachSecond(n float64) string {
	switch {
	case n == 0:
		return "-"
	case n < 10:
		return fmt.Sprintf("%.1f/s", n)
	}
	return fmt.Sprintf("%.0f/s", n)
}

// callerName is who a caller is, or its hash.
func callerName(c activity.Caller) string {
	kind := strings.ReplaceAll(c.Kind, "_", " ")
	switch {
	case c.Address != "":
		return c.Address
	case c.ID == "":
		return kind + " #" + c.Hash
	case c.Project != "":
		return kind + " " + c.ID + " of " + c.Project
	}
	return kind + " " + c.ID
}

// drawnHour is two lines of bars: the requests that were admitted over the last hour, and those that were denied.
func drawnHour(s activity.Series) string {
	const width = 60
	var admitted, denied [width]float64
	n := max(len(s.Admitted), 1)
	for i := range s.Admitted {
		admitted[i*width/n] += float64(s.Admitted[i])
		denied[i*width/n] += float64(s.Denied[i])
	}
	most := 0.0
	for i := range admitted {
		most = max(most, admitted[i], denied[i])
	}
	since := span(float64(len(s.Admitted)) * s.CellSeconds)
	return fmt.Sprintf("admitted  %s  in the last %s\ndenied    %s", bars(admitted[:], most), since,
		bars(denied[:], most))
}

// bars draws values between 0 and most as blocks.
func bars(values []float64, most float64) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		at := 0
		if most > 0 && v > 0 {
			at = max(1, int(v/most*float64(len(blocks)-1)))
		}
		b.WriteRune(blocks[at])
	}
	return b.String()
}

func newPolicyTry() *cobra.Command {
	var gateway throughFlags
	var named ruleFlags
	var per, algorithm string
	var burst int64
	var reveal, asJSON bool
	cmd := &cobra.Command{
		Use:   "try ENDPOINT LIMIT...",
		Short: "Say what other limits would have denied in the last hour",
		Long: `Have a running gateway decide the requests of the last hour again, with one rule
changed: for each LIMIT, what would have been denied, and to how many callers.
Nothing is changed, and nothing is taken from anybody. A rule in shadow is tried as
if it were enforced. LIMIT is as for "headgate policy set".

` + endpointHelp,
		Example: `  headgate policy try default 10/s 20/s 40/s
  headgate policy try 'POST /v1/login' 5/m 10/m --subject ip --reveal`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("policy try takes an endpoint and one limit or more, got %d arguments; see `headgate "+
					"policy try --help`", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var tried []policy.Rule
			var errs []error
			for _, text := range args[1:] {
				rule, err := named.rule(args[0])
				if err != nil {
					return err
				}
				errs = append(errs, setRate(&rule, text, per, cmd.Flags().Changed),
					setBurst(&rule, burst, cmd.Flags().Changed("burst")),
					rule.Algorithm.UnmarshalText([]byte(algorithm)))
				tried = append(tried, rule)
			}
			if err := errors.Join(errs...); err != nil {
				return usageError{err}
			}
			c, err := gateway.client(cmd)
			if err != nil {
				return err
			}
			for i := range tried {
				if err := likeThePresent(cmd.Context(), c, named.key(tried[i]), &tried[i],
					cmd.Flags().Changed("algorithm")); err != nil {
					return err
				}
			}
			got, err := c.Try(cmd.Context(), tried, reveal)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), got)
			}
			return writeTried(cmd.OutOrStdout(), tried, &got)
		},
	}
	gateway.addNeeded(cmd)
	named.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&per, "per", "1s", "time over which LIMIT is given, in whole seconds")
	flags.Int64Var(&burst, "burst", 0, "most requests at once (default: as many as LIMIT)")
	flags.StringVar(&algorithm, "algorithm", "token_bucket",
		"how the limit is counted: token_bucket, leaky_bucket, fixed_window, sliding_window or sliding_log")
	flags.BoolVar(&reveal, "reveal", false, "show who would be denied most")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	takesNumber(cmd, wrongLimit)
	return cmd
}

// likeThePresent gives a rule that is tried what the one in its place counts and punishes, and how
// it counts if nothing else is asked for: it is another limit that is tried, and nothing else.
func likeThePresent(ctx context.Context, from *client.Client, of record.RuleKey, tried *policy.Rule,
	algorithm bool) error {
	present, err := from.Get(ctx, of)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	tried.CountWhen, tried.Penalty = present.CountWhen, present.Penalty
	if !algorithm {
		tried.Algorithm = present.Algorithm
	}
	return nil
}

func writeTried(w io.Writer, tried []policy.Rule, got *admin.Tried) error {
	fmt.Fprintf(w, "requests  %d of %s, %s to %s\n", got.Requests, lint.Counted(int(got.Callers), "caller", "callers"),
		got.Since.Local().Format(time.TimeOnly), got.Until.Local().Format(time.TimeOnly))
	if got.Part < 1 {
		fmt.Fprintf(w, "          found by %s of the callers, drawn at random\n", share(got.Part))
	}
	for _, note := range got.Notes {
		fmt.Fprintln(w, strings.ReplaceAll("          "+wrap(note, 80), "\n", "\n          "))
	}
	if got.Skipped > 0 {
		fmt.Fprintf(w, "          without %d for endpoints that there are no more\n", got.Skipped)
	}
	fmt.Fprintln(w)
	t := newTable(w, "LIMIT\tDENIED\t\tCALLERS\tNEWLY DENIED\tNO LONGER\tOVER THE HOUR")
	line := func(name string, r *activity.Result) {
		part := 0.0
		if got.Requests > 0 {
			part = float64(r.Denied) / float64(got.Requests)
		}
		t.row(name, r.Denied, share(part), r.CallersDenied, r.Newly, r.NoLonger, drawnSpans(r.Spans, got.Asked))
	}
	line("in force", &got.InForce)
	for i := range got.Tried {
		name := tried[i].Rate()
		if tried[i].Burst > 0 {
			name += fmt.Sprintf(", burst %d", tried[i].Burst)
		}
		line(name, &got.Tried[i])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if last := got.Tried[len(got.Tried)-1]; len(last.Worst) > 0 {
		fmt.Fprintf(w, "\nmost under %s:\n", tried[len(tried)-1].Rate())
		worst := newTable(w, "CALLER\tREQUESTS\tDENIED")
		for _, c := range last.Worst {
			worst.row(callerName(c.Caller), c.Requests, c.Denied)
		}
		return worst.Flush()
	}
	return nil
}

// drawnSpans draws the part of requests that are denied in each of 20 spans.
func drawnSpans(denied, asked []int64) string {
	const width = 20
	var parts, all [width]float64
	for i := range asked {
		parts[i*width/len(asked)] += float64(denied[i])
		all[i*width/len(asked)] += float64(asked[i])
	}
	for i := range parts {
		if all[i] > 0 {
			parts[i] /= all[i]
		}
	}
	return "|" + bars(parts[:], 1) + "|"
}
