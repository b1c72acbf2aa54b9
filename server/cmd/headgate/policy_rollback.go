package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func newPolicyRollback() *cobra.Command {
	var from configFlags
	var f planFlags
	cmd := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Bring back the rules of a version, after showing the plan",
		Long: `Bring back the rules and the tiers of projects as they were in a version. That is a
change like any other: a version of its own, which can be rolled back too. The plan
is shown first, and needs a confirmation.

The exit status is 0 if the rules are those of the version, 1 if they could not be
changed, 2 after a wrong call, and 3 if --dry-run found something to change.`,
		Example: `  headgate policy rollback 16 --dry-run
  headgate policy rollback 16 --why 'acme was locked out' --yes`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			versions, err := versionArguments(args)
			if err != nil {
				return err
			}
			return withRules(cmd, &from, unchecked, forMending,
				func(ctx context.Context, db editor, o policy.CompileOptions) error {
					return f.rollback(ctx, cmd, db, versions[0], o)
				})
		},
	}
	from.addFlags(cmd, "db", "server")
	f.addFlags(cmd)
	takesNumber(cmd, wrongVersion)
	return cmd
}

func (f *planFlags) rollback(ctx context.Context, cmd *cobra.Command, db rules.Editor, to int64,
	o policy.CompileOptions) error {
	now, errNow := loadAll(ctx, cmd, db)
	var then policy.Document
	err := working(cmd, fmt.Sprintf("reading version %d", to), func() (err error) {
		then, err = db.At(ctx, to)
		return err
	})
	if err != nil {
		return sayNoVersion(err)
	}
	plan := database.Compare(now, then)
	if errNow != nil { // a row that is no rule keeps nobody from going back
		if now.Number, plan, err = planUnread(ctx, db, to); err != nil {
			return errNow
		}
	}
	if len(plan) > 0 { // one that would be refused is none
		if len(then.Rules) == 0 {
			return fmt.Errorf("version %d: it has no rules, want one that has: an empty table is taken for a fault", to)
		}
		if err := rules.CheckRollback(now, then, o); err != nil {
			return fmt.Errorf("version %d: %w", to, err)
		}
	}
	done, err := f.confirm(cmd, plan)
	if done || err != nil {
		return err
	}
	return f.write(ctx, cmd, db, len(plan), func() (record.Version, error) {
		return rules.Rollback(ctx, db, author(f.why), to, now.Number, o)
	})
}

// planUnread plans the way to a version where the rules of today cannot be
// loaded: the history alone says what is different.
func planUnread(ctx context.Context, db rules.Editor, to int64) (base int64, plan []record.Change, err error) {
	if numbers, ok := db.(interface{ Number(context.Context) error }); ok { // a gateway does it by itself
		if err := numbers.Number(ctx); err != nil {
			return 0, nil, err
		}
	}
	pending, err := db.Pending(ctx)
	if err == nil && !pending.At.IsZero() {
		err = errors.New("somebody is changing the rules by SQL")
	}
	if err != nil {
		return 0, nil, err
	}
	list, err := db.History(ctx, 0, 1)
	if err != nil || len(list) == 0 {
		return 0, nil, errors.Join(err, record.ErrNotFound)
	}
	plan, err = db.Diff(ctx, list[0].ID, to)
	return list[0].ID, plan, err
}
