package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/openapi"
)

func newRoutes() *cobra.Command {
	var from configFlags
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "List the endpoints that the documents declare",
		Long: `List the endpoints that the documents declare, as the gateway knows them: the
method, the path with its base path, the operation and the document. What is
wrong with a document follows: an operation that is left out, or counts as one
with another. --strict makes that an error, as openapi_strict does.`,
		Example: `  headgate routes --openapi petstore.yaml
  headgate routes --config headgate.yaml --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			if len(c.OpenAPI)+len(c.Routes) == 0 {
				return usagef("no document: give --openapi FILE, --routes FILE, or --config FILE that names one")
			}
			c.OpenAPIStrict = c.OpenAPIStrict || strict
			registry, err := daemon.Endpoints(c)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeRoutesJSON(cmd.OutOrStdout(), registry.Operations)
			} else {
				err = writeRoutes(cmd.OutOrStdout(), registry.Operations)
			}
			for _, w := range registry.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", plain(w.String()))
			}
			return err
		},
	}
	from.addFlags(cmd, "openapi", "routes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse a document of which a part cannot be read")
	cmd.AddCommand(newRoutesFrom())
	return cmd
}

// route is an operation as --json prints it.
type route struct {
	Method      string `json:"method"`
	Path        string `json:"path"`
	BasePath    string `json:"base_path,omitempty"`
	Template    string `json:"template"`
	OperationID string `json:"operation_id,omitempty"`
	Source      string `json:"source"`
}

func writeRoutesJSON(w io.Writer, ops []openapi.Operation) error {
	routes := make([]route, len(ops))
	for i, op := range ops {
		routes[i] = route{op.Method, op.Path, op.BasePath, op.Template.String(), op.OperationID, op.Source}
	}
	return writeJSON(w, routes)
}

func writeRoutes(w io.Writer, ops []openapi.Operation) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "METHOD\tPATH\tOPERATION\tDOCUMENT")
	for _, op := range ops {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", op.Method, strings.TrimPrefix(op.Template.String(), op.Method+" "),
			op.OperationID, filepath.Base(op.Source))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d operations\n", len(ops))
	return err
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
