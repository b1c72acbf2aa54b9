package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// printer is how a command says what it did: in a line of words, or with --json as an object.
type printer struct{ asJSON bool }

func (p *printer) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.asJSON, "json", false, "print JSON")
}

func (p *printer) say(cmd *cobra.Command, object any, words string, args ...any) error {
	if p.asJSON {
		return writeJSON(cmd.OutOrStdout(), object)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), plain(fmt.Sprintf(words, args...)))
	return err
}
