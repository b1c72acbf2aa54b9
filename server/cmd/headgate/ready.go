package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// readiness is what `headgate ready --json` prints.
type readiness struct {
	Ready    bool     `json:"ready"`
	Why      string   `json:"why,omitempty"` // it is not
	Warnings []string `json:"warnings"`
}

func newReady() *cobra.Command {
	var flags throughFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Say whether a running gateway is ready, for health checks",
		Long: `Say whether a running gateway can be sent requests: it has rules that can be
relied on, and does not end. The exit status is 0 if so, else 1. It asks /readyz
of the admin listener once, which wants no token: for health checks where there
is no other program, as in a container.`,
		Example: `  headgate ready
  headgate ready --server http://10.0.0.5:8081 --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			gateway, err := flags.client(cmd)
			if err != nil {
				return err
			}
			warnings, err := gateway.Ready(cmd.Context())
			if asJSON {
				r := readiness{Ready: err == nil, Warnings: append([]string{}, warnings...)}
				if err != nil {
					r.Why = err.Error()
				}
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				if failed := out.Encode(r); failed != nil {
					return failed
				}
			}
			if err != nil || asJSON {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "ready")
			for _, warning := range warnings {
				fmt.Fprintln(cmd.OutOrStdout(), "warning:", warning)
			}
			return nil
		},
	}
	flags.addNeeded(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
