package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func newPolicyImport() *cobra.Command {
	var from configFlags
	var replace bool
	var why string
	var out printer
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read rules from a policy file, all or none",
		Long: `Read rules from a policy file, JSON or YAML, all or none. Rules of the database
with the same endpoint, project, tier and subject are replaced, the others stay;
with --replace the file's rules are the only ones. Nothing is written if any rule
is wrong. "headgate policy export" writes such a file, and "headgate policy apply"
shows what would be changed before it does it.`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := readPolicies(args[0])
			if err != nil {
				return err
			}
			check := func(o policy.CompileOptions) error { return policy.Lint(doc, o).Err() }
			return changeRules(cmd, &from, check, func(ctx context.Context, db editor, o policy.CompileOptions) error {
				edit := record.Edit{Set: doc.Rules, Tiers: doc.Projects, Replace: replace, Action: record.ActionImport}
				err := working(cmd, "writing "+lint.Counted(len(doc.Rules), "rule", "rules"), func() error {
					_, err := rules.Apply(ctx, db, author(why), edit, o)
					return err
				})
				if err != nil {
					return err
				}
				return out.say(cmd, map[string]any{"imported": len(doc.Rules), "from": args[0]},
					"imported %s from %s", lint.Counted(len(doc.Rules), "rule", "rules"), args[0])
			})
		},
	}
	from.addFlags(cmd, "db", "server", "openapi", "routes")
	addWhy(cmd, &why)
	cmd.Flags().BoolVar(&replace, "replace", false, "delete the rules that the file does not have")
	out.addFlags(cmd)
	return cmd
}

func newPolicyExport() *cobra.Command {
	var from configFlags
	var version int64
	cmd := &cobra.Command{
		Use: "export", Short: "Write all rules as a policy file to standard output",
		Long: `Write all rules as a policy file to standard output. The file names the version of
the rules, so that "headgate policy apply" notices if they were changed meanwhile.
With --version it has the rules as they were in that version.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("version") && version < 1 {
				return usagef("--version is %d, want 1 or more", version)
			}
			return readRules(cmd, &from, func(ctx context.Context, db editor, _ policy.CompileOptions) error {
				if version > 0 {
					doc, err := db.At(ctx, version)
					if err != nil {
						return sayNoVersion(err)
					}
					return file.Encode(cmd.OutOrStdout(), doc)
				}
				doc, err := loadNumbered(ctx, cmd, &from, db)
				if err != nil {
					return err
				}
				return file.Encode(cmd.OutOrStdout(), doc)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().Int64Var(&version, "version", 0, "the rules as they were in this version (default: as they are)")
	return cmd
}

// loadNumbered reads all rules. If they were changed by SQL and no gateway has
// given that a number yet, it does so itself, where it may.
func loadNumbered(ctx context.Context, cmd *cobra.Command, from *configFlags, db editor) (policy.Document, error) {
	doc, _, err := db.Load(ctx)
	if err != nil || doc.Number != 0 || from.through.server != "" { // which numbers what it is asked for
		return doc, err
	}
	// a table that somebody else keeps has no versions
	if pending, err := db.Pending(ctx); err != nil || pending.At.IsZero() {
		return doc, err
	}
	errWrite := withKeys(cmd, from, forMending, func(ctx context.Context, db *database.Store, _ config.Config) error {
		if err := db.Number(ctx); err != nil {
			return err
		}
		doc, _, err = db.Load(ctx)
		return err
	})
	if errWrite != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the file names no version, because the rules were changed by SQL, and to "+
			"give that a number needs the right to write: %v\n", errWrite)
	}
	return doc, nil
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
