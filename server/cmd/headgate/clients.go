package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/replay"
)

func newClients() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Make workloads to try clients with that pace themselves",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClientsFromLog())
	return cmd
}

func newClientsFromLog() *cobra.Command {
	var f replayFlags
	var a replay.Arrivals
	cmd := &cobra.Command{
		Use:   "from-log LOG...",
		Short: "Print when each caller's requests came, by access logs",
		Long: `Print a line for each caller of access logs, those with most requests first: a
number in the place of its address or user, how many requests it has, and their
times in seconds since the first request of all.

	0	3	0,0.25,17.5
	1	1	4

Logs are those that "headgate replay" reads; - is standard input. The program of
"make clients" runs clients with these requests (-workload).`,
		Example: `  headgate clients from-log access.log --for 5m --requests 800 > workload.tsv
  zcat access.log.*.gz | headgate clients from-log - --at-least 2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("from-log takes the logs to read, want at least one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.For < 0 || a.Requests < 0 || a.Least < 0 || a.Over < 0 {
				return usagef("--for is %v, --over %v, --requests %d and --at-least %d, want none below 0", a.For,
					a.Over, a.Requests, a.Least)
			}
			r, err := f.open()
			if err != nil {
				return err
			}
			r.Arrivals = &a
			defer showProgress(cmd, r)()
			for _, name := range args {
				if err := readLog(cmd, r, name); err != nil {
					return err
				}
			}
			callers, requests, err := a.Write(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			if requests == 0 {
				return fmt.Errorf("no request is left, of %d", a.Left)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d callers with %d requests; %d left out\n", callers, requests, a.Left)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&a.For, "for", time.Duration(0),
		"leave out what came so long after the first request; 0s: nothing")
	flags.IntVar(&a.Requests, "requests", 0, "keep the first so many requests; 0: all")
	flags.DurationVar(&a.Over, "over", time.Duration(0),
		"have what is kept come faster or slower, in so long; 0s: as it came")
	flags.IntVar(&a.Least, "at-least", 0, "leave out callers with fewer requests")
	flags.StringVar(&f.format, "format", "", "format of the logs: "+strings.Join(replay.Formats, ", ")+
		" (default: by the first line)")
	flags.StringArrayVar(&f.fields, "field", nil, "for JSON, where a part of a request stands, such as "+
		"client=peer.ip; of time, client, method, target, user, status (repeatable)")
	return cmd
}
