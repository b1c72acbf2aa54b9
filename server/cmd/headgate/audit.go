package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// mostAudit is the most entries that are shown at once.
const mostAudit = 1_000_000

func newAudit() *cobra.Command {
	var from configFlags
	var by throughFlags
	var limit int
	var asJSON, wide bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what was done to buckets and to requests for a higher limit",
		Long: `List what operators did to buckets, and who filed, withdrew, approved or declined
requests for a higher limit, newest first. ACTOR is who it was, as far as proven: a
token's name, a local connection, the user of a command, the key of a caller. BY is
who they say they are. Entries are never changed or deleted.

An entry takes a line and those below that are indented: what was done, for whom and
until when. --wide prints it in one line, and --json all that is known of it.

Who changed a rule or a tier is in ` + "`headgate policy history`" + `, and who asked what of
the admin listener, be it only to look, in ` + "`headgate admin calls`" + `.`,
		Example: `  headgate audit
  headgate audit --limit 20 --server http://10.0.0.5:8081 --token-file ops.token`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > mostAudit {
				return usagef("--limit is %d, want 1 to %d", limit, mostAudit)
			}
			if asJSON && wide {
				return usagef("--json and --wide are both given, want one of the two")
			}
			return through(cmd, &by, &from, forReading, func(c *client.Client) audit { return c },
				func(s *database.Store) audit { return s }, func(from audit) error {
					list, err := from.ListAudit(cmd.Context(), limit)
					if err != nil {
						return err
					}
					switch out := cmd.OutOrStdout(); {
					case asJSON:
						return writeAuditJSON(out, list)
					case wide:
						return writeAuditWide(out, list)
					default:
						return writeAudit(out, list)
					}
				})
		},
	}
	from.addFlags(cmd, "db")
	by.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many entries, the newest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wide, "wide", false, "print a line an entry, however long")
	return cmd
}

// audit is where it is written down what was done to buckets and requests.
type audit interface {
	ListAudit(ctx context.Context, most int) ([]record.Audit, error)
}

func writeAuditJSON(w io.Writer, list []record.Audit) error {
	rows := make([]admin.AuditEntry, len(list))
	for i, a := range list {
		rows[i] = admin.AuditEntryOf(a)
	}
	return writeJSON(w, rows)
}

// writeAudit writes what fits a terminal of 100 columns, whatever names there are
// of usual length.
func writeAudit(w io.Writer, list []record.Audit) error {
	var heads bytes.Buffer
	table := newTable(&heads, "ID\tAT\tACTION\tACTOR\tBY")
	for _, a := range list {
		table.row(a.ID, a.At.Format(time.RFC3339), a.Action, a.Actor, dash(a.Claimed))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	lines := strings.SplitAfter(heads.String(), "\n") // the title, a line an entry, and nothing
	indent := strings.Index(lines[0], "AT")
	out := bufio.NewWriter(w)
	out.WriteString(lines[0])
	for i, a := range list {
		out.WriteString(lines[i+1])
		for _, line := range folded(auditDetails(a), auditColumns-indent) {
			fmt.Fprintf(out, "%*s%s\n", indent, "", line)
		}
	}
	return out.Flush()
}

// auditColumns is how wide a terminal is taken to be.
const auditColumns = 100

// auditDetails says what was done, in pieces that are best kept whole.
func auditDetails(a record.Audit) []string {
	details := []string{a.Rule}
	if a.Amount > 0 {
		details[0] = fmt.Sprintf("%d to %s", a.Amount, a.Rule)
	}
	if a.Endpoint != a.Rule {
		details = append(details, a.Endpoint)
	}
	details = append(details, a.Whose)
	if !a.Expires.IsZero() {
		details = append(details, "until "+a.Expires.Format(time.RFC3339))
	}
	for i := range details {
		details[i] = plain(details[i])
	}
	return details
}

// folded joins pieces to lines of at most so many columns; a longer piece is a
// line of its own.
func folded(pieces []string, columns int) []string {
	lines := pieces[:1:1]
	for _, p := range pieces[1:] {
		last := &lines[len(lines)-1]
		*last += ","
		if utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(p) > columns-1 { // a comma may follow
			lines = append(lines, p)
			continue
		}
		*last += " " + p
	}
	return lines
}

func writeAuditWide(w io.Writer, list []record.Audit) error {
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
