package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

func newProject() *cobra.Command {
	return group("project", "Put projects into tiers", newProjectList(), newProjectSet(), newProjectDelete())
}

func newProjectList() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the projects that are in a tier", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return readRules(cmd, &from, func(ctx context.Context, db editor, _ policy.CompileOptions) error {
				doc, _, err := db.Load(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					if doc.Projects == nil {
						doc.Projects = map[string]string{}
					}
					return writeJSON(cmd.OutOrStdout(), doc.Projects)
				}
				table := newTable(cmd.OutOrStdout(), "PROJECT\tTIER")
				for _, project := range slices.Sorted(maps.Keys(doc.Projects)) {
					table.row(project, doc.Projects[project])
				}
				return table.Flush()
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: an object of projects and their tiers")
	return cmd
}

func newProjectSet() *cobra.Command {
	var from configFlags
	var tier, why string
	var out printer
	cmd := &cobra.Command{
		Use:   "set PROJECT --tier TIER",
		Short: "Put a project into a tier",
		Long: `Put a project into a tier: from now on the rules of that tier are its own, where it
has no rule itself. A running gateway acts on it within a second.`,
		Example: `  headgate project set acme --tier gold --why 'contract of 3 May'`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tier == "" {
				return usagef("--tier is needed; `headgate project delete %s` takes the project out of any", args[0])
			}
			return withRules(cmd, &from, unchecked, forWriting,
				func(ctx context.Context, db editor, _ policy.CompileOptions) error {
					if err := db.SetTier(ctx, author(why), args[0], tier); err != nil {
						return err
					}
					return out.say(cmd, projectTier{args[0], tier}, "project %s is in tier %s", args[0], tier)
				})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().StringVar(&tier, "tier", "", "the tier (needed)")
	addWhy(cmd, &why)
	out.addFlags(cmd)
	return cmd
}

// projectTier is where a project is after a change, in JSON.
type projectTier struct {
	Project string `json:"project"`
	Tier    string `json:"tier"` // "": none
}

func newProjectDelete() *cobra.Command {
	var from configFlags
	var why string
	var out printer
	cmd := &cobra.Command{
		Use:   "delete PROJECT",
		Short: "Take a project out of its tier",
		Long:  "Take a project out of its tier. Rules of its own stay.",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRules(cmd, &from, unchecked, forMending,
				func(ctx context.Context, db editor, _ policy.CompileOptions) error {
					doc, _, err := db.Load(ctx)
					if err != nil {
						return err
					}
					if doc.Projects[args[0]] == "" {
						return fmt.Errorf("project %q: %w; `headgate project list` shows those in a tier", args[0],
							record.ErrNotFound)
					}
					if err := db.SetTier(ctx, author(why), args[0], ""); err != nil {
						return err
					}
					return out.say(cmd, projectTier{Project: args[0]}, "project %s is in no tier", args[0])
				})
		},
	}
	from.addFlags(cmd, "db", "server")
	addWhy(cmd, &why)
	out.addFlags(cmd)
	return cmd
}
