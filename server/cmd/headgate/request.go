package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func newRequest() *cobra.Command {
	return group("request", "Requests for a higher limit: file them, and decide on them",
		newRequestFile(), newRequestMine(), newRequestWithdraw(), newRequestList(), newRequestShow(),
		newRequestApprove(), newRequestDecline())
}

// desk is where requests are decided on: a database, or a gateway that has one.
type desk interface {
	Requests(ctx context.Context, q record.RequestQuery) ([]record.LimitRequest, error)
	Request(ctx context.Context, id string) (record.LimitRequest, error)
	Approve(ctx context.Context, id string, a rules.Approval) (r record.LimitRequest, findings []string, err error)
	Decline(ctx context.Context, id, actor, claimed, note string) (record.LimitRequest, error)
}

// ownDesk is a database, with what is known of the endpoints.
type ownDesk struct {
	*database.Store
	compile policy.CompileOptions
}

// Approve makes a rule of a request, unless the rules with it would not compile.
func (d ownDesk) Approve(ctx context.Context, id string, a rules.Approval) (record.LimitRequest, []string, error) {
	done, _, found, err := rules.Approve(ctx, d.Store, id, a, d.compile)
	var findings []string
	for _, f := range found {
		findings = append(findings, f.Error())
	}
	return done, findings, err
}

func withDesk(cmd *cobra.Command, from *configFlags, open opener, o policy.CompileOptions,
	do func(context.Context, desk) error) error {
	return through(cmd, &from.through, from, open, func(c *client.Client) desk { return c },
		func(s *database.Store) desk { return ownDesk{s, o} },
		func(d desk) error { return sayNoRequest(do(cmd.Context(), d)) })
}

// sayNoRequest adds the remedy to an error about a request that is not there.
func sayNoRequest(err error) error {
	if errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("%w; `headgate request list --state any` shows those there are", err)
	}
	return err
}

func newRequestList() *cobra.Command {
	var from configFlags
	var state, project string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List requests, newest first",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := record.RequestQuery{State: record.RequestState(state), Project: project, Most: limit}
			switch {
			case limit < 1 || limit > mostAudit:
				return usagef("--limit is %d, want 1 to %d", limit, mostAudit)
			case state == "any":
				q.State = ""
			case !slices.Contains(record.RequestStates, q.State):
				return usagef("--state is %q, want open, approved, declined, withdrawn, expired or any", state)
			}
			return withDesk(cmd, &from, forReading, policy.CompileOptions{}, func(ctx context.Context, at desk) error {
				found, err := at.Requests(ctx, q)
				if err != nil {
					return err
				}
				list := make([]admin.LimitRequest, len(found))
				for i := range found {
					list[i] = admin.LimitRequestOf(found[i])
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), list)
				}
				return writeRequests(cmd.OutOrStdout(), list)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().StringVar(&state, "state", "open", "open, approved, declined, withdrawn, expired or any")
	cmd.Flags().StringVar(&project, "project", "", "those of one project (default: all)")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many, the newest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newRequestShow() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one request and what became of it",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd, &from, forReading, policy.CompileOptions{}, func(ctx context.Context, at desk) error {
				found, err := at.Request(ctx, args[0])
				if err != nil {
					return err
				}
				r := admin.LimitRequestOf(found)
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), r)
				}
				return writeRequest(cmd.OutOrStdout(), &r)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newRequestApprove() *cobra.Command {
	var from configFlags
	var out printer
	var per, expires, note string
	var approval rules.Approval
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Make a temporary rule of a request",
		Long: `Make a temporary rule of an open request, for its project alone: as it was asked for,
or with other numbers or another end. When it ends, what held before holds again. The
request is closed and the rule is written together, or neither. A running gateway
acts on it within a second.

Give --openapi, --routes or --config to have the endpoint checked against the
documents. With --server the gateway checks it against its own.`,
		Example: `  headgate request approve r_0123456789abcdef0123
  headgate request approve r_0123456789abcdef0123 --limit 50 --per 1m --expires 48h --note 'half of it, for the launch'`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ends policy.Rule
			if err := setExpires(&ends, expires, time.Now()); err != nil {
				return usageError{err}
			}
			body := admin.RequestApproval{Limit: approval.Limit, Burst: approval.Burst, Until: ends.Expires, Note: note}
			if per != "" {
				if err := body.Per.UnmarshalText([]byte(per)); err != nil {
					return usagef("--%w", err)
				}
			}
			for _, f := range []struct {
				name  string
				value int64
			}{{"limit", approval.Limit}, {"burst", approval.Burst}} {
				if cmd.Flags().Changed(f.name) && f.value < 1 {
					return usagef("--%s is %d, want 1 or more", f.name, f.value)
				}
			}
			approval, err := body.Check()
			if err != nil {
				return usageError{err}
			}
			approval.Actor = author("").Actor
			o, err := from.endpointsForDatabase(cmd)
			if err != nil {
				return err
			}
			return withDesk(cmd, &from, forMending, o, func(ctx context.Context, at desk) error {
				done, findings, err := at.Approve(ctx, args[0], approval)
				if err != nil {
					return err
				}
				for _, f := range findings {
					fmt.Fprintln(cmd.ErrOrStderr(), "lint:", f)
				}
				g := done.Granted
				return out.say(cmd, admin.LimitRequestOf(done), "approved %s: project %s has %s until %s (version %d)",
					done.ID, plain(done.Project),
					sentence(policy.Rule{Endpoint: g.Endpoint, Subject: g.Subject, Limit: g.Limit, Per: g.Per,
						Burst: g.Burst}), g.Until.UTC().Format(time.RFC3339), done.Version)
			})
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes", "server")
	flags := cmd.Flags()
	flags.Int64Var(&approval.Limit, "limit", 0,
		"another limit than was asked for; the burst is then --burst, or as many as the limit")
	flags.StringVar(&per, "per", "", "another time over which the limit is given")
	flags.Int64Var(&approval.Burst, "burst", 0, "another burst")
	flags.StringVar(&expires, "expires", "", "another end: in 48h, or at 2027-01-31T12:00:00Z")
	flags.StringVar(&note, "note", "", "what to say to those who asked")
	out.addFlags(cmd)
	return cmd
}

func newRequestDecline() *cobra.Command {
	var from configFlags
	var body admin.RequestDecline
	var out printer
	cmd := &cobra.Command{
		Use:     "decline ID",
		Short:   "Close a request and say why",
		Example: `  headgate request decline r_0123456789abcdef0123 --note 'please page through the list instead'`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := body.Check(); err != nil {
				return usagef("--%w", err)
			}
			return withDesk(cmd, &from, forMending, policy.CompileOptions{}, func(ctx context.Context, at desk) error {
				done, err := at.Decline(ctx, args[0], author("").Actor, "", body.Note)
				if err != nil {
					return err
				}
				return out.say(cmd, admin.LimitRequestOf(done), "declined %s of project %s", done.ID,
					plain(done.Project))
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	out.addFlags(cmd)
	cmd.Flags().StringVar(&body.Note, "note", "", "what to say to those who asked (needed)")
	return cmd
}

// writeRequests leaves who filed and when to writeRequest: a line fits a
// terminal, as long as the reason is short.
func writeRequests(w io.Writer, list []admin.LimitRequest) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATE\tPROJECT\tLIMIT\tLASTING\tREASON")
	for i := range list {
		r := &list[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.State, plain(r.Project), plain(askedText(&r.Request)),
			lasting(&r.Request), plain(r.Reason))
	}
	return table.Flush()
}

// askedText is the limit that was asked for, in a line.
func askedText(r *developers.Request) string {
	rule := policy.Rule{
		Endpoint: r.Endpoint,
		Limit:    r.Limit,
		Per:      time.Duration(r.PerSeconds) * time.Second,
		Burst:    r.Burst,
	}
	_ = rule.Subject.UnmarshalText([]byte(r.Subject)) // it was written by us; else the default is shown
	return sentence(rule)
}

func lasting(r *developers.Request) string {
	if !r.Until.IsZero() {
		return "until " + r.Until.Format(time.RFC3339)
	}
	return span(float64(r.ForSeconds))
}

func writeRequest(w io.Writer, r *admin.LimitRequest) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, plain(text))
		}
	}
	line("request", r.ID)
	line("state", r.State)
	line("project", r.Project)
	line("filed", r.Filed.Format(time.RFC3339)+", "+r.By)
	line("name", r.Name)
	line("limit", askedText(&r.Request))
	line("lasting", lasting(&r.Request))
	line("reason", r.Reason)
	if !r.Decided.IsZero() {
		decided := r.Decided.Format(time.RFC3339)
		if r.DecidedBy != "" { // which callers are not told
			decided += ", " + r.DecidedBy
		}
		if r.DecidedName != "" {
			decided += " (" + r.DecidedName + ")"
		}
		line("decided", decided)
	}
	if g := r.Granted; g != nil {
		line("granted", sentence(policy.Rule{
			Endpoint: r.Endpoint,
			Limit:    g.Limit,
			Per:      time.Duration(g.PerSeconds) * time.Second,
			Burst:    g.Burst,
		})+", until "+g.Until.Format(time.RFC3339))
		if r.Version > 0 {
			line("version", fmt.Sprint(r.Version))
		}
	}
	line("note", r.Note)
	return table.Flush()
}

// perText is a duration flag as a filing has it.
func perText(text string) (string, error) {
	var per file.Seconds
	if err := per.UnmarshalText([]byte(text)); err != nil {
		return "", usagef("--%w", err)
	}
	return time.Duration(per).String(), nil
}
