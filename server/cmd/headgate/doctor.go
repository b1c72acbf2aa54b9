package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/doctor"
	"github.com/headgate-io/headgate/server/draw"
	"github.com/headgate-io/headgate/server/lint"
)

// errDoctor is the exit of a doctor that found what it has printed.
var errDoctor = errors.New("the configuration is not healthy")

func newDoctor() *cobra.Command {
	var from configFlags
	var kind string
	var asJSON, fetch bool
	cmd := &cobra.Command{
		Use:        "doctor",
		SuggestFor: []string{"check", "test", "validate"},
		Short:      "Check the configuration, also against the server behind",
		Long: `Check the configuration as a whole, without changing anything: the settings, the
endpoints, the database and its rules, who may read the secrets, how long the
certificates are good, where the keys of tokens come from, which proxies are
believed, and whether the API takes connections, for 2 seconds at most; nothing
is sent there. --fetch asks tokens.jwks_url for its keys too, for 10 seconds at
most.

With --upstream the settings of the canonical form are compared with how that
kind of server reads targets:
` + wrap(strings.Join(doctor.Kinds(), ", "), 79) + `.
A difference lets a client have two budgets for one resource, or one endpoint
on the budget of another; each is shown with a target and with what to set.

The exit status is 1 if there is such a difference, or a fault that would keep
the gateway from starting safely.`,
		Example: `  headgate doctor --config headgate.yaml
  headgate doctor --config headgate.yaml --fetch
  headgate doctor --upstream http://127.0.0.1:9000 --openapi api.yaml
  headgate doctor --config headgate.yaml --upstream nginx --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := from.read(cmd)
			if strings.Contains(kind, "://") { // as serve has it
				c.Upstream, kind = kind, ""
			}
			if err != nil && (kind != "" || from.from == nil) { // else it is a finding, beside others
				return err
			}
			var r doctor.Report
			if kind != "" && fetch {
				return usagef(
					"--fetch is for the configuration, and --upstream compares with a server: want one of both")
			}
			if kind == "" {
				r = doctor.Configuration(cmd.Context(), c, doctor.Options{From: from.from, Fetch: fetch})
				if c.Endpoint.Server != "" {
					more, err := compareUpstream(c.Endpoint.Server, c)
					if err == nil { // else it is a finding of Configuration
						r.Upstream, r.Source, r.Findings = more.Upstream, more.Source,
							append(r.Findings, more.Findings...)
					}
				}
			} else {
				if r, err = compareUpstream(kind, c); err != nil {
					return err
				}
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), r)
			} else {
				err = writeReport(cmd.OutOrStdout(), r)
			}
			if err == nil && !r.Healthy() {
				err = errDoctor
			}
			return err
		},
	}
	from.addFlags(cmd, "openapi", "routes", "db", "secret-file", "trusted-proxy", "unknown")
	cmd.Flags().StringVar(&kind, "upstream", "",
		"kind of the server behind, such as nginx; or its base URL, as for serve")
	cmd.Flags().BoolVar(&fetch, "fetch", false, "fetch the keys of tokens.jwks_url")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// wrap breaks text between words, so that no line is longer than width.
func wrap(text string, width int) string { return strings.Join(draw.Wrap(text, width), "\n") }

func compareUpstream(kind string, c config.Config) (doctor.Report, error) {
	var routes doctor.Routes
	if len(c.OpenAPI)+len(c.Routes) > 0 {
		registry, err := daemon.Endpoints(c)
		if err != nil {
			return doctor.Report{}, err
		}
		for _, t := range registry.Table.All() {
			routes.Tails = routes.Tails || strings.Contains(t.Path(), "...}")
			routes.Queries = routes.Queries || t.Query() != ""
		}
	}
	r, err := doctor.Upstream(kind, c.Endpoint, routes)
	if err != nil {
		return r, usageError{err}
	}
	return r, nil
}

func writeReport(w io.Writer, r doctor.Report) error {
	if r.Upstream != "" {
		fmt.Fprintf(w, "%s (%s)\n", r.Upstream, r.Source)
	}
	for _, f := range r.Findings {
		parts := []string{f.Setting}
		if f.Value != "" {
			parts = append(parts, f.Value)
		}
		line := strings.Join(parts, ": ")
		if f.Server != "" {
			line += "; " + f.Server
		}
		fmt.Fprintf(w, "%-8s  %s\n", f.Level, plain(line))
		if f.Wrong != "" {
			fmt.Fprintf(w, "          %s\n", plain(strings.TrimPrefix(f.Target+": "+f.Wrong, ": ")))
		}
		if f.Set != "" {
			fmt.Fprintf(w, "          want %s\n", plain(f.Set))
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s\n", lint.Counted(r.Count(doctor.Mismatch), "mismatch", "mismatches"),
		lint.Counted(r.Count(doctor.Failure), "failure", "failures"),
		lint.Counted(r.Count(doctor.Note), "note", "notes"))
	if r.Upstream == "" && err == nil {
		_, err = fmt.Fprintln(w,
			"not compared with the server behind: name its kind, such as nginx, by endpoint.server or --upstream")
	}
	return err
}
