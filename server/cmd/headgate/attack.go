package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/attack"
)

func newAttack() *cobra.Command {
	plan := attack.Plan{Agent: "headgate-attack/" + programVersion() + " (a test of rate limits by their owner)"}
	var from configFlags
	var owned, header []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "attack [URL]",
		Short: "Try to get past the rate limit of a deployment of your own",
		Long: `Send one endpoint what attackers send to get past its rate limit, whichever
limiter it has: headers that claim other addresses, other spellings of the path,
API keys and tokens made up, endpoints that do not exist. For each it says whether
more was admitted than the limit allows, in any interval, and what to do about it.

With a valid credential of your own as a --header (Authorization, X-Api-Key, Api-Key,
Apikey, X-Auth-Token, X-Access-Token or Cookie) the attacks are those of somebody who
has one: it is sent beside made-up credentials, repeated, in other spellings, with
headers that claim other addresses, and on loopback from 64 addresses. All that is
admitted together must not exceed the credential's own limit.

With a --body, bodies that hold ten of it are tried as well: each counts as ten.

With --bytes the limit is on the bytes of bodies, both ways. Choose one that the
requests use up.

With --at-once in place of --limit it is about how many requests of a client are
under way at the same moment. Choose an endpoint that takes a fifth of a second or
more: who is answered sooner cannot be seen beside another.

Without a URL the rules themselves are tried, in virtual time, with the documents
and the database that serve would read: where classes of requests share a budget
(priority), what each gets while the others ask for whatever they can get, and
whether a request can claim a class that is not its own.

Only loopback is attacked, and hosts that you name with --i-own-this-host: other
people's servers are not yours to try. No redirect is followed, no other host is
contacted, and the run ends by itself. Whatever is not answered with 429 (or a
--limited-status) counts as admitted, where the attack is about the credential or
the address; for another spelling, or with a valid credential, only the answer that
the plain request gets.

Exit status: 0 the limit held, 1 it was widened, a class was starved, or it could
not be judged, 2 wrong usage.`,
		Example: `  headgate attack http://127.0.0.1:8080 --endpoint 'GET /v1/items/1' --limit 5 --per 1s --burst 5
  headgate attack https://staging.example.com --i-own-this-host staging.example.com \
    --endpoint 'GET /v1/items/{id}' --limit 10 --limited-status 503 --json
  headgate attack http://127.0.0.1:8080 --endpoint 'GET /v1/items/1' --limit 5 --header "X-Api-Key: $KEY"
  headgate attack --config headgate.yaml`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := attackedEither(cmd.Flags(), &from, len(args) > 0); err != nil {
				return err
			}
			if len(args) == 0 {
				return attackRules(cmd, &from, asJSON)
			}
			if err := attackedLimit(cmd.Flags(), &plan); err != nil {
				return usageError{err}
			}
			for _, line := range header {
				name, value, _ := strings.Cut(line, ":")
				plan.Header = append(plan.Header, attack.Field{Name: name, Value: strings.TrimSpace(value)})
			}
			site, err := attack.Find(cmd.Context(), args[0], owned, attack.System)
			if err := errors.Join(err, plan.Check()); err != nil {
				return usageError{err}
			}
			if asJSON {
				return attackJSON(cmd.Context(), cmd.OutOrStdout(), site, plan)
			}
			return attackTable(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), site, plan)
		},
	}
	from.addFlags(cmd, "openapi", "routes", "db", "secret-file", "trusted-proxy", "unknown")
	flags := cmd.Flags()
	flags.StringVar(&plan.Endpoint, "endpoint", "",
		"what is asked for, as 'METHOD /path'; where it holds {name}, other items are asked for too")
	flags.Int64Var(&plan.Limit.Requests, "limit", 0, "requests that one client may send there in each --per")
	flags.BoolVar(&plan.Bytes, "bytes", false,
		"--limit and --burst are bytes of the bodies of requests and answers, not requests")
	flags.Int64Var(&plan.AtOnce, "at-once", 0,
		fmt.Sprintf("requests that it may have under way there at once, in place of --limit, at most %d",
			attack.MaxAtOnce))
	flags.DurationVar(&plan.Limit.Per, "per", time.Second, "the time that --limit is about")
	flags.Int64Var(&plan.Limit.Burst, "burst", 0, "requests that it may send at once (default: --limit)")
	flags.IntVar(&plan.Requests, "requests", 1200, fmt.Sprintf("requests in all, at most %d", attack.MaxRequests))
	flags.Float64Var(&plan.Rate, "rate", 100, fmt.Sprintf("requests a second, at most %d", attack.MaxRate))
	flags.DurationVar(&plan.Duration, "duration", time.Minute,
		fmt.Sprintf("end after this long, at most %v", attack.MaxDuration))
	flags.StringArrayVar(&owned, "i-own-this-host", nil, "host that is yours to attack, as the URL has it (repeatable)")
	flags.IntSliceVar(&plan.Limited, "limited-status", []int{429}, "status by which the limiter says no (repeatable)")
	addHeader(cmd, &header, "every request, such as a valid credential")
	flags.StringVar(&plan.Body, "body", "",
		"body of every request, JSON by default; bodies that hold ten of it are tried too")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// attackedLimit completes the limit of a plan, of which there is one.
func attackedLimit(flags *pflag.FlagSet, plan *attack.Plan) error {
	if !flags.Changed("at-once") {
		if !flags.Changed("burst") {
			plan.Limit.Burst = plan.Limit.Requests
		}
		return nil
	}
	for _, name := range []string{"limit", "per", "burst", "requests", "rate", "bytes"} {
		if flags.Changed(name) {
			return fmt.Errorf("--at-once and --%s stand together, want one: a run is about one limit, and "+
				"--at-once says how many are sent", name)
		}
	}
	if plan.Limit = (attack.Limit{}); plan.AtOnce == 0 {
		return fmt.Errorf("--at-once is 0, want 1 to %d", attack.MaxAtOnce)
	}
	return nil
}

// attackReport is what --json prints.
type attackReport struct {
	Host      string           `json:"host"`
	Addresses []string         `json:"addresses"`
	Endpoint  string           `json:"endpoint"`
	Limit     attack.Limit     `json:"limit,omitzero"`
	Bytes     bool             `json:"bytes,omitempty"`   // what Limit is in, and what findings have admitted
	AtOnce    int64            `json:"at_once,omitempty"` // in place of Limit
	Findings  []attack.Finding `json:"findings"`
	Stopped   string           `json:"stopped,omitempty"`
}

func attackJSON(ctx context.Context, w io.Writer, site attack.Site, plan attack.Plan) error {
	report := attackReport{Host: site.Host, Endpoint: plan.Endpoint, Limit: plan.Limit, Bytes: plan.Bytes,
		AtOnce: plan.AtOnce, Findings: []attack.Finding{}}
	for _, a := range site.Addresses {
		report.Addresses = append(report.Addresses, a.String())
	}
	findings, err := attack.Run(ctx, site, plan, func(attack.Finding) {})
	report.Findings = append(report.Findings, findings...)
	if err != nil {
		report.Stopped = err.Error()
	}
	return errors.Join(writeJSON(w, report), err, outcome(plan, findings))
}

func attackTable(ctx context.Context, w, progress io.Writer, site attack.Site, plan attack.Plan) error {
	fmt.Fprintf(w, "attacking  %s at %s\nendpoint   %s\nexpected   %s\n\n", site.Host, addresses(site), plan.Endpoint,
		expected(plan))
	terminal := false
	if f, ok := progress.(*os.File); ok {
		terminal = isatty.IsTerminal(f.Fd())
	}
	all := plan.Attacks()
	show := func(n int) {
		if terminal && n < len(all) {
			fmt.Fprintf(progress, "\r\033[K%d of %d: %s", n+1, len(all), all[n].Claim)
		}
	}
	show(0)
	done := 0
	findings, err := attack.Run(ctx, site, plan, func(attack.Finding) {
		done++
		show(done)
	})
	if terminal {
		fmt.Fprint(progress, "\r\033[K")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(findings) > 0 {
		most := "ENVELOPE"
		if plan.AtOnce > 0 {
			most = "AT ONCE"
		}
		fmt.Fprintf(table, "ATTACK\tVERDICT\tSENT\tADMITTED\t%s\tBEYOND\tANSWERS\tWHAT WAS TRIED\n", most)
	}
	for _, f := range findings {
		most := fmt.Sprintf("%.0f", f.Envelope)
		if plan.AtOnce > 0 {
			most = fmt.Sprint(f.AtOnce)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t%s\n", f.Attack, f.Verdict, f.Sent, f.Admitted, most, f.Beyond,
			answers(f), f.Claim)
	}
	_ = table.Flush()
	for _, f := range findings {
		explainFinding(w, f, plan)
	}
	printNotes(w, findings)
	return errors.Join(err, outcome(plan, findings))
}

// printNotes says what was not tried, each thing once.
func printNotes(w io.Writer, findings []attack.Finding) {
	var notes []string
	attacks := map[string][]string{}
	for _, f := range findings {
		if f.Note != "" && attacks[f.Note] == nil {
			notes = append(notes, f.Note)
		}
		attacks[f.Note] = append(attacks[f.Note], f.Attack)
	}
	for _, note := range notes {
		fmt.Fprintf(w, "\n%s: %s.\n", strings.Join(attacks[note], ", "), note)
	}
}

// explainFinding says how a limit was widened and what to do.
func explainFinding(w io.Writer, f attack.Finding, plan attack.Plan) {
	if f.Verdict != attack.Widened {
		return
	}
	if plan.AtOnce > 0 {
		fmt.Fprintf(w, "\n%s: %d requests were under way at the same moment for certain, and %d of %d were admitted; "+
			"%s is what was expected.\n", f.Attack, f.AtOnce, f.Admitted, f.Sent, expected(plan))
	} else if plan.Bytes {
		fmt.Fprintf(w, "\n%s: %d bytes were moved by %d requests in %.1f s; %s admits at most %.0f in this time.\n",
			f.Attack, f.Admitted, f.Sent, f.Seconds, expected(plan), f.Envelope)
	} else {
		fmt.Fprintf(w, "\n%s: %d of %d requests were admitted in %.1f s; %s admits at most %.0f in this time.\n",
			f.Attack, f.Admitted, f.Sent, f.Seconds, expected(plan), f.Envelope)
	}
	shown := 0
	for _, c := range f.Families {
		if c.Admitted == 0 || shown == 8 || len(f.Families) == 1 {
			break
		}
		of := "of"
		if plan.Bytes {
			of = "bytes by"
		}
		fmt.Fprintf(w, "  %d %s %d: %s\n", c.Admitted, of, c.Sent, c.Name)
		shown++
	}
	fmt.Fprintf(w, "  fix: %s.\n", f.Fix)
}

// outcome is the error that makes the exit status 1.
func outcome(plan attack.Plan, findings []attack.Finding) error {
	var widened, unclear []string
	for _, f := range findings {
		switch f.Verdict {
		case attack.Widened:
			widened = append(widened, f.Attack)
		case attack.Inconclusive:
			unclear = append(unclear, f.Attack)
		}
	}
	var errs []error
	if len(widened) > 0 {
		errs = append(errs, fmt.Errorf("the limit was widened by %s", strings.Join(widened, ", ")))
	}
	switch {
	case len(unclear) == 0:
	case plan.AtOnce > 0:
		errs = append(errs, fmt.Errorf("%s cannot be judged: while it was tried, plain requests did not have all "+
			"places, so something else denied them, such as a rate or a penalty", strings.Join(unclear, ", ")))
	default:
		errs = append(errs, fmt.Errorf("too little was answered to judge %s: try more --requests, or a higher --rate",
			strings.Join(unclear, ", ")))
	}
	return errors.Join(errs...)
}

func expected(plan attack.Plan) string {
	if plan.AtOnce > 0 {
		return fmt.Sprintf("%d at once", plan.AtOnce)
	}
	l, of := plan.Limit, ""
	if plan.Bytes {
		of = " bytes"
	}
	return fmt.Sprintf("%s, burst %d%s", policy.Rule{Limit: l.Requests, Per: l.Per}.Rate(), l.Burst, of)
}

func addresses(site attack.Site) string {
	var list []string
	for _, a := range site.Addresses {
		list = append(list, a.String())
	}
	return strings.Join(list, ", ")
}

// answers is the answers by status, the most frequent first.
func answers(f attack.Finding) string {
	statuses := slices.SortedFunc(maps.Keys(f.Statuses), func(a, b int) int {
		return cmp.Or(cmp.Compare(f.Statuses[b], f.Statuses[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, status := range statuses {
		name := fmt.Sprint(status)
		if status == 0 {
			name = "none"
		}
		list = append(list, fmt.Sprintf("%d×%s", f.Statuses[status], name))
	}
	return strings.Join(list, " ")
}
