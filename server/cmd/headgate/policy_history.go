package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// mostVersions is the most versions that are shown at once.
const mostVersions = 1_000_000

func newPolicyHistory() *cobra.Command {
	var from configFlags
	var limit int
	var forget int64
	var asJSON bool
	var sure confirmation
	var why string
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List who changed the rules, when and why",
		Long: `List the versions of the rules, newest first: one for every change of rules or of
the tiers of projects, whoever made it. WHO is the user of the command, the token
of the admin API, or "sql" for somebody's shell, with the user of the database
where it has users. Changes of a shell get their number when a gateway or a
command that writes sees them; until then they are "pending".

What was done to buckets is in ` + "`headgate audit`" + `, and every call of the admin
listener in ` + "`headgate admin calls`" + `.

"headgate policy diff VERSION" shows what a version changed. Lines are never
changed or deleted. With --forget-before, what the versions before one changed is
given up, to have the room back: they cannot be shown or brought back any more.`,
		Example: `  headgate policy history --limit 5
  headgate policy history --forget-before 1000 --yes`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case limit < 1 || limit > mostVersions:
				return usagef("--limit is %d, want 1 to %d", limit, mostVersions)
			case forget < 0 || cmd.Flags().Changed("forget-before") && forget < 2:
				return usagef("--forget-before is %d, want a version, 2 or more", forget)
			case forget == 0 && why != "":
				return usagef("--why is for --forget-before, and looking at the history changes nothing")
			case forget > 0:
				return forgetHistory(cmd, &from, sure, why, forget)
			}
			return readRules(cmd, &from, func(ctx context.Context, db editor, _ policy.CompileOptions) error {
				return writeHistory(ctx, cmd.OutOrStdout(), db, limit, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many versions, the newest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().Int64Var(&forget, "forget-before", 0, "give up what the versions before this one changed")
	sure.addFlags(cmd)
	addWhy(cmd, &why)
	return cmd
}

func forgetHistory(cmd *cobra.Command, from *configFlags, sure confirmation, why string, version int64) error {
	if from.through.server != "" {
		return usagef("--forget-before is done in the database itself, want --db and not --server")
	}
	return withKeys(cmd, from, forMending, func(ctx context.Context, db *database.Store, _ config.Config) error {
		if err := sure.ask(cmd, fmt.Sprintf("What the versions before %d changed will be gone for ever. Go on?",
			version)); err != nil {
			return err
		}
		removed, err := db.Forget(ctx, author(why), version)
		if err != nil {
			return sayNoVersion(err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "gave up %d changes of the versions before %d\n", removed, version)
		return err
	})
}

// versionRow is a version as --json prints it.
type versionRow struct {
	ID      int64     `json:"id,omitempty"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Claimed string    `json:"claimed,omitempty"`
	Why     string    `json:"why,omitempty"`
	Action  string    `json:"action"`
	Of      int64     `json:"of,omitempty"`
	Added   int       `json:"added"`
	Changed int       `json:"changed"`
	Removed int       `json:"removed"`
	Pending bool      `json:"pending,omitempty"`
}

func writeHistory(ctx context.Context, w io.Writer, db rules.Editor, limit int, asJSON bool) error {
	list, err := db.History(ctx, 0, limit)
	if err != nil {
		return err
	}
	pending, err := db.Pending(ctx)
	if err != nil {
		return err
	}
	if !pending.At.IsZero() {
		list = append([]record.Version{pending}, list...)
	}
	if asJSON {
		rows := make([]versionRow, len(list))
		for i, v := range list {
			rows[i] = versionRow{v.ID, v.At.UTC(), v.Actor, v.Claimed, v.Why, v.Action, v.Of, v.Added, v.Changed,
				v.Removed, v.ID == 0}
		}
		return writeJSON(w, rows)
	}
	table := newTable(w, "VERSION\tWHEN\tWHO\tCHANGES\tWHY")
	for _, v := range list {
		id := fmt.Sprint(v.ID)
		if v.ID == 0 {
			id = "pending"
		}
		table.row(id, v.At.Format(time.RFC3339), who(v), summary(v), dash(v.Why))
	}
	return table.Flush()
}

// who is the author of a version, as far as proven, and who they say they are.
func who(v record.Version) string {
	if v.Claimed != "" {
		return v.Actor + " (" + v.Claimed + ")"
	}
	return v.Actor
}

// summary is what a version did: "set: 1 changed".
func summary(v record.Version) string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{v.Added, "added"}, {v.Changed, "changed"}, {v.Removed, "removed"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if parts == nil {
		parts = []string{"nothing"}
	}
	action := v.Action
	if v.Of != 0 {
		action += fmt.Sprintf(" to %d", v.Of)
	}
	return action + ": " + strings.Join(parts, ", ")
}

// sayNoVersion adds the remedy to an error about a version that is not there.
func sayNoVersion(err error) error {
	if errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("%w; `headgate policy history` lists those there are", err)
	}
	return err
}
