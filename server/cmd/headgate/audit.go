package main

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/store"
)

// mostAudit is the most entries that are shown at once.
const mostAudit = 1_000_000

func newAudit() *cobra.Command {
	var from configFlags
	var by throughFlags
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what was done to buckets and to requests for a higher limit",
		Long: `List what operators did to buckets, and who filed, withdrew, approved or declined
requests for a higher limit, newest first. ACTOR is who it was, as far as proven: a
token's name, a local connection, the user of a command, the key of a caller. BY is
who they say they are. Entries are never changed or deleted.

Who changed a rule or a tier is in ` + "`headgate policy history`" + `, and who asked what of
the admin listener, be it only to look, in ` + "`headgate admin calls`" + `.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > mostAudit {
				return usagef("--limit is %d, want 1 to %d", limit, mostAudit)
			}
			return through(cmd, &by, &from, forReading, func(c *client.Client) audit { return c }, func(s *store.Store) audit { return s }, func(from audit) error {
				list, err := from.ListAudit(cmd.Context(), limit)
				if err != nil {
					return err
				}
				return writeAudit(cmd.OutOrStdout(), list, asJSON)
			})
		},
	}
	from.addFlags(cmd, "db")
	by.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many entries, the newest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// audit is where it is written down what was done to buckets and requests.
type audit interface {
	ListAudit(ctx context.Context, most int) ([]store.Audit, error)
}

func writeAudit(w io.Writer, list []store.Audit, asJSON bool) error {
	if asJSON {
		rows := make([]admin.AuditEntry, len(list))
		for i, a := range list {
			rows[i] = admin.AuditEntryOf(a)
		}
		return writeJSON(w, rows)
	}
	table := newTable(w, "ID\tAT\tACTOR\tBY\tACTION\tAMOUNT\tEXPIRES\tRULE\tENDPOINT\tWHOSE")
	for _, a := range list {
		amount, expires := "-", "-"
		if a.Amount > 0 {
			amount = strconv.FormatInt(a.Amount, 10)
		}
		if !a.Expires.IsZero() {
			expires = a.Expires.Format(time.RFC3339)
		}
		table.row(a.ID, a.At.Format(time.RFC3339), a.Actor, dash(a.Claimed), a.Action,
			amount, expires, a.Rule, a.Endpoint, a.Whose)
	}
	return table.Flush()
}
