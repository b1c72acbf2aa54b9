package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// confirmation is asked for before much is changed at once.
type confirmation struct{ yes bool }

func (c *confirmation) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask, go on")
}

// errDeclined is the answer of somebody who thought better of it.
var errDeclined = errors.New("nothing was changed")

// ask asks on the terminal. Where there is none, a script must say --yes.
func (c *confirmation) ask(cmd *cobra.Command, question string) error {
	if c.yes {
		return nil
	}
	if !isTerminal(cmd.InOrStdin()) {
		return usagef("standard input is not a terminal to ask on; pass --yes to go on without being asked")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	return errDeclined
}
