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
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func newAdmin() *cobra.Command {
	return group("admin", "Say who may use the admin listener, and see what they did",
		group("token", "Create, list and revoke admin tokens", newAdminTokenCreate(), newAdminTokenList(),
			newAdminTokenRevoke()),
		newAdminCalls())
}

// adminTokens is where admin tokens are kept: a database, or a gateway that has
// one.
type adminTokens = admin.TokenStore

func withAdminTokens(cmd *cobra.Command, f *throughFlags, from *configFlags, open opener,
	do func(context.Context, adminTokens) error) error {
	return through(cmd, f, from, open, func(c *client.Client) adminTokens { return c },
		func(s *database.Store) adminTokens { return s },
		func(tokens adminTokens) error { return do(cmd.Context(), tokens) })
}

func newAdminTokenCreate() *cobra.Command {
	var from configFlags
	var by throughFlags
	var out printer
	var roles []string
	var expires string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an admin token and print it, this once",
		Long: `Create an admin token and print it, this once: the database holds a hash of it and
cannot show it again. NAME stands in the history of the rules and in the audit, so no
other token can have it later. Whoever bears the token may do what its roles say:

  read   see everything: rules, history, buckets, metrics, who did what
  write  also change rules and tiers, and bring back old ones
  grant  also reset and top up buckets, and make rules that expire

A token with all three may also make and revoke tokens through a gateway. A running
gateway takes a new token within a second or so.`,
		Example: `  headgate admin token create prometheus --role read
  headgate admin token create ci --role write --expires 90d >ci.token`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted := record.NewAdminToken{Name: args[0]}
			for _, r := range roles {
				wanted.Roles = append(wanted.Roles, record.Role(r))
			}
			var ends policy.Rule
			if err := setExpires(&ends, expires, time.Now()); err != nil {
				return usageError{err}
			}
			wanted.Expires = ends.Expires
			if len(roles) == 0 {
				return usagef("--role is needed: read, write or grant, or several of them")
			}
			if err := wanted.Check(time.Now()); err != nil {
				return usageError{err}
			}
			return withAdminTokens(cmd, &by, &from, forWriting, func(ctx context.Context, tokens adminTokens) error {
				made, text, err := tokens.CreateAdminToken(ctx, wanted)
				if err != nil {
					return err
				}
				if !out.asJSON {
					fmt.Fprintf(cmd.ErrOrStderr(), "admin token %s (%s); it is shown this once:\n", made.Name,
						joined(made.Roles))
				}
				return out.say(cmd, admin.MadeToken{TokenEntry: entryOfToken(made), Token: text}, "%s", text)
			})
		},
	}
	from.addFlags(cmd, "db")
	by.addFlags(cmd)
	cmd.Flags().StringArrayVar(&roles, "role", nil, "what its bearer may do: read, write or grant (repeatable; needed)")
	cmd.Flags().StringVar(&expires, "expires", "",
		"when the token ends: in 30d, or at 2027-01-31T12:00:00Z (default: never)")
	out.addFlags(cmd)
	return cmd
}

func joined(roles []record.Role) string {
	texts := make([]string, len(roles))
	for i, r := range roles {
		texts[i] = string(r)
	}
	return strings.Join(texts, ", ")
}

func newAdminTokenList() *cobra.Command {
	var from configFlags
	var by throughFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the admin tokens", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withAdminTokens(cmd, &by, &from, forReading, func(ctx context.Context, tokens adminTokens) error {
				list, err := tokens.ListAdminTokens(ctx)
				if err != nil {
					return err
				}
				return writeAdminTokens(cmd.OutOrStdout(), list, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db")
	by.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeAdminTokens(w io.Writer, list []record.AdminToken, asJSON bool) error {
	if asJSON {
		rows := make([]admin.TokenEntry, len(list))
		for i, t := range list {
			rows[i] = entryOfToken(t)
		}
		return writeJSON(w, rows)
	}
	table := newTable(w, "NAME\tROLES\tCREATED\tEXPIRES\tSTATE")
	now := time.Now()
	for _, t := range list {
		state, expires := "active", "-"
		if !t.Expires.IsZero() {
			expires = t.Expires.Format(time.RFC3339)
		}
		switch {
		case !t.Revoked.IsZero():
			state = "revoked"
		case !t.Valid(now):
			state = "expired"
		}
		table.row(t.Name, joined(t.Roles), t.Created.Format(time.RFC3339), expires, state)
	}
	return table.Flush()
}

func entryOfToken(t record.AdminToken) admin.TokenEntry {
	return admin.TokenEntry{
		ID:      t.ID,
		Name:    t.Name,
		Roles:   t.Roles,
		Created: t.Created,
		Expires: t.Expires,
		Revoked: t.Revoked,
	}
}

func newAdminTokenRevoke() *cobra.Command {
	var from configFlags
	var by throughFlags
	var out printer
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke an admin token for ever",
		Long: "Revoke an admin token for ever. A running gateway refuses it within a second or so.\nTokens that " +
			"it has made stay.",
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAdminTokens(cmd, &by, &from, forMending, func(ctx context.Context, tokens adminTokens) error {
				err := tokens.RevokeAdminToken(ctx, args[0])
				if errors.Is(err, record.ErrNotFound) {
					return fmt.Errorf("%w; `headgate admin token list` shows those there are", err)
				}
				if err != nil {
					return err
				}
				return out.say(cmd, map[string]string{"revoked": args[0]}, "revoked %s", args[0])
			})
		},
	}
	from.addFlags(cmd, "db")
	by.addFlags(cmd)
	out.addFlags(cmd)
	return cmd
}

// calls is where the calls of the admin listener are written down.
type calls interface {
	ListCalls(ctx context.Context, before int64, most int) ([]record.Call, error)
}

func newAdminCalls() *cobra.Command {
	var from configFlags
	var by throughFlags
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "List the calls of the admin listener",
		Long: `List the calls of the admin listener, those written down last first: when, who, from
where, what, and how it ended. Calls that change something are written down before
they are made, others within ten seconds. They are kept for admin_calls.keep, 90
days.

What a call changed of the rules is in ` + "`headgate policy history`" + `, and what of buckets
and requests for a higher limit in ` + "`headgate audit`" + `: there too if no call made it,
but a command on the database or somebody's shell.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > mostAudit {
				return usagef("--limit is %d, want 1 to %d", limit, mostAudit)
			}
			return through(cmd, &by, &from, forReading, func(c *client.Client) calls { return c },
				func(s *database.Store) calls { return s }, func(from calls) error {
					list, err := from.ListCalls(cmd.Context(), 0, limit)
					if err != nil {
						return err
					}
					return writeCalls(cmd.OutOrStdout(), list, asJSON)
				})
		},
	}
	from.addFlags(cmd, "db")
	by.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many calls")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeCalls(w io.Writer, list []record.Call, asJSON bool) error {
	if asJSON {
		rows := make([]admin.CallEntry, len(list))
		for i, c := range list {
			rows[i] = admin.EntryOf(c)
		}
		return writeJSON(w, rows)
	}
	table := newTable(w, "AT\tACTOR\tPEER\tOPERATION\tSTATUS\tTOOK\tABOUT")
	for _, c := range list {
		status := "not ended"
		if c.Status != 0 {
			status = fmt.Sprint(c.Status)
		}
		table.row(c.At.Format(time.RFC3339), c.Actor, c.Peer, c.Operation, status, c.Took, dash(c.About))
	}
	return table.Flush()
}
