package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/convert"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/replay"
	"github.com/headgate-io/headgate/server/rules"
)

type suggestFlags struct {
	logs   replayFlags // format and fields
	routes string
	times  float64
	json   bool
}

func newSuggest() *cobra.Command {
	var from configFlags
	var f suggestFlags
	cmd := &cobra.Command{
		Use:   "suggest LOG...",
		Short: "Suggest limits by the requests of access logs",
		Long: `Count what callers use in their busiest minute and their busiest ten seconds, and
suggest limits that are twice what 99 of 100 callers use (--times). The rules are
printed as a policy file; what they were made of, and what they would have denied
in these logs, goes to standard error.

Logs are those that "headgate replay" reads, and are read twice. Without
--openapi and --routes the endpoints are made of the paths that were not a 404,
where what looks like an ID becomes a parameter; --write-routes writes them down.

A day of an ordinary week says more than an hour. Try the rules in shadow first.`,
		Example: `  headgate suggest /var/log/nginx/access.log --openapi api.yaml >rules.yaml
  headgate suggest access.log.1.gz access.log --write-routes routes.txt >rules.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("suggest takes the logs to read, want at least one")
			}
			if slices.Contains(args, "-") {
				return usagef("a log is -, want files: they are read twice")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.times < 1 || f.times > 1000 {
				return usagef("--times is %v, want 1 to 1000", f.times)
			}
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd, c, args)
		},
	}
	from.addFlags(cmd, "openapi", "routes")
	flags := cmd.Flags()
	flags.Float64Var(&f.times, "times", 2, "how many times what 99 of 100 callers use")
	flags.StringVar(&f.routes, "write-routes", "", "file to write the endpoints to that were made of paths")
	flags.StringVar(&f.logs.format, "format", "", "format of the logs: "+strings.Join(replay.Formats, ", ")+
		" (default: by the first line)")
	flags.StringArrayVar(&f.logs.fields, "field", nil,
		"for JSON, where a part of a request stands, such as client=peer.ip (repeatable)")
	flags.BoolVar(&f.json, "json", false, "print JSON: the rules, and what they were made of")
	return cmd
}

func (f *suggestFlags) run(cmd *cobra.Command, c config.Config, logs []string) error {
	survey := &replay.Survey{}
	if len(c.OpenAPI)+len(c.Routes) > 0 {
		registry, err := daemon.Endpoints(c)
		if err != nil {
			return err
		}
		survey.Endpoints = registry.Table
	}
	first, err := f.logs.read(cmd, logs, func(r *replay.Replay) error {
		r.Survey = survey
		return nil
	})
	if err == nil && first.Requests == 0 {
		err = fmt.Errorf("%s: no request is in it, want an access log of a day or more", strings.Join(logs, ", "))
	}
	if err != nil {
		return err
	}
	if survey.Endpoints == nil {
		forget, err := f.useRoutes(&c, survey.Templates())
		if err != nil {
			return err
		}
		defer forget()
	}
	list := survey.Suggest(f.times)
	var doc policy.Document
	for _, s := range list {
		doc.Rules = append(doc.Rules, s.Rule)
	}
	c.Unknown = "limit"
	c.FillPaths()
	second, err := f.logs.read(cmd, logs, func(r *replay.Replay) error {
		limiter, err := daemon.Rehearsal(c, doc, r.Clock, nil)
		r.Use(replay.Rules{Name: "suggested", Limiter: limiter})
		return err
	})
	if err != nil {
		return err
	}
	return f.write(cmd, list, first, second, survey.Left)
}

// useRoutes has c name the endpoints that were found, in a file that is to be forgotten.
func (f *suggestFlags) useRoutes(c *config.Config, templates []string) (forget func(), err error) {
	text := []byte(strings.Join(append(templates, ""), "\n"))
	if f.routes != "" {
		if err := os.WriteFile(f.routes, text, 0o644); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "headgate-suggest-")
	if err != nil {
		return nil, err
	}
	forget = func() { os.RemoveAll(folder) }
	c.Routes = []string{filepath.Join(folder, "routes.txt")}
	if err := os.WriteFile(c.Routes[0], text, 0o600); err != nil {
		forget()
		return nil, err
	}
	return forget, nil
}

// read goes through logs, as prepare says.
func (f *replayFlags) read(cmd *cobra.Command, logs []string,
	prepare func(*replay.Replay) error) (*replay.Report, error) {
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	if err := prepare(r); err != nil {
		return nil, err
	}
	defer showProgress(cmd, r)()
	for _, name := range logs {
		if err := readLog(cmd, r, name); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil, errors.New("interrupted")
			}
			return nil, err
		}
	}
	return r.Report(), nil
}

// suggested is a suggestion in JSON.
type suggested struct {
	Rule     file.Entry     `json:"rule"`
	Requests int64          `json:"requests"`
	Callers  int            `json:"callers"`
	Minute   replay.Figures `json:"busiest_minute"`
	Ten      replay.Figures `json:"busiest_ten_seconds"`
	Denied   int64          `json:"denied"`
	Whom     int            `json:"denied_callers"`
}

// seen says in a line what a suggestion was made of.
func seen(s *replay.Suggestion) string {
	switch {
	case s.Callers == 0:
		return "nobody was seen there: the least"
	case s.Rule.Endpoint == policy.UnknownEndpoint:
		return fmt.Sprintf("95 of 100 callers send up to %d a minute, %d in ten seconds", s.Minute.P95, s.Ten.P95)
	}
	return fmt.Sprintf("99 of 100 callers send up to %d a minute, %d in ten seconds", s.Minute.P99, s.Ten.P99)
}

func (f *suggestFlags) write(cmd *cobra.Command, list []replay.Suggestion, first, second *replay.Report,
	left int64) error {
	out := make([]suggested, len(list))
	var yaml convert.Result
	for i, s := range list {
		out[i] = suggested{
			Rule:     rules.Entries([]policy.Rule{s.Rule})[0],
			Requests: s.Requests,
			Callers:  s.Callers,
			Minute:   s.Minute,
			Ten:      s.Ten,
		}
		for _, rule := range second.Sides[0].Rules {
			if rule.Rule == s.Rule.Title() {
				out[i].Denied, out[i].Whom = rule.Denied, rule.Callers
			}
		}
		yaml.Rules = append(yaml.Rules, convert.Rule{Rule: s.Rule, Of: seen(&s)})
	}
	if f.json {
		return writeJSON(cmd.OutOrStdout(), struct {
			Requests int64       `json:"requests"`
			From     time.Time   `json:"from"`
			Until    time.Time   `json:"until"`
			Denied   int64       `json:"denied"`
			Rules    []suggested `json:"rules"`
		}{first.Requests, first.From, first.Until, second.Sides[0].Denied, out})
	}
	w := cmd.ErrOrStderr()
	fmt.Fprintln(w, whatWasRead(first))
	if first.Unread > 0 {
		fmt.Fprintf(w, "unread    %d of %d lines\n", first.Unread, first.Lines)
	}
	if left > 0 {
		fmt.Fprintf(w, "left out  %d requests of too many callers or endpoints\n", left)
	}
	if first.Until.Sub(first.From) < time.Hour {
		fmt.Fprintln(w, "the logs are of less than an hour: a day of an ordinary week says more")
	}
	fmt.Fprintf(w, "denied    %d, %s, would be by these limits\n\n", second.Sides[0].Denied,
		share(second.Sides[0].Share()))
	t := newTable(w,
		"ENDPOINT\tREQUESTS\tCALLERS\tBUSIEST MINUTE: HALF\t95 %\t99 %\tMOST\tLIMIT\tBURST\tDENIED\tCALLERS")
	for i, s := range list {
		t.row(s.Of, s.Requests, s.Callers, s.Minute.Half, s.Minute.P95, s.Minute.P99, s.Minute.Most, s.Rule.Rate(),
			s.Rule.Burst, out[i].Denied, out[i].Whom)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	_, err := fmt.Fprint(cmd.OutOrStdout(), yaml.YAML())
	return err
}
