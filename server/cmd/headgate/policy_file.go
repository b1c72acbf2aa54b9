package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/store"
)

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
			check := func(o policy.CompileOptions) error { return policy.Lint(doc, o).Err() }
			return changeRules(cmd, &from, check, func(ctx context.Context, db *store.Store, _ policy.CompileOptions) error {
				if err := db.Import(ctx, author(), doc, replace); err != nil {
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
