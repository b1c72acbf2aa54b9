package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/convert"
	"github.com/headgate-io/headgate/server/framework"
	"github.com/headgate-io/headgate/server/lint"
)

func newRoutesFrom() *cobra.Command {
	var script, asJSON, strict bool
	names := framework.Names()
	list := strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	var commands strings.Builder
	for _, name := range names {
		fmt.Fprintf(&commands, "  %-8s %s\n", name, framework.Command(name))
	}
	cmd := &cobra.Command{
		Use:   "from FRAMEWORK [FILE]",
		Short: "Make a list of routes of what an application's framework prints",
		Long: `Make a list of routes, as --routes takes it, of the routes that an application
reports. FRAMEWORK is ` + list + `.
Without FILE, or as -, standard input is read: what one of these prints,

` + commands.String() + `
of which --script prints the program that the application's Python or Node runs.

What differs, and what could not be carried over, goes to standard error, each
with its line. Read it before the list is used.`,
		Example: `  bin/rails routes | headgate routes from rails >routes.txt
  headgate routes from fastapi --script | python - main:app | headgate routes from fastapi >routes.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || len(args) > 2:
				return usagef("routes from takes a framework and a file, want headgate routes from FRAMEWORK [FILE]")
			case !slices.Contains(names, args[0]):
				return usagef("FRAMEWORK is %q, want one of %s", args[0], strings.Join(names, ", "))
			case script && framework.Script(args[0]) == "":
				return usagef("--script is given for %s, which has a command of its own: %s", args[0],
					framework.Command(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if script {
				_, err := fmt.Fprint(cmd.OutOrStdout(), framework.Script(args[0]))
				return err
			}
			files, err := readConfigurations(cmd.InOrStdin(), append(args[1:], "-")[:1])
			if err != nil {
				return err
			}
			found, err := framework.Read(args[0], files[0].Name, string(files[0].Text))
			if err != nil {
				return err
			}
			return writeFound(cmd, found, asJSON, strict)
		},
	}
	cmd.Flags().BoolVar(&script, "script", false, "print the program that prints the routes inside the application")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: the routes and the notes")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 if something could not be carried over")
	return cmd
}

func writeFound(cmd *cobra.Command, found framework.Routes, asJSON, strict bool) error {
	notes, lost := notesOf(found.Notes)
	if asJSON {
		if err := writeJSON(cmd.OutOrStdout(), struct {
			Routes []string         `json:"routes"`
			Notes  []conversionNote `json:"notes"`
		}{append([]string{}, found.Templates...), notes}); err != nil {
			return err
		}
	} else {
		for _, t := range found.Templates {
			fmt.Fprintln(cmd.OutOrStdout(), t)
		}
		for _, n := range found.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), plain(n.String()))
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s found: %s, %d that differ, %d not carried over\n",
			lint.Counted(found.Found+lost, "route", "routes"),
			lint.Counted(len(found.Templates), "endpoint", "endpoints"), len(notes)-lost, lost)
	}
	if strict && lost > 0 {
		return errors.New("something could not be carried over")
	}
	return nil
}

// notesOf are notes for JSON, and how many are of what was lost.
func notesOf(list []convert.Note) (notes []conversionNote, lost int) {
	notes = []conversionNote{}
	for _, n := range list {
		notes = append(notes, conversionNote{n.File, n.Line, n.Severity.String(), n.Text})
		if n.Severity == convert.Lost {
			lost++
		}
	}
	return notes, lost
}
