package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
)

// throughFlags have a running gateway do what a command else does in the
// database itself: for those who can reach the one and not the other, and for a
// change to be made in the name of an admin token.
type throughFlags struct{ server, tokenFile string }

func (f *throughFlags) addFlags(cmd *cobra.Command) {
	f.add(cmd, "", ", such as "+usualServer+" (default: none, the database is opened)")
}

// addNeeded is addFlags for what only a running gateway can do.
func (f *throughFlags) addNeeded(cmd *cobra.Command) {
	f.add(cmd, usualServer, "")
}

// usualServer is the admin listener of a gateway that is not told otherwise.
const usualServer = "http://127.0.0.1:8081"

func (f *throughFlags) add(cmd *cobra.Command, usual, more string) {
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", usual, "admin listener of the running gateway to ask"+more)
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

// endpointsForDatabase reads the documents of the endpoints for what is checked
// here. A gateway checks among its own.
func (f *configFlags) endpointsForDatabase(cmd *cobra.Command) (policy.CompileOptions, error) {
	if f.through.server != "" {
		for _, name := range []string{"openapi", "routes"} {
			if cmd.Flags().Changed(name) {
				return policy.CompileOptions{},
					usagef("--server and --%s are both given, want one: the gateway knows its own endpoints", name)
			}
		}
		return policy.CompileOptions{}, nil
	}
	c, err := f.read(cmd)
	if err != nil {
		return policy.CompileOptions{}, err
	}
	return compileOptions(c, f.file)
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
func through[T any](cmd *cobra.Command, f *throughFlags, from *configFlags, open opener, remote func(*client.Client) T,
	local func(*database.Store) T, do func(T) error) error {
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
