package main

import (
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/config"
)

func newConfig() *cobra.Command {
	return group("config", "Help with the configuration file", newConfigSchema())
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON Schema of the configuration file, for editors",
		Long: `Print a JSON Schema (draft 2020-12) of the file that serve --config reads. An
editor that knows it completes settings, explains them, and marks unknown names
and values that cannot be right. Those that speak to yaml-language-server are
told by the first line of the file:

  # yaml-language-server: $schema=headgate.schema.json

What only holds between settings, headgate doctor checks.`,
		Example: `  headgate config schema > headgate.schema.json`,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema)
			return err
		},
	}
}
