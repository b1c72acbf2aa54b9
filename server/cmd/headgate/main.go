// Command headgate limits the rate of API requests: a gateway, and the tools
// to write and understand its rules.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // for rules by the calendar, where the system has no time zones: in a container

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // public authorities, where the system knows none: in a container

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/internal/edits"
	"github.com/headgate-io/headgate/server/record"
)

func main() {
	outliveFileSize()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes: a script can tell "you called me wrongly" from "it did not work".
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitChanges = 3 // --dry-run found something to change
)

// usageError is a mistake in the call itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// run executes one command line and maps its error to an exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(stderr, "headgate: %s\n", plain(line)) // it may repeat what others wrote
	}
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.Is(err, errWouldChange):
		return exitChanges
	}
	return exitFailure
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "Rate limiting as a security control",
		Long: `Headgate limits the rate of API requests. It stands in front of an API, knows
its endpoints, verifies whose budget a request uses, finds the rules in a
database, and allows the request or says exactly why not and for how long.

Start with "headgate demo", then "headgate serve --help". For a shell that
completes its commands: "headgate completion --help".`,
		SilenceErrors: true, SilenceUsage: true,
		Version:           versionWords(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs, // so that onlyChildren sees them
		RunE:              onlyChildren,
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return refuseEmpty(cmd.Flags()) }
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if named := cmd.Flags().Args(); holdsOnly(cmd) && len(named) > 0 {
			return onlyChildren(cmd, named) // its flags are those of the command that there is not
		}
		return usagef("%w; %ssee `%s --help`", wrongFlag(err), nearFlag(cmd, err), cmd.CommandPath())
	})
	root.SetVersionTemplate("headgate {{.Version}}\n")
	root.SetHelpCommand(newHelp())
	cobra.AddTemplateFunc("wrapped", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(helpWidth) })
	root.SetUsageTemplate(strings.NewReplacer(".LocalFlags.FlagUsages", "wrapped .LocalFlags",
		".InheritedFlags.FlagUsages", "wrapped .InheritedFlags").Replace(root.UsageTemplate()))
	root.AddCommand(
		newServe(), newReload(), newReady(), newDoctor(), newConfig(), newRoutes(), newExplain(), newActivity(),
		newAnomalies(), newUsage(), newFleet(),
		newPolicy(), newProject(), newBucket(), newBudgets(), newRequest(), newAudit(),
		newKey(), newToken(), newSecret(), newAdmin(),
		newAttack(), newReplay(), newConvert(), newSuggest(), newClients(), newEdge(),
		newTelemetry(), newKube(),
		newDemo(), newVersion(), newManual(),
	)
	return root
}

// refuseEmpty names the flags that are given and say nothing, as of a variable that is not set. Without them a rule
// would be that of everybody, a key would never end, and the admin API would want no token.
func refuseEmpty(flags *pflag.FlagSet) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = slices.Contains(list.GetSlice(), "")
		}
		if empty {
			errs = append(errs, fmt.Errorf("--%s is empty, want a value, or no such flag", f.Name))
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return usageError{errors.Join(errs...)}
}

// helpWidth is how wide the help of flags is at most, in columns.
const helpWidth = 100

// wrongFlag says of a flag's value what would be right, where the library speaks
// of Go's types.
func wrongFlag(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	if invalid.GetFlag().Name == "why" {
		return fmt.Errorf("--why is %d bytes long, want one line of text, at most %d bytes", len(invalid.GetValue()),
			record.MaxWhy)
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "duration": "a duration such as 10s",
		"bool": "true or false", "bytes": "an amount of memory such as 64MiB",
	}[invalid.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s is %q, want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// nearFlag is what a flag that there is not was probably meant to be, as an error says it.
func nearFlag(cmd *cobra.Command, err error) string {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return ""
	}
	near, least := "", 3 // two letters may be wrong
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := edits.Distance(clip.To(missing.GetSpecifiedName(), 60), f.Name, least); d < least {
			near, least = f.Name, d
		}
	})
	if near == "" {
		return ""
	}
	return "did you mean --" + near + "? "
}

// arguments refuses a wrong number of arguments as a mistake of usage.
func arguments(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") // the error begins with the program's
			_, names, _ := strings.Cut(cmd.Use, " ")
			names, _, _ = strings.Cut(names, " --")
			if high == 0 || len(strings.Fields(names)) != high {
				names = "" // what is said of them is about another way to call it
			} else {
				names = " (" + names + ")"
			}
			return usagef("%s takes %s%s, got %d; see `%s --help`", name, count(low, high), names, len(args),
				cmd.CommandPath())
		}
		return nil
	}
}

func count(low, high int) string {
	switch {
	case high == 0:
		return "no arguments"
	case low == high && low == 1:
		return "1 argument"
	case low == high:
		return fmt.Sprintf("%d arguments", low)
	}
	return fmt.Sprintf("%d to %d arguments", low, high)
}

// group returns a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: onlyChildren}
	cmd.AddCommand(children...)
	return cmd
}

// holdsOnly reports whether a command does nothing but hold others: those that do something too say how many
// arguments they take.
func holdsOnly(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && (cmd.Args == nil || !cmd.HasParent())
}

// newHelp is the library's help command, with an exit status for a command that
// there is not.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			named, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return onlyChildren(named, rest)
			}
			named.InitDefaultHelpFlag()
			return named.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion,
			_ cobra.ShellCompDirective) {
			if named, _, err := cmd.Root().Find(args); err == nil {
				for _, child := range named.Commands() {
					if child.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(child.Name(), child.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// onlyChildren runs a command that only holds others: help without arguments,
// else an error about the child there is not.
func onlyChildren(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	meant := ""
	if near := append(nearest(cmd.SuggestionsFor(args[0]), args[0]), deeper(cmd, args[0])...); len(near) > 0 {
		meant = fmt.Sprintf("did you mean %q? ", near[0])
	}
	return usagef("unknown command %q for %q; %ssee `%s --help`", args[0], cmd.CommandPath(), meant, cmd.CommandPath())
}

// nearest puts the commands first that differ least from a name.
func nearest(commands []string, name string) []string {
	slices.SortStableFunc(commands, func(a, b string) int {
		return edits.Distance(clip.To(name, 60), a, 60) - edits.Distance(clip.To(name, 60), b, 60)
	})
	return commands
}

// deeper is what the children of cmd have under a name: "policy lint", of the program, for lint.
func deeper(cmd *cobra.Command, name string) (paths []string) {
	for _, child := range cmd.Commands() {
		for _, below := range child.Commands() {
			if below.Name() == name && below.IsAvailableCommand() {
				paths = append(paths, child.Name()+" "+name)
			}
		}
	}
	return paths
}
