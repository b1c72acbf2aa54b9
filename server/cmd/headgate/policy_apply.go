package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// errWouldChange is how --dry-run ends when something would be changed.
var errWouldChange = errors.New("nothing was changed: --dry-run")

// planFlags are what commands take that show a plan before they change much.
type planFlags struct {
	confirmation
	printer
	dryRun bool
	why    string
	told   planned
}

// planned is what a command that shows a plan prints with --json.
type planned struct {
	Add     int                 `json:"add"`
	Change  int                 `json:"change"`
	Remove  int                 `json:"remove"`
	Changes []rules.ChangeEntry `json:"changes"`
	Version int64               `json:"version,omitempty"` // that was made; absent if nothing was changed
}

func (f *planFlags) addFlags(cmd *cobra.Command) {
	f.confirmation.addFlags(cmd)
	f.printer.addFlags(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false,
		"only show the plan; the exit status is 3 if it would change something")
	addWhy(cmd, &f.why)
}

func addWhy(cmd *cobra.Command, why *string) {
	cmd.Flags().Var((*reason)(why), "why", fmt.Sprintf("the reason, for the history; at most %d bytes", record.MaxWhy))
}

// reason is what --why takes: what the history does, and refused before a plan is
// shown.
type reason string

func (r *reason) String() string { return string(*r) }
func (r *reason) Type() string   { return "string" }

func (r *reason) Set(text string) error {
	if err := (record.Author{Actor: "local", Why: text}).Check(); err != nil {
		return err
	}
	*r = reason(text)
	return nil
}

func newPolicyApply() *cobra.Command {
	var from configFlags
	var f planFlags
	var base int64
	var keep bool
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make the rules what a policy file says, after showing the plan",
		Long: `Make the rules what a policy file says: JSON or YAML, as "headgate policy export"
writes it. The file is the whole: rules and tiers that it does not have are removed,
unless --keep is given. The plan is shown first, and needs a confirmation.

All of it is one version, or nothing is changed. A file that was exported names the
version it was made from, and so does --base: if the rules have changed since, the
command says who changed what and changes nothing.

The exit status is 0 if the rules are what the file says, 1 if they could not be
changed, 2 after a wrong call, and 3 if --dry-run found something to change.`,
		Example: `  headgate policy export >rules.json
  headgate policy apply rules.json --dry-run
  headgate policy apply rules.json --why 'acme has bought more' --yes`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := readPolicies(args[0])
			if err != nil {
				return err
			}
			if base < 0 {
				return usagef("--base is %d, want a version, 1 or more", base)
			}
			if len(doc.Rules) == 0 && !keep {
				return fmt.Errorf(
					"%s: rules is empty, want at least one rule, or --keep: an empty table is taken for a fault",
					args[0])
			}
			if base == 0 {
				base = doc.Number
			}
			edit := record.Edit{
				Base:    base,
				Set:     doc.Rules,
				Tiers:   doc.Projects,
				Replace: !keep,
				Action:  record.ActionApply,
			}
			check := func(o policy.CompileOptions) error { return policy.Lint(doc, o).Err() }
			return withRules(cmd, &from, check, forWriting,
				func(ctx context.Context, db editor, o policy.CompileOptions) error {
					return f.apply(ctx, cmd, db, edit, o)
				})
		},
	}
	from.addFlags(cmd, "db", "server", "openapi", "routes")
	f.addFlags(cmd)
	cmd.Flags().Int64Var(&base, "base", 0,
		"the version that the file was made from (default: the one it names; else whatever is there)")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the rules and tiers that the file does not have")
	return cmd
}

func (f *planFlags) apply(ctx context.Context, cmd *cobra.Command, db rules.Editor, e record.Edit,
	o policy.CompileOptions) error {
	now, err := loadAll(ctx, cmd, db)
	if err != nil {
		return err
	}
	if e.Base != 0 && e.Base != now.Number {
		return f.conflict(ctx, cmd.ErrOrStderr(), db, e.Base)
	}
	after := policy.Document{Rules: e.Set, Projects: e.Tiers}
	if !e.Replace {
		after = rules.Merge(now, after)
	}
	var plan []record.Change
	err = working(cmd, "comparing "+lint.Counted(len(after.Rules), "rule", "rules"), func() error {
		if err := rules.CheckAll(now, after, o); err != nil {
			return err // a plan that would be refused is none
		}
		plan = database.Compare(now, after)
		return nil
	})
	if err != nil {
		return err
	}
	done, err := f.confirm(cmd, plan)
	if done || err != nil {
		return err
	}
	e.Base = now.Number // what the plan is made from
	return f.write(ctx, cmd, db, len(plan), func() (record.Version, error) {
		return rules.Apply(ctx, db, author(f.why), e, o)
	})
}

// loadAll reads all rules, with the number of their version: a plan that is made
// from no version could not be told from one that somebody else's change came
// between. A gateway gives it by itself; of a database, this makes one.
func loadAll(ctx context.Context, cmd *cobra.Command, db rules.Editor) (now policy.Document, err error) {
	if now, err = loadOnce(ctx, cmd, db); err != nil || now.Number != 0 {
		return now, err
	}
	if numbers, ok := db.(interface{ Number(context.Context) error }); ok {
		if err := working(cmd, "numbering the changes that were made by SQL",
			func() error { return numbers.Number(ctx) }); err != nil {
			return now, err
		}
	}
	if now, err = loadOnce(ctx, cmd, db); err != nil || now.Number != 0 {
		return now, err
	}
	// a table that somebody else keeps has no versions
	if pending, err := db.Pending(ctx); err != nil || pending.At.IsZero() {
		return now, err
	}
	return now, errUnnumbered
}

var errUnnumbered = errors.New("nothing was changed: somebody is changing the rules by SQL, and their changes have " +
	"no number yet: try again in a moment")

func loadOnce(ctx context.Context, cmd *cobra.Command, db rules.Editor) (now policy.Document, err error) {
	return now, working(cmd, "reading the rules", func() error {
		now, _, err = db.Load(ctx)
		return err
	})
}

// write makes the changes of a plan, and says which version that is.
func (f *planFlags) write(ctx context.Context, cmd *cobra.Command, db rules.Editor, changes int,
	change func() (record.Version, error)) error {
	var v record.Version
	err := working(cmd, "writing "+lint.Counted(changes, "change", "changes"), func() (err error) {
		v, err = change()
		return err
	})
	return f.report(ctx, cmd, db, v, err)
}

// confirm shows a plan and asks for leave; done if there is nothing to do.
func (f *planFlags) confirm(cmd *cobra.Command, plan []record.Change) (done bool, err error) {
	out := cmd.OutOrStdout()
	added, changed, removed := count3(plan)
	if f.asJSON {
		f.told = planned{Add: added, Change: changed, Remove: removed, Changes: rules.ChangeEntries(plan)}
		if len(plan) == 0 || f.dryRun {
			err = writeJSON(out, f.told)
			if err == nil && len(plan) > 0 {
				err = errWouldChange
			}
			return true, err
		}
		return false, f.ask(cmd, fmt.Sprintf("Add %d, change %d and remove %d rules?", added, changed, removed))
	}
	if len(plan) == 0 {
		_, err := fmt.Fprintln(out, "nothing to change")
		return true, err
	}
	if err := writeChanges(out, plan, false); err != nil {
		return true, err
	}
	fmt.Fprintf(out, "plan: %d to add, %d to change, %d to remove\n", added, changed, removed)
	if f.dryRun {
		return true, errWouldChange
	}
	return false, f.ask(cmd, "Make these changes?")
}

func count3(changes []record.Change) (added, changed, removed int) {
	for _, c := range changes {
		switch rules.Describe(c)[0] {
		case '+':
			added++
		case '-':
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}

// report says which version was made, or who was faster.
func (f *planFlags) report(ctx context.Context, cmd *cobra.Command, db rules.Editor, v record.Version,
	err error) error {
	var conflict *record.Conflict
	if errors.As(err, &conflict) {
		return f.conflict(ctx, cmd.ErrOrStderr(), db, conflict.Base)
	}
	if err != nil {
		return sayNoVersion(err)
	}
	f.told.Version = v.ID
	return f.say(cmd, f.told, "version %d: %s", v.ID, summary(v))
}

// conflict says who changed what since a version, and how to go on.
func (f *planFlags) conflict(ctx context.Context, w io.Writer, db rules.Editor, base int64) error {
	now, err := db.Current(ctx)
	if err != nil {
		return err
	}
	if base > now.ID {
		return fmt.Errorf(
			"this is made from version %d, which there is not: the newest is %d. Is it another database's?", base,
			now.ID)
	}
	const most = 20
	since, err := db.History(ctx, 0, int(min(now.ID-base, most)))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "since version %d the rules were changed:\n", base)
	for _, v := range since {
		reason := ""
		if v.Why != "" {
			reason = ", because: " + v.Why
		}
		fmt.Fprintf(w, "  %d at %s by %s, %s%s\n", v.ID, v.At.Format(time.RFC3339), plain(who(v)), summary(v),
			plain(reason))
	}
	if changes, err := db.Diff(ctx, base, now.ID); err == nil && len(changes) <= 2*most {
		if err := writeChanges(w, changes, false); err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing was changed: the rules are at version %d, and this is made from version %d. "+
		"Export them again and make the change there, or give --base %d to have the plan made from what is there "+
		"now", now.ID, base, now.ID)
}
