package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
)

func newSecret() *cobra.Command {
	return group("secret", "Rotate the secret under which API keys are hashed", newSecretShow(), newSecretRotate())
}

func newSecretShow() *cobra.Command {
	var from configFlags
	var out printer
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Say which secrets the file holds, by name, and how many keys are under each",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withKeys(cmd, &from, forReading, func(ctx context.Context, db *database.Store,
				c config.Config) error {
				secrets, err := database.ReadSecrets(c.SecretFile, nil)
				if err != nil {
					return err
				}
				if out.asJSON {
					under, err := countKeys(ctx, db, secrets)
					if err != nil {
						return err
					}
					return writeJSON(cmd.OutOrStdout(), under.entries(secrets.Previous != nil))
				}
				return showSecrets(ctx, cmd.OutOrStdout(), db, secrets)
			})
		},
	}
	from.addFlags(cmd, "db", "secret-file")
	out.addFlags(cmd)
	return cmd
}

func showSecrets(ctx context.Context, w io.Writer, db *database.Store, secrets database.Secrets) error {
	under, err := countKeys(ctx, db, secrets)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "current   %s  %s\n", under.current.name, under.current)
	if secrets.Previous != nil {
		fmt.Fprintf(w, "previous  %s  %s\n", under.previous.name, under.previous)
	}
	if under.lost.keys > 0 {
		fmt.Fprintf(w, "neither             %s: no gateway recognises them\n", under.lost)
	}
	return nil
}

// underSecrets says how many keys are under which secret.
type underSecrets struct{ current, previous, lost underSecret }

type underSecret struct {
	name         string
	keys, active int
}

func (u underSecret) String() string {
	return fmt.Sprintf("keys: %d, active: %d", u.keys, u.active)
}

// secretEntry is a secret by its name, in JSON.
type secretEntry struct {
	Name   string `json:"name,omitempty"` // none: keys that no gateway recognises
	Keys   int    `json:"keys"`
	Active int    `json:"active"`
}

func (u underSecrets) entries(previous bool) map[string]secretEntry {
	all := map[string]secretEntry{"current": {u.current.name, u.current.keys, u.current.active}}
	if previous {
		all["previous"] = secretEntry{u.previous.name, u.previous.keys, u.previous.active}
	}
	if u.lost.keys > 0 {
		all["neither"] = secretEntry{Keys: u.lost.keys, Active: u.lost.active}
	}
	return all
}

func countKeys(ctx context.Context, db *database.Store, secrets database.Secrets) (under underSecrets, err error) {
	digester, err := secrets.Digester()
	if err != nil {
		return under, err
	}
	under.current.name, under.previous.name = digester.SecretIDs()
	keys, err := db.ListKeys(ctx)
	if err != nil {
		return under, err
	}
	now := time.Now()
	for _, k := range keys {
		at := &under.lost
		switch {
		case k.Secret == under.current.name, k.Secret == "" && secrets.Previous == nil:
			at = &under.current
		case secrets.Previous != nil && (k.Secret == under.previous.name || k.Secret == ""):
			at = &under.previous
		}
		at.keys++
		if k.Revoked.IsZero() && (k.Expires.IsZero() || k.Expires.After(now)) {
			at.active++
		}
	}
	return under, nil
}

func newSecretRotate() *cobra.Command {
	var from configFlags
	var dropOld, yes bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Begin to use a new secret, or, with --drop-old, end the use of the one before",
		Long: `Begin to use a new secret. The file keeps the present one as the previous one,
and keys under it stay good. A running gateway reads the file within a second and
moves each key to the new secret soon after it is next used.

--drop-old ends that: it takes the previous secret out of the file. Keys that are
still under it are good no more, and their texts are needed to bring them back;
if active ones are left, --yes is needed besides.`,
		Example: `  headgate secret rotate
  headgate secret show
  headgate secret rotate --drop-old`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && !dropOld {
				return usagef("--yes is for --drop-old")
			}
			return withKeys(cmd, &from, forMending, func(ctx context.Context, db *database.Store,
				c config.Config) error {
				if dropOld {
					return dropSecret(ctx, cmd.OutOrStdout(), db, c.SecretFile, yes)
				}
				return rotateSecret(ctx, cmd.OutOrStdout(), db, c.SecretFile)
			})
		},
	}
	from.addFlags(cmd, "db", "secret-file")
	cmd.Flags().BoolVar(&dropOld, "drop-old", false, "end the rotation: take the previous secret out of the file")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --drop-old: even though active keys are lost")
	return cmd
}

func rotateSecret(ctx context.Context, w io.Writer, db *database.Store, path string) error {
	present, err := database.ReadSecrets(path, nil)
	if err != nil {
		return err
	}
	digester, err := present.Digester()
	if err != nil {
		return err
	}
	// First, while it is certain which secret unnamed keys are under.
	if id, previous := digester.SecretIDs(); previous == "" {
		if err := db.NameSecret(ctx, id); err != nil {
			return err
		}
	}
	secrets, err := database.RotateSecret(path)
	if err != nil {
		return err
	}
	if err := showSecrets(ctx, w, db, secrets); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `
%s has a new secret. Keys under the previous one stay good.
Next: back the file up, and give it to every gateway of this database.
When `+"`headgate secret show`"+` counts no active key under the previous one:
  headgate secret rotate --drop-old
`, path)
	return err
}

func dropSecret(ctx context.Context, w io.Writer, db *database.Store, path string, yes bool) error {
	secrets, err := database.ReadSecrets(path, nil)
	if err != nil {
		return err
	}
	if secrets.Previous == nil {
		_, err := database.DropPrevious(path) // says so
		return err
	}
	under, err := countKeys(ctx, db, secrets)
	if err != nil {
		return err
	}
	if n := under.previous.active; n > 0 && !yes {
		return fmt.Errorf("%d active keys are still under the previous secret %s and would be lost: they were not "+
			"used since the rotation began; `headgate key list` shows them. To lose them, add --yes", n,
			under.previous.name)
	}
	if _, err := database.DropPrevious(path); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s has one secret again, %s; %d active keys are lost\n", path, under.current.name,
		under.previous.active)
	return err
}
