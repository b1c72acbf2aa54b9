package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/developers"
)

func newRequestFile() *cobra.Command {
	var door doorFlags
	var f developers.Filing
	var until string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "file ENDPOINT LIMIT",
		Short: "Ask the operator of an API for a higher limit",
		Long: `Ask the operator of an API behind Headgate for a higher limit for your project, for a
time. ENDPOINT is one that ` + "`headgate budgets`" + ` shows: a template, default, or * for all
endpoints together. Whoever has a credential of the project sees what became of it
with ` + "`headgate request mine`" + `, and can withdraw it.`,
		Example: `  headgate request file 'GET /v1/items/{id}' 50 --per 1m --for 48h --reason 'launch on Friday' \
    --url https://api.example.com --key-file key.txt`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Endpoint = args[0]
			var err error
			if f.Limit, err = strconv.ParseInt(args[1], 10, 64); err != nil || f.Limit < 1 {
				return usageError{wrongLimit(args[1])}
			}
			if f.Per, err = perText(f.Per); err != nil {
				return err
			}
			if until != "" {
				if f.Until, err = time.Parse(time.RFC3339, until); err != nil {
					return usagef("--until is %q, want a time such as 2027-01-31T12:00:00Z", until)
				}
			}
			if err := f.Check(time.Now()); err != nil {
				return usageError{err}
			}
			var filed developers.Request
			if err := door.ask(cmd.Context(), http.MethodPost, "/v1/requests", nil, f, &filed); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), filed)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "filed %s: %s for %s, for project %s\n", plain(filed.ID),
				plain(askedText(&filed)), lasting(&filed), plain(filed.Project))
			return err
		},
	}
	door.addFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.Subject, "subject", "principal",
		"whose requests share the limit, as headgate budgets --json shows it")
	flags.StringVar(&f.Per, "per", "1s", "time over which LIMIT is given, in whole seconds")
	flags.Int64Var(&f.Burst, "burst", 0, "most requests at once (default: as many as LIMIT)")
	flags.StringVar(&f.For, "for", "", "how long it is needed from the approval on, such as 48h")
	flags.StringVar(&until, "until", "", "or until when: 2027-01-31T12:00:00Z")
	flags.StringVar(&f.Reason, "reason", "", "why, in a line (needed)")
	flags.StringVar(&f.Name, "name", "", "who asks")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	takesNumber(cmd, wrongLimit)
	return cmd
}

func newRequestMine() *cobra.Command {
	var door doorFlags
	var state string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mine",
		Short: "List the requests of your project, newest first",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if state != "" {
				query.Set("state", state)
			}
			var page developers.RequestList
			if err := door.ask(cmd.Context(), http.MethodGet, "/v1/requests", query, nil, &page); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), page.Requests)
			}
			list := make([]admin.LimitRequest, len(page.Requests))
			for i := range page.Requests {
				list[i].Request = page.Requests[i]
			}
			if len(list) == 1 {
				return writeRequest(cmd.OutOrStdout(), &list[0])
			}
			return writeRequests(cmd.OutOrStdout(), list)
		},
	}
	door.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&state, "state", "", "open, approved, declined, withdrawn or expired (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newRequestWithdraw() *cobra.Command {
	var door doorFlags
	var out printer
	cmd := &cobra.Command{
		Use:   "withdraw ID",
		Short: "Withdraw an open request of your project",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var done developers.Request
			if err := door.ask(cmd.Context(), http.MethodDelete, "/v1/requests/"+url.PathEscape(args[0]), nil, nil,
				&done); err != nil {
				return err
			}
			return out.say(cmd, done, "withdrew %s", plain(done.ID))
		},
	}
	door.addFlags(cmd.Flags())
	out.addFlags(cmd)
	return cmd
}
