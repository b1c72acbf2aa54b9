package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/admin"
)

func newReload() *cobra.Command {
	var flags throughFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running gateway read its configuration and documents again",
		Long: `Have a running gateway read its configuration, the documents of its endpoints
and the database again, as SIGHUP does. What can change while it runs is put in
force: endpoints, their costs and rules, how callers are told apart, what they may
hold, the API behind it, answers, certificates, the admin token, traces, warnings
and logs. With a fault anywhere nothing changes, and the fault is the error.
Buckets and connections stay.

It says which settings have changed and wait for a restart.`,
		Example: `  headgate reload
  headgate reload --server http://10.0.0.5:8081 --token-file ops.token`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			gateway, err := flags.client(cmd)
			if err != nil {
				return err
			}
			done, err := gateway.Reload(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(done)
			}
			sayReloaded(cmd.OutOrStdout(), done)
			return nil
		},
	}
	flags.addNeeded(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func sayReloaded(w io.Writer, done admin.Reloaded) {
	fmt.Fprintf(w, "rules      %d\n", done.Rules)
	r := done.Reload
	if r == nil { // a gateway of before there were reloads
		fmt.Fprintln(w, "restart    wanted for whatever else changed: this gateway reads rules again, and nothing else")
		return
	}
	fmt.Fprintf(w, "endpoints  %d, %d of them new, %d gone\n", r.Endpoints, r.Added, r.Removed)
	if len(r.Changed) > 0 || r.Added+r.Removed > 0 {
		fmt.Fprintf(w, "changed    %s\n", cmp.Or(strings.Join(r.Changed, ", "), "nothing else"))
	}
	if len(r.Restart) > 0 {
		fmt.Fprintf(w, "restart    wanted for %s\n", strings.Join(r.Restart, ", "))
	}
}
