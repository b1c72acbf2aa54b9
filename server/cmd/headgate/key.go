package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func newKey() *cobra.Command {
	return group("key", "Create, import, list, rotate and revoke API keys", newKeyCreate(), newKeyImport(),
		newKeyList(), newKeyRotate(), newKeyRevoke())
}

func newKeyCreate() *cobra.Command {
	var from configFlags
	var about aboutKey
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an API key and print it, this once",
		Long: `Create an API key for a project and print it, this once: the database holds a
keyed hash of it and cannot show it again. Clients send it as X-Api-Key or as
Authorization: Bearer, unless the configuration says otherwise.

With --scope the key counts at those endpoints alone. Elsewhere it is ignored,
and the request counts as its address's.`,
		Example: `  headgate key create --project acme --name ci
  headgate key create --project acme --name trial --tier free --expires 30d
  headgate key create --project acme --name reader --scope GET --scope 'POST /v1/search'`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := about.key()
			if err != nil {
				return err
			}
			return throughKeys(cmd, &from, forWriting, func(keys admin.KeyStore) error {
				made, text, err := keys.CreateKey(cmd.Context(), key)
				if err != nil {
					return err
				}
				return sayKey(cmd, made, text, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "secret-file", "server")
	about.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, the key in it")
	return cmd
}

func newKeyRotate() *cobra.Command {
	var from configFlags
	var grace time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace an API key by one that is like it, and print it, this once",
		Long: `Replace an API key by one of the same project, name, tier, scopes and end, and
print it, this once. The other key goes on counting for --grace, so that clients
can change over; without, it ends at once.`,
		Example: `  headgate key rotate k_0123456789abcdef0123 --grace 24h`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noKeyItself(cmd, &from, args[0]); err != nil {
				return err
			}
			wanted := record.Rotation{ID: args[0], Grace: grace}
			if err := wanted.Check(); err != nil {
				return usageError{err}
			}
			return throughKeys(cmd, &from, forWriting, func(keys admin.KeyStore) error {
				made, text, err := keys.RotateKey(cmd.Context(), wanted)
				if err != nil {
					return noSuchKey(err)
				}
				return sayKey(cmd, made, text, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "secret-file", "server")
	cmd.Flags().Var((*days)(&grace), "grace", "how long the other key goes on counting, such as 1d")
	cmd.Flags().Lookup("grace").DefValue = ""
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, the key in it")
	return cmd
}

// sayKey shows a key that was made, this once.
func sayKey(cmd *cobra.Command, made record.APIKey, text string, asJSON bool) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), admin.MadeKey{KeyEntry: admin.EntryOfKey(made), Key: text})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "key %s of project %s; it is shown this once:\n", made.ID, plain(made.Project))
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// noKeyItself refuses a key in place of its ID, and does not repeat it.
func noKeyItself(cmd *cobra.Command, from *configFlags, id string) error {
	c, err := from.read(cmd)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(c.Keys.Prefixes, func(prefix string) bool { return strings.HasPrefix(id, prefix) }) {
		return usagef("ID is a key itself, want its ID, as \"headgate key list\" shows it; the key stands in the " +
			"shell's history now, so revoke it")
	}
	return nil
}

func noSuchKey(err error) error {
	if errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("%w; `headgate key list` shows those there are", err)
	}
	return err
}

// throughKeys does something with API keys by the gateway, if one is named, else in the database.
func throughKeys(cmd *cobra.Command, from *configFlags, open opener, do func(admin.KeyStore) error) error {
	local := func(s *database.Store) admin.KeyStore { return ownKeys{s, cmd, from} }
	return through(cmd, &from.through, from, open, func(c *client.Client) admin.KeyStore { return c }, local, do)
}

// ownKeys are those of the database, made under the secret of this machine.
type ownKeys struct {
	*database.Store
	cmd  *cobra.Command
	from *configFlags
}

func (o ownKeys) CreateKey(ctx context.Context, key record.NewAPIKey) (made record.APIKey, text string, err error) {
	d, format, err := o.secret(ctx)
	if err != nil {
		return made, "", err
	}
	key.Format = format
	return o.Store.CreateKey(ctx, d, key)
}

func (o ownKeys) RotateKey(ctx context.Context, r record.Rotation) (made record.APIKey, text string, err error) {
	d, format, err := o.secret(ctx)
	if err != nil {
		return made, "", err
	}
	return o.Store.RotateKey(ctx, d, r, format)
}

// secret is what new keys are hashed with, and what they look like.
func (o ownKeys) secret(ctx context.Context) (d *identity.Digester, format identity.KeyFormat, err error) {
	c, err := o.from.read(o.cmd)
	if err != nil {
		return nil, format, err
	}
	c.FillPaths()
	keys, err := o.ListKeys(ctx)
	if err != nil {
		return nil, format, err
	}
	if d, err = daemon.Digester(c.SecretFile, len(keys), usualLog(o.cmd.ErrOrStderr())); err != nil {
		return nil, format, err
	}
	warnOfSecret(o.cmd.ErrOrStderr(), c.SecretFile, d, keys)
	if formats := c.Keys.Formats(); len(formats) > 0 {
		format = formats[0]
	}
	return d, format, nil
}

// warnOfSecret says that a key which is about to be made is under another secret
// than those there are: no gateway knows them all.
func warnOfSecret(w io.Writer, file string, d *identity.Digester, keys []record.APIKey) {
	current, previous := d.SecretIDs()
	others, now := 0, time.Now()
	for _, k := range keys {
		over := !k.Revoked.IsZero() || !k.Expires.IsZero() && !k.Expires.After(now)
		if !over && k.Secret != "" && k.Secret != current && k.Secret != previous {
			others++
		}
	}
	if others > 0 {
		fmt.Fprintf(w, "%s under another secret than that of %s, and gateways that have it do not recognise this "+
			"key: want one secret file for all, see --secret-file\n", keysAre(others), file)
	}
}

func keysAre(n int) string {
	if n == 1 {
		return "1 key of the database is"
	}
	return fmt.Sprintf("%d keys of the database are", n)
}

// aboutKey is what the flags of a command say about a key that is to be made.
type aboutKey struct {
	given   record.NewAPIKey
	expires string
	scopes  []string
}

func (a *aboutKey) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&a.given.Project, "project", "",
		"project the key belongs to: its rules apply, and rules per project count it (needed)")
	flags.StringVar(&a.given.Name, "name", "", "what the key is for (needed)")
	flags.StringVar(&a.given.Tier, "tier", "", "tier of the key (default: its project's)")
	flags.StringVar(&a.expires, "expires", "",
		"when the key ends: in 30d, or at 2027-01-31T12:00:00Z (default: never)")
	flags.StringArrayVar(&a.scopes, "scope", nil,
		"endpoints where the key counts: GET, /v1/items/{id} or 'GET /v1/items/{id}' (repeatable; default: all)")
}

func (a *aboutKey) key() (record.NewAPIKey, error) {
	key := a.given
	if key.Project == "" || key.Name == "" {
		return key, usagef("--project and --name are needed, so that the key can be told apart from others")
	}
	var ends policy.Rule
	if err := setExpires(&ends, a.expires, time.Now()); err != nil {
		return key, usageError{err}
	}
	key.Expires = ends.Expires
	var err error
	if key.Scopes, err = identity.ParseScopes(a.scopes); err != nil {
		return key, usageError{err}
	}
	return key, nil
}

func newKeyImport() *cobra.Command {
	var from configFlags
	var about aboutKey
	var out printer
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Import an API key that was made elsewhere, read from standard input",
		Long: `Import an API key that was made elsewhere. Its text is read from standard
input, one line, so that it stands in no list of processes; the database keeps a
keyed hash of it. Its shape must stand in the configuration, under
api_keys.imported: a gateway refuses all others without a look-up.`,
		Example: `  headgate key import --config headgate.yaml --project acme --name legacy <key.txt`,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := about.key()
			if err != nil {
				return err
			}
			text, err := readKey(cmd.InOrStdin())
			if err != nil {
				return err
			}
			return withKeys(cmd, &from, forWriting, func(ctx context.Context, db *database.Store,
				c config.Config) error {
				if !slices.ContainsFunc(c.Keys.Formats(),
					func(f identity.KeyFormat) bool { return f.Check() == nil && f.Match(text) }) {
					return fmt.Errorf("the key on standard input has %d bytes and no shape that the gateway "+
						"accepts: name its prefix and length under api_keys.imported, and give that file by "+
						"--config", len(text))
				}
				keys, err := db.ListKeys(ctx)
				if err != nil {
					return err
				}
				digester, err := daemon.Digester(c.SecretFile, len(keys), usualLog(cmd.ErrOrStderr()))
				if err != nil {
					return err
				}
				warnOfSecret(cmd.ErrOrStderr(), c.SecretFile, digester, keys)
				record, err := db.ImportKey(ctx, digester, text, key)
				if err != nil {
					return err
				}
				return out.say(cmd, admin.EntryOfKey(record), "imported %s of project %s", record.ID, record.Project)
			})
		},
	}
	from.addFlags(cmd, "db", "secret-file")
	about.addFlags(cmd)
	out.addFlags(cmd)
	return cmd
}

// readKey reads a key from a line of its own.
func readKey(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, identity.MaxKeyLength+3)) // and a line end
	if err != nil {
		return "", err
	}
	key := strings.TrimRight(string(text), "\r\n")
	switch { // and never a word of it
	case key == "":
		return "", usagef("standard input is empty, want the key")
	case len(key) > identity.MaxKeyLength:
		return "", usagef("standard input has more than %d bytes, want one key", identity.MaxKeyLength)
	case strings.ContainsAny(key, " \t\r\n"):
		return "", usagef("standard input has more than one word, want one key")
	}
	return key, nil
}

func newKeyList() *cobra.Command {
	var from configFlags
	var project string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the API keys, never the keys themselves", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return throughKeys(cmd, &from, forReading, func(all admin.KeyStore) error {
				keys, err := all.ListKeys(cmd.Context())
				if err != nil {
					return err
				}
				return writeKeys(cmd.OutOrStdout(), record.KeysOf(keys, project), asJSON)
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().StringVar(&project, "project", "", "those of one project (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newKeyRevoke() *cobra.Command {
	var from configFlags
	var out printer
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API key for ever",
		Long:  "Revoke an API key for ever. A running gateway refuses it within a second.",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noKeyItself(cmd, &from, args[0]); err != nil {
				return err
			}
			return throughKeys(cmd, &from, forMending, func(keys admin.KeyStore) error {
				err := keys.RevokeKey(cmd.Context(), args[0])
				if err != nil {
					return noSuchKey(err)
				}
				return out.say(cmd, map[string]string{"revoked": args[0]}, "revoked %s", args[0])
			})
		},
	}
	from.addFlags(cmd, "db", "server")
	out.addFlags(cmd)
	return cmd
}

func withKeys(cmd *cobra.Command, from *configFlags, open opener,
	do func(context.Context, *database.Store, config.Config) error) error {
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

func writeKeys(w io.Writer, keys []record.APIKey, asJSON bool) error {
	if asJSON {
		rows := make([]admin.KeyEntry, len(keys))
		for i, k := range keys {
			rows[i] = admin.EntryOfKey(k)
		}
		return writeJSON(w, rows)
	}
	table := newTable(w, "ID\tPROJECT\tNAME\tTIER\tCREATED\tEXPIRES\tSTATE\tSECRET\tSCOPES")
	now := time.Now()
	for _, k := range keys {
		expires := "-"
		if !k.Expires.IsZero() {
			expires = k.Expires.Format(time.RFC3339)
		}
		table.row(k.ID, k.Project, k.Name, dash(k.Tier),
			k.Created.Format(time.RFC3339), expires, k.State(now), dash(k.Secret),
			dash(strings.Join(k.Scopes.List(), ", ")))
	}
	return table.Flush()
}
