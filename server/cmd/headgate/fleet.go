package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/record"
)

func newFleet() *cobra.Command {
	var from configFlags
	var watch, maxLag time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show the running gateways, and which rules each has",
		Long: `Show the running gateways of a database, as each last told of itself: which
version of the rules it has, how far it is behind the database, and its state.

  ok      it has what is in the database
  lags    it has other rules
  error   it could not take over what is in the database, and says why
  silent  it has not reported for three times its interval

BEHIND is the versions it lacks, and for how long. Of a silent one nobody knows
more than how old its rules may be, which is what is shown.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("watch") && len(args) == 1 {
				return usagef("--watch takes its time after =, want --watch=%s", args[0])
			}
			return arguments(0, 0)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-lag")
			if maxLag < 0 {
				return usagef("--max-lag is %v, want 0s or more", maxLag)
			}
			if cmd.Flags().Changed("watch") && watch < minWatch {
				return usagef("--watch is %v, want %v or more", watch, minWatch)
			}
			return through(cmd, &from.through, &from, forReading, func(c *client.Client) replicas { return c },
				func(s *database.Store) replicas { return ownReplicas{s} }, func(all replicas) error {
					show := func() error {
						report, err := all.Fleet(cmd.Context())
						if err != nil {
							return err
						}
						if err := writeFleet(cmd.OutOrStdout(), report, asJSON, watch > 0); err != nil {
							return err
						}
						if limited {
							return sayBeyond(report, maxLag)
						}
						return nil
					}
					if watch == 0 {
						return show()
					}
					return again(cmd.Context(), watch, show)
				})
		},
	}
	from.addFlags(cmd, "db", "server")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&maxLag, "max-lag", 0, "exit with status 1 if a replica lags by more, such as 10s")
	cmd.Flags().DurationVar(&watch, "watch", 0, "show it again and again, every so long")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	cmd.AddCommand(newFleetForget())
	return cmd
}

// replicas is where they tell of themselves: a database, or a gateway that has
// one.
type replicas interface {
	Fleet(ctx context.Context) (fleet.Report, error)
}

// ownReplicas are those of a database.
type ownReplicas struct{ db *database.Store }

func (r ownReplicas) Fleet(ctx context.Context) (fleet.Report, error) {
	f, err := r.db.Fleet(ctx)
	if err != nil {
		return fleet.Report{}, err
	}
	return fleet.Judge(f), nil
}

// minWatch keeps --watch from asking the database all the time.
const minWatch = 100 * time.Millisecond

// mostWhy keeps a line of the table a line; --json has all of it.
const mostWhy = 120

// again shows the fleet until the command is stopped. A database that does not
// answer is waited for.
func again(ctx context.Context, every time.Duration, show func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := show()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		var beyond *beyondError
		if errors.As(err, &beyond) {
			continue // it stands in the table
		}
		if err != nil {
			return err
		}
	}
}

func writeFleet(w io.Writer, report fleet.Report, asJSON, redraw bool) error {
	if asJSON {
		return writeJSON(w, report)
	}
	if redraw {
		fmt.Fprint(w, "\x1b[H\x1b[2J") // cursor home, screen empty
	}
	if len(report.Replicas) == 0 {
		_, err := fmt.Fprintln(w, "no replica has reported within a day")
		return err
	}
	table := newTable(w, "REPLICA\tRULES\tBEHIND\tSTALE\tSEEN\tCLOCK\tSTATE\tWHY")
	for _, r := range report.Replicas {
		table.row(r.Name, rulesName(r.Number, r.Version), behind(r),
			inWords(r.Stale), inWords(r.Silent)+" ago", clock(r.Ahead), r.State, dash(clip.To(r.Why, mostWhy)))
	}
	return table.Flush()
}

// rulesName is the number of a version, or the beginning of its text.
func rulesName(number int64, version string) string {
	if number > 0 {
		return fmt.Sprint(number)
	}
	if len(version) > 8 {
		version = version[:8]
	}
	return dash(version)
}

func behind(r fleet.Replica) string {
	switch {
	case r.Lag == 0:
		return "-"
	case r.Behind == 0:
		return inWords(r.Lag)
	}
	return fmt.Sprintf("%d / %s", r.Behind, inWords(r.Lag))
}

// clock is by how much a clock is ahead of the store's.
func clock(ahead *float64) string {
	if ahead == nil {
		return "-"
	}
	if by := time.Duration(*ahead * float64(time.Second)); by.Abs() >= 10*time.Second {
		return fmt.Sprintf("%+.0fs", by.Seconds())
	}
	return fmt.Sprintf("%+.3fs", *ahead)
}

func inWords(seconds float64) string {
	return fleet.Words(time.Duration(seconds * float64(time.Second)))
}

// beyondError says that replicas lag by too much.
type beyondError struct{ text string }

func (e *beyondError) Error() string { return e.text }

func sayBeyond(report fleet.Report, most time.Duration) error {
	lagging := report.Beyond(most)
	if len(lagging) == 0 {
		return nil
	}
	names := make([]string, len(lagging))
	for i, r := range lagging {
		names[i] = fmt.Sprintf("%s (%s, %s)", r.Name, r.State, inWords(r.Lag))
	}
	return &beyondError{fmt.Sprintf("%d of %d replicas lag by more than %v: %s", len(lagging), len(report.Replicas),
		most, strings.Join(names, ", "))}
}

func newFleetForget() *cobra.Command {
	var from configFlags
	var out printer
	cmd := &cobra.Command{
		Use: "forget REPLICA", Short: "Forget a replica that will not come back",
		Long: `Forget a replica that was killed and will not come back, instead of waiting for a
day. One that is alive is back with its next word.`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withKeys(cmd, &from, forMending, func(ctx context.Context, db *database.Store,
				_ config.Config) error {
				if err := db.ForgetReplica(ctx, args[0]); err != nil {
					if errors.Is(err, record.ErrNotFound) {
						return fmt.Errorf("replica %q: %w; `headgate fleet` shows those there are", args[0], err)
					}
					return err
				}
				return out.say(cmd, map[string]string{"forgot": args[0]}, "forgot %s", args[0])
			})
		},
	}
	from.addFlags(cmd, "db")
	out.addFlags(cmd)
	return cmd
}
