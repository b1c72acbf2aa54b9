package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/dsn"
	"github.com/headgate-io/headgate/server/lint"
)

// lintFlags are what `policy lint` takes besides the configuration.
type lintFlags struct {
	format  string
	json    bool
	failOn  string
	ignore  []string
	list    bool
	explain string
}

func newPolicyLint() *cobra.Command {
	var from configFlags
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint [FILE...]",
		Short: "Check the rules of the database or of files",
		Long: `Check the rules of the database, or of policy files, with the code that the
gateway loads rules with. With --openapi, --routes or --config the endpoints and
costs are checked too; without, the templates of the rules are taken for the
endpoints there are. With --server a running gateway checks them, those of its
database or of the files, among its own endpoints and costs.

The exit status is 0 if nothing of the severity of --fail-on or above was found,
1 if something was, and 2 if the rules could not be checked: a file that is not
there, a flag that is wrong. docs/lint.md explains every check.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch out := cmd.OutOrStdout(); {
			case f.list && (f.explain != "" || len(args) > 0), f.explain != "" && len(args) > 0:
				return usagef("--list and --explain stand alone; see `%s --help`", cmd.CommandPath())
			case f.list:
				return listChecks(out)
			case f.explain != "":
				return explainCheck(out, f.explain)
			}
			if err := f.check(); err != nil {
				return usageError{err}
			}
			results, err := lintAll(cmd, &from, f.ignore, args)
			if err != nil {
				return usageError{err}
			}
			return errors.Join(f.write(cmd.OutOrStdout(), results), f.verdict(results))
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes", "server")
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "text", "how to print what was found: text, json or sarif")
	flags.BoolVar(&f.json, "json", false, "the same as --format json")
	flags.StringVar(&f.failOn, "fail-on", "error", "what makes the exit status 1: error, warning or never")
	flags.StringArrayVar(&f.ignore, "ignore", nil, "code of warnings or notes to accept (repeatable)")
	flags.BoolVar(&f.list, "list", false, "print every check there is")
	flags.StringVar(&f.explain, "explain", "", "print what a check means, by its code")
	return cmd
}

func (f *lintFlags) check() error {
	var faults []error
	if f.json {
		f.format = "json"
	}
	if !slices.Contains([]string{"text", "json", "sarif"}, f.format) {
		faults = append(faults, fmt.Errorf("--format is %q, want text, json or sarif", f.format))
	}
	if !slices.Contains([]string{"error", "warning", "never"}, f.failOn) {
		faults = append(faults, fmt.Errorf("--fail-on is %q, want error, warning or never", f.failOn))
	}
	return errors.Join(append(faults, lint.CheckIgnore("--ignore", f.ignore))...)
}

// lintAll lints every file, or the database when none is named.
func lintAll(cmd *cobra.Command, from *configFlags, ignore, files []string) ([]lint.Result, error) {
	o := lint.Options{Ignore: ignore}
	var err error
	if o.Compile, err = from.endpointsForDatabase(cmd); err != nil {
		return nil, err
	}
	o.Compile.Now = time.Now()
	if !cmd.Flags().Changed("config") {
		o.Compile.UnknownRefused = false // nothing says so of the gateway that the rules are for
	}
	gateway, err := from.through.client(cmd)
	if err != nil {
		return nil, err
	}
	one := lint.File
	if gateway != nil {
		one = func(name string, o lint.Options) (lint.Result, error) {
			return lintThere(cmd.Context(), gateway, name, o)
		}
	}
	if len(files) == 0 {
		r, err := lintDatabase(cmd, from, gateway, o)
		return []lint.Result{r}, err
	}
	var results []lint.Result
	var faults []error
	for _, name := range files {
		r, err := one(name, o)
		results, faults = append(results, r), append(faults, err)
	}
	return results, errors.Join(faults...)
}

// lintThere has a gateway look at a file. It takes JSON, line by line what a file
// in YAML has; what is neither needs no gateway to be told so.
func lintThere(ctx context.Context, gateway *client.Client, name string, o lint.Options) (lint.Result, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return lint.Result{}, err
	}
	sent, err := config.ToJSON(text)
	if err != nil || !json.Valid(sent) {
		return lint.Text(text, name, o), nil
	}
	return gateway.Lint(ctx, sent, filepath.ToSlash(name), o.Ignore)
}

func lintDatabase(cmd *cobra.Command, from *configFlags, gateway *client.Client, o lint.Options) (lint.Result, error) {
	if gateway != nil {
		return gateway.LintDatabase(cmd.Context(), o.Ignore)
	}
	c, err := from.read(cmd)
	if err != nil {
		return lint.Result{}, err
	}
	return lintOwnDatabase(cmd.Context(), c, o)
}

func lintOwnDatabase(ctx context.Context, c config.Config, o lint.Options) (lint.Result, error) {
	c.FillPaths()
	db, err := daemon.OpenDatabaseReadOnly(ctx, c)
	if err != nil {
		return lint.Result{}, err
	}
	doc, _, err := db.Load(ctx)
	if err := cmp.Or(err, db.Close()); err != nil {
		if lint.ProblemsIn(err) != nil {
			return lint.Unread(dsn.Redact(c.DB), err), nil
		}
		return lint.Result{}, err
	}
	return lint.Document(doc, o), nil
}

func (f *lintFlags) write(w io.Writer, results []lint.Result) error {
	switch f.format {
	case "json":
		return lint.WriteJSON(w, results)
	case "sarif":
		return lint.WriteSARIF(w, results, programVersion())
	}
	return lint.WriteText(w, results)
}

// Exits of a lint that found what it should not, and has printed it.
var (
	errLint  = errors.New("the rules have errors")
	errDoubt = errors.New("the rules have warnings, and --fail-on is warning")
)

func (f *lintFlags) verdict(results []lint.Result) error {
	switch n := lint.Total(results); {
	case f.failOn == "never":
		return nil
	case n.Errors > 0:
		return errLint
	case n.Warnings > 0 && f.failOn == "warning":
		return errDoubt
	}
	return nil
}

func listChecks(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CODE\tSEVERITY\tWHAT IT FINDS")
	for _, check := range policy.Checks() {
		fmt.Fprintf(table, "%s\t%s\t%s\n", check.Code, check.Severity, lint.Summary(check.Code))
	}
	return table.Flush()
}

func explainCheck(w io.Writer, code string) error {
	if _, err := policy.FindCheck(code); err != nil {
		var problem policy.Problem
		if errors.As(err, &problem) {
			problem.Field, problem.Want = "--explain", problem.Want+"; --list prints them"
			err = problem
		}
		return usageError{err}
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s\n", code, strings.TrimSpace(lint.Explain(code)))
	return err
}
