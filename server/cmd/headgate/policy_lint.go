package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/store"
)

// errLint is the exit of a lint that found errors, which it has printed.
var errLint = errors.New("the rules have errors")

func newPolicyLint() *cobra.Command {
	var from configFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint [FILE]",
		Short: "Check the rules of the database or of a file",
		Long: `Check the rules of the database, or of a policy file, as the gateway does when it
starts. With --openapi, --routes or --config the endpoints and costs are checked
too. The exit status is 1 if there are errors, 0 if there are at most warnings.`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			o, err := compileOptions(c)
			if err != nil {
				return err
			}
			o.Now = time.Now()
			doc, err := document(cmd.Context(), c, args)
			if unread := problemsIn(err); unread != nil {
				return report(cmd.OutOrStdout(), doc, unread, asJSON)
			}
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), doc, policy.Lint(doc, o), asJSON)
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// document reads the rules of a file if one is named, else the database's.
func document(ctx context.Context, c config.Config, args []string) (policy.Document, error) {
	if len(args) == 1 {
		return readPolicies(args[0])
	}
	c.FillPaths()
	db, err := store.OpenReadOnly(ctx, c.DB)
	if err != nil {
		return policy.Document{}, err
	}
	doc, _, err := db.Load(ctx)
	return doc, errors.Join(err, db.Close())
}

// problemsIn returns the problems that err, from reading rules, is made of;
// nil when it is about something else.
func problemsIn(err error) (found policy.Problems) {
	if one := (policy.Problem{}); errors.As(err, &one) {
		found = policy.Problems{one}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		found = nil
		for _, e := range joined.Unwrap() {
			found = append(found, problemsIn(e)...)
		}
	}
	return found
}

// finding is a problem as --json prints it.
type finding struct {
	Severity policy.Severity `json:"severity"`
	Code     string          `json:"code"`
	Where    string          `json:"where,omitempty"`
	Field    string          `json:"field"`
	Value    string          `json:"value"`
	Want     string          `json:"want"`
}

func report(w io.Writer, doc policy.Document, problems policy.Problems, asJSON bool) error {
	if asJSON {
		findings := make([]finding, len(problems))
		for i, p := range problems {
			findings[i] = finding{p.Severity, p.Code, p.Where, p.Field, p.Value, p.Want}
		}
		if err := writeJSON(w, findings); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintf(w, "%s: %s [%s]\n", p.Severity, p.Error(), p.Code)
		}
		if doc.Rules != nil { // else it could not be read
			fmt.Fprintf(w, "%d rules, ", len(doc.Rules))
		}
		fmt.Fprintf(w, "%d errors, %d warnings\n", len(problems.Errors()), len(problems.Warnings()))
	}
	if len(problems.Errors()) > 0 {
		return errLint
	}
	return nil
}
