package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/store"
)

func newKey() *cobra.Command {
	return group("key", "Create, list and revoke API keys", newKeyCreate(), newKeyList(), newKeyRevoke())
}

func newKeyCreate() *cobra.Command {
	var from configFlags
	var key store.NewKey
	var expires string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an API key and print it, this once",
		Long: `Create an API key for a project and print it, this once: the database holds a
keyed hash of it and cannot show it again. Clients send it as X-Api-Key or as
Authorization: Bearer.`,
		Example: `  headgate key create --project acme --name ci
  headgate key create --project acme --name trial --tier free --expires 720h`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if key.Project == "" || key.Name == "" {
				return usagef("--project and --name are needed, so that the key can be told from others")
			}
			var ends policy.Rule
			if err := setExpires(&ends, expires, time.Now()); err != nil {
				return usageError{err}
			}
			key.Expires = ends.Expires
			return withKeys(cmd, &from, forWriting, func(ctx context.Context, db *store.Store, c config.Config) error {
				keys, err := db.ListKeys(ctx)
				if err != nil {
					return err
				}
				digester, err := daemon.Digester(c.SecretFile, len(keys), newLog(cmd.ErrOrStderr(), config.Default().Log))
				if err != nil {
					return err
				}
				record, text, err := db.CreateKey(ctx, digester, key)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "key %s of project %s; it is shown this once:\n", record.ID, record.Project)
				_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
				return err
			})
		},
	}
	from.addFlags(cmd, "db", "secret-file")
	flags := cmd.Flags()
	flags.StringVar(&key.Project, "project", "", "project the key belongs to: its rules apply, and rules per project count it (needed)")
	flags.StringVar(&key.Name, "name", "", "what the key is for (needed)")
	flags.StringVar(&key.Tier, "tier", "", "tier of the key (default: its project's)")
	flags.StringVar(&expires, "expires", "", "when the key ends: in 720h, or at 2027-01-31T12:00:00Z (default: never)")
	return cmd
}

func newKeyList() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the API keys, never the keys themselves", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withKeys(cmd, &from, forReading, func(ctx context.Context, db *store.Store, _ config.Config) error {
				keys, err := db.ListKeys(ctx)
				if err != nil {
					return err
				}
				return writeKeys(cmd.OutOrStdout(), keys, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newKeyRevoke() *cobra.Command {
	var from configFlags
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API key for ever",
		Long:  "Revoke an API key for ever. A running gateway refuses it within a second.",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withKeys(cmd, &from, forMending, func(ctx context.Context, db *store.Store, _ config.Config) error {
				err := db.RevokeKey(ctx, args[0])
				if errors.Is(err, store.ErrNotFound) {
					return fmt.Errorf("%w; `headgate key list` shows those there are", err)
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "revoked %s\n", args[0])
				return err
			})
		},
	}
	from.addFlags(cmd, "db")
	return cmd
}

func withKeys(cmd *cobra.Command, from *configFlags, open opener, do func(context.Context, *store.Store, config.Config) error) error {
	c, err := from.read(cmd)
	if err != nil {
		return err
	}
	c.FillPaths()
	db, err := open(cmd.Context(), c)
	if err != nil {
		return err
	}
	return errors.Join(do(cmd.Context(), db, c), db.Close())
}

// keyRow is a key as --json prints it.
type keyRow struct {
	ID      string    `json:"id"`
	Project string    `json:"project"`
	Name    string    `json:"name"`
	Tier    string    `json:"tier,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
}

func writeKeys(w io.Writer, keys []store.Key, asJSON bool) error {
	if asJSON {
		rows := make([]keyRow, len(keys))
		for i, k := range keys {
			rows[i] = keyRow{k.ID, k.Project, k.Name, k.Tier, k.Created, k.Expires, k.Revoked}
		}
		return writeJSON(w, rows)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tPROJECT\tNAME\tTIER\tCREATED\tEXPIRES\tSTATE")
	now := time.Now()
	for _, k := range keys {
		state, expires := "active", "-"
		if !k.Expires.IsZero() {
			expires = k.Expires.Format(time.RFC3339)
			if !k.Expires.After(now) {
				state = "expired"
			}
		}
		if !k.Revoked.IsZero() {
			state = "revoked"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Project, k.Name, dash(k.Tier),
			k.Created.Format(time.RFC3339), expires, state)
	}
	return table.Flush()
}
