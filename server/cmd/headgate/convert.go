package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/convert"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/rules"
)

// envoyFormat is the format that needs no conversion. People call it by the name of what reads it as well.
const envoyFormat = "envoy"

func isEnvoyFormat(name string) bool {
	return name == envoyFormat || name == "ratelimit" || name == "envoyproxy/ratelimit"
}

// maxConfiguration bounds what is read of a configuration.
const maxConfiguration = 16 << 20

func newConvert() *cobra.Command {
	var from configFlags
	var routes string
	var strict, asJSON bool
	names := append(convert.Formats(), envoyFormat)
	slices.Sort(names)
	cmd := &cobra.Command{
		Use:   "convert FORMAT FILE...",
		Short: "Make rules of another limiter's configuration",
		Long: `Make rules of the configuration of another limiter, and say in words what differs
then and what could not be carried over. FORMAT is ` + strings.Join(names[:len(names)-1], ", ") + ` or
` + names[len(names)-1] + `; - is standard input. The rules are printed as a policy file, with the line that each
was made of; the words go to standard error.

Give --openapi or --routes with the endpoints of your API, so that a limit for a
part of the paths becomes one for each endpoint there. Without them endpoints are
made of the paths, and --write-routes writes them to a file.

Configurations of envoyproxy/ratelimit need no conversion: they are checked.`,
		Example: `  headgate convert nginx /etc/nginx/nginx.conf --openapi api.yaml >rules.yaml
  kubectl get ingress -A -o yaml | headgate convert ingress-nginx -
  nginx -T | headgate convert nginx - --write-routes routes.txt >rules.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) < 2:
				return usagef("convert takes a format and files, want headgate convert FORMAT FILE...")
			case !slices.Contains(names, args[0]) && !isEnvoyFormat(args[0]):
				return usagef("FORMAT is %q, want one of %s", args[0], strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if isEnvoyFormat(args[0]) {
				return checkDescriptors(cmd.OutOrStdout(), args[1:])
			}
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			var o convert.Options
			if o.Endpoints, err = knownEndpoints(c); err != nil {
				return err
			}
			files, err := readConfigurations(cmd.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			result, err := convert.Convert(args[0], files, o)
			if err != nil {
				return err
			}
			if routes != "" {
				if err := os.WriteFile(routes, []byte(strings.Join(append(result.Routes, ""), "\n")),
					0o644); err != nil {
					return err
				}
			}
			return writeConversion(cmd, result, asJSON, strict)
		},
	}
	from.addFlags(cmd, "openapi", "routes")
	cmd.Flags().StringVar(&routes, "write-routes", "", "file to write the endpoints to that were made of paths")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 if something could not be carried over")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: the rules, the routes and the notes")
	return cmd
}

// knownEndpoints are the endpoints of the documents that were named, if any were.
func knownEndpoints(c config.Config) (list []endpoint.Template, err error) {
	if len(c.OpenAPI)+len(c.Routes) == 0 {
		return nil, nil
	}
	registry, err := daemon.Endpoints(c)
	if err != nil {
		return nil, err
	}
	for _, t := range registry.Table.All() {
		list = append(list, t)
	}
	return list, nil
}

func readConfigurations(in io.Reader, names []string) (files []convert.File, err error) {
	for _, name := range names {
		f := convert.File{Name: name}
		from := in
		if name == "-" {
			f.Name = "standard input"
		} else {
			opened, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			defer opened.Close()
			from = opened
		}
		if f.Text, err = io.ReadAll(io.LimitReader(from, maxConfiguration+1)); err != nil {
			return nil, err
		}
		if len(f.Text) > maxConfiguration {
			return nil, fmt.Errorf("%s has more than %d bytes, want a configuration", f.Name, maxConfiguration)
		}
		files = append(files, f)
	}
	return files, nil
}

// conversionNote is a convert.Note in JSON.
type conversionNote struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Kind string `json:"kind"` // differs, or not carried over
	Text string `json:"text"`
}

func writeConversion(cmd *cobra.Command, r convert.Result, asJSON, strict bool) error {
	notes, lost := notesOf(r.Notes)
	if asJSON {
		if err := writeJSON(cmd.OutOrStdout(), struct {
			Limits int              `json:"limits"`
			Rules  []file.Entry     `json:"rules"`
			Routes []string         `json:"routes"`
			Notes  []conversionNote `json:"notes"`
		}{r.Limits, rules.Entries(r.Policy().Rules), append([]string{}, r.Routes...), notes}); err != nil {
			return err
		}
	} else {
		fmt.Fprint(cmd.OutOrStdout(), r.YAML())
		for _, n := range r.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), plain(n.String()))
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s found: %s, %d that differ, %d not carried over\n",
			lint.Counted(r.Limits, "limit", "limits"), lint.Counted(len(r.Rules), "rule", "rules"),
			len(r.Notes)-lost, lost)
	}
	if problems := policy.Lint(r.Policy(), policy.CompileOptions{}).Errors(); len(problems) > 0 {
		return fmt.Errorf("the rules cannot be loaded as they are: %w", problems.Err())
	}
	if strict && lost > 0 {
		return errors.New("something could not be carried over")
	}
	return nil
}

// checkDescriptors reads configurations of envoyproxy/ratelimit.
func checkDescriptors(w io.Writer, paths []string) error {
	limits, err := descriptor.Read(paths...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "# %s: read as they are, by\ndecisions:\n  ratelimit: [%s]\n",
		lint.Counted(len(limits.All()), "limit", "limits"), strings.Join(paths, ", "))
	return err
}
