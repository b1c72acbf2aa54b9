package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/collector"
	"github.com/headgate-io/headgate/server/demo"
)

func newDemo() *cobra.Command {
	o := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it working: an API, the gateway, three kinds of clients",
		Long: `Start an example API, a gateway in front of it with rules in an embedded
database, and three kinds of clients: one polite, one greedy, and an attacker
that writes every request in another spelling with another address and key. What
each is allowed is drawn live, with lines to try yourself. Everything it makes is
in a temporary folder and goes away at the end.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.For < 0 {
				return usagef("--for is %v, want 0 or more", o.For)
			}
			o.Out, o.Version, o.Program = cmd.OutOrStdout(), programVersion(), program()
			if f, ok := o.Out.(*os.File); ok {
				o.Terminal = isatty.IsTerminal(f.Fd())
			}
			collector.Relax()() // its few rules are no start to wait for
			return demo.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address of the gateway; a free port is taken if it is in use")
	cmd.Flags().StringVar(&o.Admin, "admin", "127.0.0.1:8081", "address of the admin listener; likewise")
	cmd.Flags().DurationVar(&o.For, "for", 0*time.Second, "end after this long (default: at Ctrl-C)")
	return cmd
}

// program is how the reader called this command: a path they can paste.
func program() string {
	path := os.Args[0]
	if filepath.Base(path) == path {
		return path // found on PATH
	}
	if abs, err := filepath.Abs(path); err == nil {
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, abs); err == nil && filepath.IsLocal(rel) {
				return "./" + rel
			}
		}
	}
	return path
}
