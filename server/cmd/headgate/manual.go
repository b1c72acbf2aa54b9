package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManual writes the pages that packages install. Who has the command has its help.
func newManual() *cobra.Command {
	return &cobra.Command{
		Use:    "manual FOLDER",
		Short:  "Write manual pages into a folder",
		Hidden: true,
		Args:   arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			date := builtAt()
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{
				Section: "1",
				Source:  "headgate " + programVersion(),
				Manual:  "Headgate",
				Date:    &date,
			}, args[0]); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			return nil
		},
	}
}

// builtAt is when the commit was made that the program is built from: the same for whoever builds it.
func builtAt() time.Time {
	at, _ := time.Parse(time.RFC3339, built("vcs.time"))
	return at
}
