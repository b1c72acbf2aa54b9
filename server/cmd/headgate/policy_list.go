package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

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
			return readRules(cmd, &from, func(ctx context.Context, db editor, _ policy.CompileOptions) error {
				rule, err := db.Get(ctx, named.key(wanted))
				if err != nil {
					return sayNotFound(err)
				}
				return writeRules(cmd.OutOrStdout(), []policy.Rule{rule}, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	named.addFlags(cmd)
	named.addTemporary(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// sayNotFound adds the remedy to an error about a rule that is not there.
func sayNotFound(err error) error {
	if errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("%w; `headgate policy list` shows those there are", err)
	}
	return err
}

func newPolicyList() *cobra.Command {
	var from configFlags
	var project string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the rules",
		Long: `List the rules. With --project, those that may apply to one project: its own, those
of its tier, and those for all. Of the rules for one endpoint and subject, the
project's own applies, else its tier's, else that for all.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return readRules(cmd, &from, func(ctx context.Context, db editor, _ policy.CompileOptions) error {
				doc, _, err := db.Load(ctx)
				if err != nil {
					return err
				}
				if project != "" {
					doc.Rules = rules.For(doc, project)
					if tier := doc.Projects[project]; tier != "" {
						fmt.Fprintf(cmd.ErrOrStderr(), "project %s is in tier %s\n", plain(project), plain(tier))
					}
				}
				return writeRules(cmd.OutOrStdout(), doc.Rules, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().StringVar(&project, "project", "", "only the rules that may apply to this project")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// column is a column of the list of rules.
type column struct {
	title string
	value func(policy.Rule) string
}

// seldom are the columns of rules that are shown if any rule has something in
// them.
var seldom = []column{
	{"ALGORITHM", func(r policy.Rule) string {
		if r.Algorithm == policy.TokenBucket {
			return ""
		}
		return r.Algorithm.String()
	}},
	{"SCOPE", func(r policy.Rule) string {
		if r.Scope == policy.Local {
			return ""
		}
		return r.Scope.String()
	}},
	{"STORE LOST", func(r policy.Rule) string {
		if !r.Scope.Shared() || r.OnStoreLoss == policy.LossClosed {
			return ""
		}
		return r.OnStoreLoss.String()
	}},
	{"COUNTS", func(r policy.Rule) string { return string(r.CountWhen) }},
	{"PENALTY", func(r policy.Rule) string { return string(r.Penalty) }},
	{"REFUSAL", func(r policy.Rule) string { return clip.To(string(r.Refusal), 40) }},
	{"PRIORITY", func(r policy.Rule) string { return string(r.Priority) }},
	{"NAME", func(r policy.Rule) string { return r.Name }},
}

func writeRules(w io.Writer, list []policy.Rule, asJSON bool) error {
	if asJSON {
		return writeJSON(w, file.From(policy.Document{Rules: list}).Rules)
	}
	title := "ENDPOINT\tPROJECT\tTIER\tSUBJECT\tLIMIT\tBURST\tMODE\tEXPIRES"
	more := slices.DeleteFunc(slices.Clone(seldom), func(c column) bool {
		return !slices.ContainsFunc(list, func(r policy.Rule) bool { return c.value(r) != "" })
	})
	for _, c := range more {
		title += "\t" + c.title
	}
	table, now := newTable(w, title), time.Now()
	for _, r := range list {
		burst := "-"
		if r.Burst > 0 {
			burst = strconv.FormatInt(r.Burst, 10)
		}
		expires := "-"
		if !r.Expires.IsZero() {
			expires = r.Expires.Format(time.RFC3339)
			if !r.Expires.After(now) {
				expires += ", over"
			}
		}
		cells := []any{r.Endpoint, dash(r.Project), dash(r.Tier), r.SubjectText(), r.Rate(), burst,
			r.Enforcement(), expires}
		for _, c := range more {
			cells = append(cells, dash(c.value(r)))
		}
		table.row(cells...)
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
	var why string
	var out printer
	cmd := &cobra.Command{
		Use: "delete ENDPOINT", Short: "Delete one rule", Long: "Delete one rule.\n\n" + endpointHelp,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rule, err := named.rule(args[0])
			if err != nil {
				return err
			}
			return withRules(cmd, &from, unchecked, forMending,
				func(ctx context.Context, db editor, _ policy.CompileOptions) error {
					which := named.key(rule)
					if err := db.Delete(ctx, author(why), which); err != nil {
						return sayNotFound(err)
					}
					if err := out.say(cmd, map[string]string{"deleted": which.String()}, "deleted the %s",
						which); err != nil {
						return err
					}
					if left, err := db.List(ctx); err == nil && len(left) == 0 {
						fmt.Fprintln(cmd.ErrOrStderr(), "that was the last rule: no request has a limit now")
					}
					return nil
				})
		},
	}
	from.addFlags(cmd, "db", "server")
	named.addFlags(cmd)
	named.addTemporary(cmd)
	addWhy(cmd, &why)
	out.addFlags(cmd)
	return cmd
}
