package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/replay"
)

type replayFlags struct {
	rules  string
	format string
	fields []string
	failOn string
	html   string
	json   bool
}

func newReplay() *cobra.Command {
	var from configFlags
	var f replayFlags
	cmd := &cobra.Command{
		Use:        "replay LOG...",
		SuggestFor: []string{"simulate"},
		Short:      "Say who would have been denied, by the requests of access logs",
		Long: `Have the rules in force, and those of a file, decide the requests of access logs
at the times that the logs have them, and say who would have been denied. It takes
nothing from anybody: buckets are its own, and full at the start.

Logs are those of nginx and Apache (combined, common), of Envoy, of AWS's load
balancers, objects in JSON, one a line, or the decision log of a gateway; packed
by gzip or not; - is standard input. Give them in the order of time. Callers are
told apart by address, or by the user that a log names. API keys and bodies are in
no log, so that rules for projects, tiers and identifiers apply to nobody.

The exit status is 1 if more than --fail-on would have been denied.`,
		Example: `  headgate replay /var/log/nginx/access.log --config headgate.yaml
  headgate replay access.log.1.gz access.log --openapi api.yaml --rules proposed.yaml --html report.html
  headgate replay app.log --field time=ts --field client=peer.ip --routes routes.txt --fail-on 0.1%`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("replay takes the logs to read, want at least one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			limit, err := parseShare(f.failOn)
			if err != nil {
				return err
			}
			report, interrupted, err := f.run(cmd, &from, args)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if f.json {
				err = writeJSON(out, report)
			} else {
				err = writeReplay(out, report, interrupted)
			}
			if f.html != "" && err == nil {
				err = writePage(f.html, report, interrupted)
			}
			if err != nil || f.failOn == "" {
				return err
			}
			if last := report.Sides[len(report.Sides)-1]; last.Share() > limit {
				return fmt.Errorf("%s would have been denied, more than %s", share(last.Share()), f.failOn)
			}
			return nil
		},
	}
	from.addFlags(cmd, "db", "openapi", "routes", "unknown")
	flags := cmd.Flags()
	flags.StringVar(&f.rules, "rules", "", "policy file whose rules decide as well, for comparison")
	flags.StringVar(&f.format, "format", "", "format of the logs: "+strings.Join(replay.Formats, ", ")+
		" (default: by the first line)")
	flags.StringArrayVar(&f.fields, "field", nil, "for JSON, where a part of a request stands, such as "+
		"client=peer.ip; of time, client, method, target, user, status (repeatable)")
	flags.StringVar(&f.failOn, "fail-on", "",
		"exit with status 1 if a larger part of the requests would have been denied, such as 0.5%")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.StringVar(&f.html, "html", "", "file to write the same to, drawn, for a browser")
	return cmd
}

// parseShare reads a percentage.
func parseShare(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !strings.HasSuffix(text, "%") || n < 0 || n > 100 {
		return 0, usagef("--fail-on is %q, want a percentage such as 0.5%%", text)
	}
	return n / 100, nil
}

func (f *replayFlags) run(cmd *cobra.Command, from *configFlags, logs []string) (_ *replay.Report,
	interrupted bool, err error) {
	r, err := f.open()
	if err != nil {
		return nil, false, err
	}
	c, err := from.read(cmd)
	if err != nil {
		return nil, false, err
	}
	if len(c.OpenAPI)+len(c.Routes) == 0 && c.Unknown == "reject" {
		return nil, false,
			usagef("the endpoints are missing, want --openapi, --routes or --config; or --unknown limit for rules " +
				"for UNKNOWN alone")
	}
	c.FillPaths()
	sides, err := f.sides(cmd, from, c, r)
	if err != nil {
		return nil, false, err
	}
	r.Use(sides...)
	defer showProgress(cmd, r)()
	for _, name := range logs {
		err := readLog(cmd, r, name)
		if errors.Is(err, context.Canceled) {
			return r.Report(), true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return r.Report(), false, nil
}

// open makes a Replay for logs of the format that was named.
func (f *replayFlags) open() (*replay.Replay, error) {
	fields := map[string]string{}
	for _, text := range f.fields {
		name, member, ok := strings.Cut(text, "=")
		if !ok || member == "" {
			return nil, usagef("--field is %q, want PART=MEMBER such as client=peer.ip", text)
		}
		fields[name] = member
	}
	r, err := replay.New(f.format, fields)
	if err != nil {
		return nil, usageError{err}
	}
	return r, nil
}

// showProgress tells on a terminal how far r has come, until done is called.
func showProgress(cmd *cobra.Command, r *replay.Replay) (done func()) {
	terminal, began := cmd.ErrOrStderr(), time.Now()
	if !isTerminal(terminal) {
		return func() {}
	}
	said := began
	r.Progress = func(lines, _ int64) {
		if now := time.Now(); now.Sub(said) >= firstWord {
			said = now
			fmt.Fprintf(terminal, "\r\033[K%d lines, %.0f a second", lines, float64(lines)/now.Sub(began).Seconds())
		}
	}
	return func() { fmt.Fprint(terminal, "\r\033[K") }
}

func readLog(cmd *cobra.Command, r *replay.Replay, name string) error {
	if name == "-" {
		return r.Read(cmd.Context(), "standard input", cmd.InOrStdin())
	}
	log, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(r.Read(cmd.Context(), name, log), log.Close())
}

// sides are the rules in force, where there is a database, and those of the file.
func (f *replayFlags) sides(cmd *cobra.Command, from *configFlags, c config.Config,
	r *replay.Replay) (sides []replay.Rules, err error) {
	add := func(name string, doc policy.Document) error {
		limiter, err := daemon.Rehearsal(c, doc, r.Clock, r.Lowered())
		sides = append(sides, replay.Rules{Name: name, Limiter: limiter})
		return err
	}
	ctx := cmd.Context()
	db, err := forReading(ctx, c)
	if err == nil {
		var doc policy.Document
		doc, _, err = db.Load(ctx)
		if err = errors.Join(err, db.Close()); err == nil {
			err = add("in force", doc)
		}
	} else if named := cmd.Flags().Changed("db") || from.file != ""; f.rules != "" && !named && strings.HasPrefix(c.DB,
		"sqlite:") && missing(strings.TrimPrefix(c.DB, "sqlite:")) {
		err = nil // those of the file alone
	}
	if err != nil || f.rules == "" {
		return sides, err
	}
	doc, err := readPolicies(f.rules)
	if err != nil {
		return nil, err
	}
	return sides, add(f.rules, doc)
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func share(part float64) string { return strconv.FormatFloat(100*part, 'f', 2, 64) + " %" }

// writePage writes what a browser shows. It names callers, so that nobody else may read it.
func writePage(path string, report *replay.Report, interrupted bool) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return errors.Join(report.WriteHTML(file, interrupted), file.Close())
}

// whatWasRead is how much logs had, and of when.
func whatWasRead(r *replay.Report) string {
	if r.Requests == 0 {
		return "requests  none"
	}
	const when = "2006-01-02 15:04:05"
	return fmt.Sprintf("requests  %d of %s, %s to %s", r.Requests,
		lint.Counted(r.Callers, "caller", "callers"), r.From.Format(when),
		r.Until.Format(when))
}

// writeReplay tells it to people.
func writeReplay(w io.Writer, r *replay.Report, interrupted bool) error {
	fmt.Fprintln(w, whatWasRead(r))
	if interrupted {
		fmt.Fprintln(w, "          interrupted: of what was read until then")
	}
	if r.Unread > 0 {
		fmt.Fprintf(w, "unread    %d of %d lines, such as\n", r.Unread, r.Lines)
		for _, fault := range r.Faults {
			fmt.Fprintf(w, "          %s\n", plain(fault.Error()))
		}
	}
	if len(r.Settled) > 0 {
		fmt.Fprintf(w, "settled   by other means than a limit, and not decided again: %s\n", reasons(r.Settled))
	}
	if r.Missing > 0 {
		fmt.Fprintf(w, "missing   %d that were not written down, so that less is denied here than was\n", r.Missing)
	}
	if r.Lowered > 0 {
		fmt.Fprintf(w, "lowered   %d met a rate that was lowered then, and is here\n", r.Lowered)
	}
	for _, s := range r.Sides {
		fmt.Fprintf(w, "\n%s\n", plain(s.Name))
		fmt.Fprintf(w, "denied    %d, %s", s.Denied, share(s.Share()))
		if len(r.Sides) > 1 && s != r.Sides[0] {
			fmt.Fprintf(w, "; %d of them were not before, and %d that were are not any more", s.Newly, s.NoLonger)
		}
		fmt.Fprintln(w)
		if s.Same+s.Different > 0 {
			fmt.Fprintf(w, "as then   %d, and %d otherwise\n", s.Same, s.Different)
		}
		if len(s.Refused) > 0 {
			fmt.Fprintf(w, "refused   before any rule: %s\n", reasons(s.Refused))
		}
		t := newTable(w, "RULE\tREQUESTS\tDENIED\tSHADOW\tCALLERS\tDENIED MOST")
		for _, rule := range s.Rules {
			worst := "-"
			if len(rule.Worst) > 0 {
				worst = fmt.Sprintf("%s, %d times", rule.Worst[0].Who, rule.Worst[0].Denied)
			}
			name := rule.Rule
			if name == "" {
				name = "(no rule)"
			}
			t.row(name, rule.Allowed+rule.Denied, rule.Denied, rule.Shadow, rule.Callers, worst)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", drawn(r))
	return err
}

// reasons lists counts by reason.
func reasons(counts map[string]int64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], strings.ReplaceAll(plain(reason), "_", " ")))
	}
	return strings.Join(parts, ", ")
}

// drawn is a line of bars: when requests came, and below when they were denied by the last rules.
func drawn(r *replay.Report) string {
	const width = 60
	denied, requests := r.Denials(width)
	bar := func(part float64) rune {
		bars := []rune(" ▁▂▃▄▅▆▇█")
		at := int(part * float64(len(bars)-1))
		if part > 0 && at == 0 {
			at = 1
		}
		return bars[at]
	}
	most := max(1, slices.Max(requests))
	var came, refused strings.Builder
	for i := range width {
		came.WriteRune(bar(float64(requests[i]) / float64(most)))
		refused.WriteRune(bar(denied[i]))
	}
	return fmt.Sprintf("came      %s  up to %d\ndenied    %s  of those, up to %s", came.String(), most,
		refused.String(), share(slices.Max(denied)))
}
