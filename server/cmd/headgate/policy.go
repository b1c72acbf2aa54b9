package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/store"
)

func newPolicy() *cobra.Command {
	return group("policy", "Read and change the rules in the database",
		newPolicySet(), newPolicyGet(), newPolicyList(), newPolicyDelete(),
		newPolicyLint(), newPolicyImport(), newPolicyExport())
}

const endpointHelp = `ENDPOINT is a template such as 'GET /v1/items/{id}', or one of the reserved names:
"default" (every endpoint without a rule of its own), "UNKNOWN" (requests that
match no endpoint, and the last resort of the others) and "*" (all endpoints
together, in addition to their own rules).`

// ruleFlags name a rule, besides its endpoint.
type ruleFlags struct{ project, tier, subject string }

func (f *ruleFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.project, "project", "", "the rule of this project alone")
	cmd.Flags().StringVar(&f.tier, "tier", "", "the rule of the projects in this tier")
	cmd.Flags().StringVar(&f.subject, "subject", "principal", "whose requests share a bucket: principal, ip, principal_ip, project, region, endpoint or identifier")
}

func (f *ruleFlags) rule(endpoint string) (policy.Rule, error) {
	rule := policy.Rule{Endpoint: endpoint, Project: f.project, Tier: f.tier}
	if err := rule.Subject.UnmarshalText([]byte(f.subject)); err != nil {
		return rule, usageError{err}
	}
	return rule, nil
}

func newPolicySet() *cobra.Command {
	var from configFlags
	var named ruleFlags
	var per, expires, mode, loss, name, algorithm string
	var burst int64
	cmd := &cobra.Command{
		Use:   "set ENDPOINT LIMIT",
		Short: "Add a rule, or replace the one in its place",
		Long: `Add a rule, or replace the one with the same endpoint, project, tier and subject.
LIMIT is how many requests (tokens) it gives per second, or --per.

` + endpointHelp + `

Give --openapi, --routes or --config to have the endpoint checked against the
documents. A running gateway acts on the change within a second.`,
		Example: `  headgate policy set 'GET /v1/customers/{customer}' 5 --burst 10
  headgate policy set default 1000 --per 60s --project acme
  headgate policy set 'POST /v1/login' 10 --per 1m --subject ip --mode shadow`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rule, err := named.rule(args[0])
			if err != nil {
				return err
			}
			err = errors.Join(
				setLimit(&rule, args[1]),
				setPer(&rule, per),
				setExpires(&rule, expires, time.Now()),
				rule.Algorithm.UnmarshalText([]byte(algorithm)),
				rule.Mode.UnmarshalText([]byte(mode)),
				rule.OnStoreLoss.UnmarshalText([]byte(loss)),
				setBurst(&rule, burst, cmd.Flags().Changed("burst")),
			)
			if err != nil {
				return usageError{err}
			}
			rule.Name = name
			return changeRules(cmd, &from, func(ctx context.Context, db *store.Store, o policy.CompileOptions) error {
				before, missing := db.Get(ctx, store.KeyOf(rule))
				if err := rules.Set(ctx, db, rule, o); err != nil {
					return err
				}
				if missing == nil && before.Mode == policy.Enforce && rule.Mode == policy.Shadow {
					fmt.Fprintf(cmd.ErrOrStderr(), "this was an enforced rule: from now on only less specific rules limit %s\n", before.Endpoint)
				}
				rule.Endpoint = store.KeyOf(rule).Endpoint
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "set %s\n", sentence(rule))
				return err
			})
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes")
	named.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&per, "per", "1s", "time over which LIMIT is given, in whole seconds")
	flags.Int64Var(&burst, "burst", 0, "most requests at once (default: as many as LIMIT)")
	flags.StringVar(&algorithm, "algorithm", "token_bucket", "how the limit is counted: token_bucket, leaky_bucket (holds requests back until their turn), fixed_window, sliding_window or sliding_log")
	flags.StringVar(&mode, "mode", "enforce", "enforce, or shadow: count what would be denied and deny nothing")
	flags.StringVar(&expires, "expires", "", "when the rule ends: in 2h, or at 2027-01-31T12:00:00Z (default: never)")
	flags.StringVar(&loss, "on-store-loss", "closed", "while the buckets cannot answer: closed or share (deny), or open (allow)")
	flags.StringVar(&name, "name", "", "name that clients see (default: made of endpoint and subject)")
	cmd.SetFlagErrorFunc(negativeLimit(cmd.FlagErrorFunc()))
	return cmd
}

// shorthand is how the flag parser complains about an argument like -1.
var shorthand = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.]\S*)$`)

// negativeLimit says what is wrong with a negative LIMIT, which the flag
// parser takes for a flag.
func negativeLimit(otherwise func(*cobra.Command, error) error) func(*cobra.Command, error) error {
	return func(cmd *cobra.Command, err error) error {
		if match := shorthand.FindStringSubmatch(err.Error()); match != nil {
			return usageError{wrongLimit(match[1])}
		}
		return otherwise(cmd, err)
	}
}

func wrongLimit(value string) error {
	return fmt.Errorf("LIMIT is %q, want a whole number, 1 to 9223372036854775807", value)
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
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		rule.Expires = now.Add(d).UTC().Truncate(time.Second)
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || !at.After(now) {
		return fmt.Errorf("--expires is %q, want a time to come such as 2h or 2027-01-31T12:00:00Z", text)
	}
	rule.Expires = at.UTC()
	return nil
}

// sentence describes a rule in a line.
func sentence(r policy.Rule) string {
	text := r.Endpoint + ": " + r.Rate()
	if r.Burst > 0 {
		text += fmt.Sprintf(", burst %d", r.Burst)
	}
	if r.Algorithm != policy.TokenBucket {
		text += ", as a " + r.Algorithm.String()
	}
	text += " for each " + r.Subject.String()
	if r.Project != "" {
		text += " of project " + r.Project
	}
	if r.Tier != "" {
		text += " in tier " + r.Tier
	}
	if r.Mode == policy.Shadow {
		text += ", in shadow"
	}
	if !r.Expires.IsZero() {
		text += ", until " + r.Expires.Format(time.RFC3339)
	}
	return text
}

// opener opens the database that a configuration names.
type opener func(context.Context, config.Config) (*store.Store, error)

func forWriting(ctx context.Context, c config.Config) (*store.Store, error) {
	return daemon.OpenStore(ctx, c.DB, c.LastGood)
}

func forReading(ctx context.Context, c config.Config) (*store.Store, error) {
	return store.OpenReadOnly(ctx, c.DB)
}

// changeRules opens the database and the documents that were named.
func changeRules(cmd *cobra.Command, from *configFlags, do func(context.Context, *store.Store, policy.CompileOptions) error) error {
	return withRules(cmd, from, forWriting, do)
}

// readRules is changeRules for those who only look: it makes no database
// where there is none.
func readRules(cmd *cobra.Command, from *configFlags, do func(context.Context, *store.Store, policy.CompileOptions) error) error {
	return withRules(cmd, from, forReading, do)
}

func withRules(cmd *cobra.Command, from *configFlags, open opener, do func(context.Context, *store.Store, policy.CompileOptions) error) error {
	c, err := from.read(cmd)
	if err != nil {
		return err
	}
	o, err := compileOptions(c)
	if err != nil {
		return err
	}
	c.FillPaths()
	db, err := open(cmd.Context(), c)
	if err != nil {
		return err
	}
	return errors.Join(do(cmd.Context(), db, o), db.Close())
}

func compileOptions(c config.Config) (policy.CompileOptions, error) {
	o := policy.CompileOptions{BurstPercent: c.BurstPercent, Unseen: daemon.Unseen}
	if len(c.OpenAPI)+len(c.Routes) == 0 {
		return o, nil
	}
	registry, err := daemon.Endpoints(c)
	if err != nil {
		return o, err
	}
	o.Endpoints, o.Costs = registry.Table, registry.Costs
	return o, nil
}

func newPolicyGet() *cobra.Command {
	var from configFlags
	var named ruleFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get ENDPOINT", Short: "Show one rule", Long: "Show one rule.\n\n" + endpointHelp,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := named.rule(args[0])
			if err != nil {
				return err
			}
			return readRules(cmd, &from, func(ctx context.Context, db *store.Store, _ policy.CompileOptions) error {
				rule, err := db.Get(ctx, store.KeyOf(wanted))
				if err != nil {
					return sayNotFound(err)
				}
				return writeRules(cmd.OutOrStdout(), []policy.Rule{rule}, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db")
	named.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// sayNotFound adds the remedy to an error about a rule that is not there.
func sayNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w; `headgate policy list` shows those there are", err)
	}
	return err
}

func newPolicyList() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the rules", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return readRules(cmd, &from, func(ctx context.Context, db *store.Store, _ policy.CompileOptions) error {
				doc, _, err := db.Load(ctx)
				if err != nil {
					return err
				}
				return writeRules(cmd.OutOrStdout(), doc.Rules, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeRules(w io.Writer, list []policy.Rule, asJSON bool) error {
	if asJSON {
		return writeJSON(w, file.From(policy.Document{Rules: list}).Rules)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENDPOINT\tPROJECT\tTIER\tSUBJECT\tLIMIT\tBURST\tMODE\tEXPIRES")
	for _, r := range list {
		burst := "-"
		if r.Burst > 0 {
			burst = strconv.FormatInt(r.Burst, 10)
		}
		expires := "-"
		if !r.Expires.IsZero() {
			expires = r.Expires.Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Endpoint, dash(r.Project), dash(r.Tier),
			r.Subject, r.Rate(), burst, r.Mode, expires)
	}
	return table.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newPolicyDelete() *cobra.Command {
	var from configFlags
	var named ruleFlags
	cmd := &cobra.Command{
		Use: "delete ENDPOINT", Short: "Delete one rule", Long: "Delete one rule.\n\n" + endpointHelp,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rule, err := named.rule(args[0])
			if err != nil {
				return err
			}
			return changeRules(cmd, &from, func(ctx context.Context, db *store.Store, _ policy.CompileOptions) error {
				which := store.KeyOf(rule)
				if err := db.Delete(ctx, which); err != nil {
					return sayNotFound(err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "deleted the %s\n", which)
				if left, err := db.List(ctx); err == nil && len(left) == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "that was the last rule: a running gateway takes an empty table for a fault and keeps the rules it has until it is restarted")
				}
				return nil
			})
		},
	}
	from.addFlags(cmd, "db")
	named.addFlags(cmd)
	return cmd
}

// errLint is the exit of a lint that found errors, which it has printed.
var errLint = errors.New("the rules have errors")

func newPolicyLint() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint [FILE]",
		Short: "Check the rules of the database or of a file",
		Long: `Check the rules of the database, or of a policy file, as the gateway does when it
starts. With --openapi, --routes or --config the endpoints and costs are checked
too. The exit status is 1 if there are errors, 0 if there are at most warnings.`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			o, err := compileOptions(c)
			if err != nil {
				return err
			}
			o.Now = time.Now()
			doc, err := document(cmd.Context(), c, args)
			if unread := problemsIn(err); unread != nil {
				return report(cmd.OutOrStdout(), doc, unread, asJSON)
			}
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), doc, policy.Lint(doc, o), asJSON)
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// document reads the rules of a file if one is named, else the database's.
func document(ctx context.Context, c config.Config, args []string) (policy.Document, error) {
	if len(args) == 1 {
		return readPolicies(args[0])
	}
	c.FillPaths()
	db, err := store.OpenReadOnly(ctx, c.DB)
	if err != nil {
		return policy.Document{}, err
	}
	doc, _, err := db.Load(ctx)
	return doc, errors.Join(err, db.Close())
}

// problemsIn returns the problems that err, from reading rules, is made of;
// nil when it is about something else.
func problemsIn(err error) (found policy.Problems) {
	if one := (policy.Problem{}); errors.As(err, &one) {
		found = policy.Problems{one}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		found = nil
		for _, e := range joined.Unwrap() {
			found = append(found, problemsIn(e)...)
		}
	}
	return found
}

// finding is a problem as --json prints it.
type finding struct {
	Severity policy.Severity `json:"severity"`
	Code     string          `json:"code"`
	Where    string          `json:"where,omitempty"`
	Field    string          `json:"field"`
	Value    string          `json:"value"`
	Want     string          `json:"want"`
}

func report(w io.Writer, doc policy.Document, problems policy.Problems, asJSON bool) error {
	if asJSON {
		findings := make([]finding, len(problems))
		for i, p := range problems {
			findings[i] = finding{p.Severity, p.Code, p.Where, p.Field, p.Value, p.Want}
		}
		if err := writeJSON(w, findings); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintf(w, "%s: %s [%s]\n", p.Severity, p.Error(), p.Code)
		}
		if doc.Rules != nil { // else it could not be read
			fmt.Fprintf(w, "%d rules, ", len(doc.Rules))
		}
		fmt.Fprintf(w, "%d errors, %d warnings\n", len(problems.Errors()), len(problems.Warnings()))
	}
	if len(problems.Errors()) > 0 {
		return errLint
	}
	return nil
}

func newPolicyImport() *cobra.Command {
	var from configFlags
	var replace bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read rules from a policy file, all or none",
		Long: `Read rules from a policy file, JSON or YAML, all or none. Rules of the database
with the same endpoint, project, tier and subject are replaced, the others stay;
with --replace the file's rules are the only ones. Nothing is written if any rule
is wrong. "headgate policy export" writes such a file.`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := readPolicies(args[0])
			if err != nil {
				return err
			}
			return changeRules(cmd, &from, func(ctx context.Context, db *store.Store, o policy.CompileOptions) error {
				if err := policy.Lint(doc, o).Err(); err != nil {
					return err
				}
				if err := db.Import(ctx, doc, replace); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "imported %d rules from %s\n", len(doc.Rules), args[0])
				return err
			})
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes")
	cmd.Flags().BoolVar(&replace, "replace", false, "delete the rules that the file does not have")
	return cmd
}

func newPolicyExport() *cobra.Command {
	var from configFlags
	cmd := &cobra.Command{
		Use: "export", Short: "Write all rules as a policy file to standard output", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return readRules(cmd, &from, func(ctx context.Context, db *store.Store, _ policy.CompileOptions) error {
				doc, _, err := db.Load(ctx)
				if err != nil {
					return err
				}
				return file.Encode(cmd.OutOrStdout(), doc)
			})
		},
	}
	from.addFlags(cmd, "db")
	return cmd
}

// readPolicies reads a policy file, JSON or YAML.
func readPolicies(path string) (policy.Document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return policy.Document{}, err
	}
	if text, err = config.ToJSON(text); err != nil {
		return policy.Document{}, fmt.Errorf("%s: %w", path, err)
	}
	return file.Decode(text, path)
}
