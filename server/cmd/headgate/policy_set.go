package main

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func newPolicySet() *cobra.Command {
	var from configFlags
	var named ruleFlags
	var per, expires, mode, scope, loss, name, algorithm, countWhen, penalty, refusal, priority, why string
	var out printer
	var burst, percent int64
	cmd := &cobra.Command{
		Use:   "set ENDPOINT LIMIT|allow|block",
		Short: "Add a rule, or replace the one in its place",
		Long: `Add a rule, or replace the one with the same endpoint, project, tier and subject.
LIMIT is how many requests (tokens) it gives: 20/s, 100/m, 2/h, 5000/d, or a number
for --per, which is a second. "allow" gives no limit: what the rule is for passes,
whatever other rules say; "block" refuses it. With --expires
the rule is a temporary one: it stands beside the lasting rule, takes its place
until then, and leaves it as it is.

` + endpointHelp + `

Give --openapi, --routes or --config to have the endpoint checked against the
documents. A running gateway acts on the change within a second.`,
		Example: `  headgate policy set 'GET /v1/customers/{customer}' 5 --burst 10
  headgate policy set default 1000/m --project acme
  headgate policy set 'POST /v1/login' 10 --per 1m --subject ip --mode shadow
  headgate policy set 'GET /v1/orders/{order}' 5/m --count-when 404 --penalty '10 in 1m for 15m'
  headgate policy set '*' 20 --subject in_flight:principal
  headgate policy set 'GET /health' allow
  headgate policy set '*' block --subject ip:192.0.2.0/24 --expires 1h`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rule, wrong := named.rule(args[0])
			err := errors.Join(
				wrong,
				rule.Mode.UnmarshalText([]byte(mode)),
				setRate(&rule, args[1], per, cmd.Flags().Changed),
				setExpires(&rule, expires, time.Now()),
				rule.Algorithm.UnmarshalText([]byte(algorithm)),
				rule.Scope.UnmarshalText([]byte(scope)),
				rule.OnStoreLoss.UnmarshalText([]byte(loss)),
				setBurst(&rule, burst, cmd.Flags().Changed("burst")),
				setPercent(&rule, percent),
				setText(&rule.CountWhen, countWhen),
				setText(&rule.Penalty, penalty),
				setText(&rule.Refusal, refusal),
				setText(&rule.Priority, priority),
			)
			if err != nil {
				return usageError{err}
			}
			rule.Algorithm = policy.Whom{Subject: rule.Subject}.Algorithm(rule.Algorithm)
			if err := checkTime(rule, args[1], cmd.Flags().Changed("per")); err != nil {
				return usageError{err}
			}
			rule.Name = name
			alone := func(o policy.CompileOptions) error { return rules.Check(policy.Document{}, rule, o) }
			return changeRules(cmd, &from, alone, func(ctx context.Context, db editor, o policy.CompileOptions) error {
				before, missing := db.Get(ctx, record.KeyOf(rule))
				if _, err := rules.Set(ctx, db, author(why), rule, o); err != nil {
					return err
				}
				for _, p := range policy.Lint(policy.Document{Rules: []policy.Rule{rule}}, o) {
					if slices.Contains(ofOneRule, p.Code) {
						fmt.Fprintln(cmd.ErrOrStderr(), plain(p.Error()))
					}
				}
				if missing == nil && before.Mode == policy.Enforce && rule.Mode == policy.Shadow {
					fmt.Fprintf(cmd.ErrOrStderr(),
						"this was an enforced rule: from now on only less specific rules limit %s\n", before.Endpoint)
				}
				rule.Endpoint = record.KeyOf(rule).Endpoint
				if err := out.say(cmd, file.From(policy.Document{Rules: []policy.Rule{rule}}).Rules[0], "set %s",
					sentence(rule)); err != nil {
					return err
				}
				if rule.Expires.IsZero() {
					return sayTemporary(ctx, cmd.ErrOrStderr(), db, rule, time.Now())
				}
				return sayLasting(ctx, cmd.ErrOrStderr(), db, rule)
			})
		},
	}
	from.addFlags(cmd, "db", "server", "openapi", "routes")
	named.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&per, "per", "1s", "time over which LIMIT is given, in whole seconds; of requests under way, how "+
		"long the place of one is kept whose process has died, 5s to 1h")
	flags.Int64Var(&percent, "enforce-percent", 100,
		"for how many of a hundred subjects the rule denies; for the others it is in shadow")
	flags.Int64Var(&burst, "burst", 0, "most requests at once (default: as many as LIMIT)")
	flags.StringVar(&algorithm, "algorithm", "token_bucket", "how the limit is counted: token_bucket, leaky_bucket "+
		"(holds requests back until their turn), fixed_window, sliding_window, sliding_log, calendar:ZONE for "+
		"the day (--per 24h), week (168h) or month (720h) of a time zone, or concurrency (which a --subject behind "+
		"in_flight: is, with LIMIT requests under way at once)")
	flags.StringVar(&mode, "mode", "enforce", "enforce, or shadow: count what would be denied and deny nothing")
	flags.StringVar(&expires, "expires", "",
		"make a temporary rule that ends: in 2h or 30d, or at 2027-01-31T12:00:00Z (default: a lasting one)")
	flags.StringVar(&scope, "scope", "local", "how far the limit reaches over replicas: local (each has all of "+
		"it), split (each has its share), strict, lease or sync (all have one, in a shared store), gossip (each "+
		"has one, and they tell each other what they admitted)")
	flags.StringVar(&loss, "on-store-loss", "closed",
		"while the shared store cannot answer: closed (deny), share (go on with a share of the limit) or open (allow)")
	flags.StringVar(&countWhen, "count-when", "",
		"which answers of the API count, such as 401,403 or 4xx (default: all requests)")
	flags.StringVar(&penalty, "penalty", "", "block callers that are denied again and again: \"10 in 1m for 15m\", "+
		"\"… up to 6h\" as it doubles, \"… with addresses\" if not only those with a credential")
	flags.StringVar(&refusal, "refusal", "", "answer denied requests with \"503\", \"without fields\" that tell of "+
		"the limit, \"as text/plain: BODY\", or all three in this order (default: 429 with problem details)")
	flags.StringVar(&priority, "priority", "", "of which class requests are, critical, high, normal or low; or how "+
		"classes share the limit, with what each is guaranteed in percent: high:30,normal:20,low:10 (default: neither)")
	addWhy(cmd, &why)
	out.addFlags(cmd)
	flags.StringVar(&name, "name", "", "name that clients see (default: made of endpoint and subject)")
	takesNumber(cmd, wrongLimit)
	return cmd
}

// ofOneRule are the findings of lint that no other rule and no configuration could change: what a rule says at its
// place means nothing, or everything.
var ofOneRule = []string{"every_request", "unreachable", "unused_store_loss", "no_effect"}

// sayLasting tells what a temporary rule stands in for.
func sayLasting(ctx context.Context, w io.Writer, db editor, temporary policy.Rule) error {
	key := record.KeyOf(temporary)
	key.Temporary = false
	lasting, err := db.Get(ctx, key)
	tried := temporary.Mode == policy.Shadow || temporary.EnforcePercent != 0
	switch {
	case errors.Is(err, record.ErrNotFound):
		_, err = fmt.Fprintln(w, "it is temporary, and there is no lasting rule in its place afterwards")
	case err == nil && tried:
		_, err = fmt.Fprintf(w, "it is temporary, and tried beside the lasting rule, which stays in force: %s\n",
			sentence(lasting))
	case err == nil:
		_, err = fmt.Fprintf(w, "it is temporary: afterwards the lasting rule is in force again, %s\n",
			sentence(lasting))
	}
	return err
}

// sayTemporary tells of the temporary rule that stands in for a lasting one, for
// as long as the lasting one changes nothing.
func sayTemporary(ctx context.Context, w io.Writer, db editor, lasting policy.Rule, now time.Time) error {
	key := record.KeyOf(lasting)
	key.Temporary = true
	temporary, err := db.Get(ctx, key)
	switch {
	case errors.Is(err, record.ErrNotFound), err == nil && !rules.StandsIn(temporary, now):
		return nil
	case err == nil:
		_, err = fmt.Fprintf(w, "it changes nothing yet: a temporary rule stands in for it, %s\n", sentence(temporary))
	}
	return err
}

// shorthand is how the flag parser complains about an argument like -1.
var shorthand = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.]\S*)$`)

// takesNumber has a command say what is wrong with an argument below zero, which
// the flag parser takes for a flag. Other faults of flags are its parent's to
// tell, which it has when it runs.
func takesNumber(cmd *cobra.Command, wrong func(value string) error) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if match := shorthand.FindStringSubmatch(err.Error()); match != nil {
			return usageError{wrong(match[1])}
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
}

func wrongLimit(value string) error {
	return fmt.Errorf("LIMIT is %q, want a whole number, 1 to 9223372036854775807, or one with a time, such as "+
		"20/s or 100/m; or allow for no limit, or block; so many at once are a number with "+
		"--subject in_flight:principal", value)
}

// setRate reads a limit with its time, 20/s, or one whose time is that of --per, or what stands in its place.
func setRate(rule *policy.Rule, text, per string, given func(flag string) bool) (err error) {
	if text == policy.Allow.String() || text == policy.Block.String() {
		for _, flag := range []string{"per", "mode"} {
			if given(flag) {
				err = errors.Join(err, fmt.Errorf("--%s is given, want none: %q gives no limit", flag, text))
			}
		}
		return errors.Join(err, rule.Mode.UnmarshalText([]byte(text)))
	}
	if !rule.Mode.Limits() {
		return fmt.Errorf("--mode is %v, want %q in place of LIMIT, and no such flag", rule.Mode, rule.Mode)
	}
	if !strings.Contains(text, "/") {
		return errors.Join(setLimit(rule, text), setPer(rule, per))
	}
	if rule.Limit, rule.Per, err = policy.ParseLimit(text); err != nil {
		return wrongLimit(text)
	}
	if given("per") {
		return fmt.Errorf("LIMIT is %q and --per is given, want the time in one place", text)
	}
	return nil
}

// checkTime refuses a time for requests under way, which are so many at once. The second that --per is by itself
// stands for none.
func checkTime(rule policy.Rule, limit string, givenPer bool) error {
	switch want := rule.WantUntimed(); {
	case want == "":
		return nil
	case strings.Contains(limit, "/"):
		return fmt.Errorf("LIMIT is %q, want %s", limit, want)
	case givenPer && rule.Per <= time.Second:
		return fmt.Errorf("--per is %q, want 5s to 1h, how long the place of a request is kept whose process has "+
			"died, or no such flag for 30s", rule.Per)
	}
	return nil
}

func setLimit(rule *policy.Rule, text string) error {
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit < 1 {
		return wrongLimit(text)
	}
	rule.Limit = limit
	return nil
}

func setPer(rule *policy.Rule, text string) error {
	var per file.Seconds
	if err := per.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("--%w", err)
	}
	rule.Per = time.Duration(per)
	return nil
}

// setPercent leaves out 100, which is what a rule means that says nothing.
func setPercent(r *policy.Rule, percent int64) error {
	if percent < 1 || percent > 100 {
		return fmt.Errorf("--enforce-percent is %d, want 1 to 100", percent)
	}
	if percent < 100 {
		r.EnforcePercent = percent
	}
	return nil
}

// setText reads what a flag says, if it says anything.
func setText(into encoding.TextUnmarshaler, text string) error {
	if text == "" {
		return nil
	}
	return into.UnmarshalText([]byte(text))
}

func setBurst(rule *policy.Rule, burst int64, given bool) error {
	if given && burst < 1 {
		return fmt.Errorf("--burst is %d, want 1 or more", burst)
	}
	rule.Burst = burst
	return nil
}

func setExpires(rule *policy.Rule, text string, now time.Time) error {
	if text == "" {
		return nil
	}
	if d, err := policy.ParseDuration(text); err == nil && d > 0 {
		rule.Expires = now.Add(d).UTC().Truncate(time.Second)
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || !at.After(now) {
		return fmt.Errorf("--expires is %q, want a time in the future such as 2h, 30d or 2027-01-31T12:00:00Z", text)
	}
	rule.Expires = at.UTC()
	return nil
}

// sentence describes a rule in a line, which may hold what others wrote: it says nothing to the terminal.
func sentence(r policy.Rule) string { return plain(described(r)) }

func described(r policy.Rule) string {
	text := r.Endpoint + ": "
	if !r.Mode.Limits() {
		return text + settled(r)
	}
	text += r.Rate()
	if r.Burst > 0 {
		text += fmt.Sprintf(", burst %d", r.Burst)
	}
	if r.Algorithm != policy.TokenBucket && r.Algorithm != policy.Concurrency {
		text += ", as a " + r.Algorithm.String()
	}
	text += " for each " + r.Whose() + ofTenant(r)
	if r.Scope != policy.Local {
		text += ", scope " + r.Scope.String()
	}
	if r.Scope.Shared() && r.OnStoreLoss != policy.LossClosed {
		text += ", " + r.OnStoreLoss.String() + " while the store is lost"
	}
	if r.CountWhen != "" {
		text += ", counting answers of " + string(r.CountWhen)
	}
	if r.Penalty != "" {
		text += ", with a penalty of " + string(r.Penalty)
	}
	if r.Refusal != "" {
		text += ", answering " + clip.To(string(r.Refusal), 60)
	}
	if terms, err := r.Priority.Terms(); err == nil && terms != nil && terms.Shares != nil {
		text += ", shared by classes (" + string(r.Priority) + ")"
	} else if r.Priority != "" {
		text += ", of class " + string(r.Priority)
	}
	if r.Mode == policy.Shadow {
		text += ", in shadow"
	} else if r.EnforcePercent != 0 {
		text += fmt.Sprintf(", enforced for %d %% of them", r.EnforcePercent)
	}
	return text + untilWhen(r)
}

// settled is the rest of sentence for a rule without a limit.
func settled(r policy.Rule) string {
	text := "no limit"
	if r.Mode == policy.Block {
		text = "blocked"
	}
	switch {
	case r.Only != "":
		text += " for " + r.Only + ofTenant(r)
	case r.Project != "" || r.Tier != "":
		text += " for callers" + ofTenant(r)
	default:
		text += " for everybody"
	}
	return text + untilWhen(r)
}

func ofTenant(r policy.Rule) string {
	switch {
	case r.Project != "":
		return " of project " + r.Project
	case r.Tier != "":
		return " in tier " + r.Tier
	}
	return ""
}

func untilWhen(r policy.Rule) string {
	if r.Expires.IsZero() {
		return ""
	}
	return ", until " + r.Expires.Format(time.RFC3339)
}
