package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/store"
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
			r.Subject, r.Rate(), burst, r.Enforcement(), expires)
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
			return withRules(cmd, &from, unchecked, forMending, func(ctx context.Context, db *store.Store, _ policy.CompileOptions) error {
				which := store.KeyOf(rule)
				if err := db.Delete(ctx, author(), which); err != nil {
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
