package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/headgate-io/headgate/server/collector"
	"github.com/headgate-io/headgate/server/demo"
)

func newDemo() *cobra.Command {
	o := demo.Options{}
	var asLines bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it working: an API, the gateway, three kinds of clients",
		Long: `Start an example API, a gateway in front of it with rules in an embedded
database, and three kinds of clients: one polite, one greedy, and an attacker
that writes every request in another spelling with another address and key. What
each is allowed is drawn live, with the address of the gateway's page and lines to
try yourself. Everything it makes is in a temporary folder and goes away at the end.`,
		Example: `  headgate demo
  headgate demo --plain --for 10s`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.For < 0 {
				return usagef("--for is %v, want 0 or more", o.For)
			}
			o.Out, o.Version, o.Program = cmd.OutOrStdout(), programVersion(), program()
			if f, ok := o.Out.(*os.File); ok && isatty.IsTerminal(f.Fd()) && !asLines {
				o.Size = func() (columns, rows int) { return sizeOf(f) }
			}
			collector.Relax()() // its few rules are no start to wait for
			// A terminal that is closed, or a pipe, ends it as Ctrl-C does: what it made goes away.
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			return demo.Run(ctx, o)
		},
	}
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:8080",
		"address of the gateway; a free port is taken if it is in use")
	cmd.Flags().StringVar(&o.Admin, "admin", "127.0.0.1:8081", "address of the admin listener; likewise")
	cmd.Flags().BoolVar(&asLines, "plain", false, "print lines, as into a pipe, and draw on no screen")
	cmd.Flags().DurationVar(&o.For, "for", 0*time.Second, "end after this long (default: at Ctrl-C)")
	return cmd
}

// sizeOf is how large a terminal is; 80 by 24 if it does not say.
func sizeOf(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
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
