package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/store"
)

// throughFlags have a running gateway do what a command else does in the
// database itself: for those who can reach the one and not the other, and for a
// change to be made in the name of an admin token.
type throughFlags struct{ server, tokenFile string }

func (f *throughFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", "", "have a running gateway do it: its admin listener, such as http://127.0.0.1:8081 (default: open the database)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the admin token, if that gateway wants one")
}

// client is how to ask the gateway, nil without one.
func (f *throughFlags) client(cmd *cobra.Command) (*client.Client, error) {
	if f.server == "" {
		if f.tokenFile != "" {
			return nil, usagef("--token-file is for a gateway, want --server too")
		}
		return nil, nil
	}
	if db := cmd.Flags().Lookup("db"); db != nil && db.Changed {
		return nil, usagef("--server and --db are both given, want one: the gateway has its own database")
	}
	return dial(f.server, f.tokenFile)
}

func dial(server, tokenFile string) (*client.Client, error) {
	token := ""
	if tokenFile != "" {
		var err error
		if token, err = daemon.ReadToken(tokenFile); err != nil {
			return nil, err
		}
	}
	c, err := client.New(server, token)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// through does something with the gateway, if one is named, else with the
// database. T is what both can do.
func through[T any](cmd *cobra.Command, f *throughFlags, from *configFlags, open opener, remote func(*client.Client) T, local func(*store.Store) T, do func(T) error) error {
	c, err := from.read(cmd)
	if err != nil {
		return err
	}
	asked, err := f.client(cmd)
	if err != nil {
		return err
	}
	if asked != nil {
		return do(remote(asked))
	}
	c.FillPaths()
	db, err := open(cmd.Context(), c)
	if err != nil {
		return err
	}
	return errors.Join(do(local(db)), db.Close())
}
