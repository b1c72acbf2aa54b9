package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/draw"
	"github.com/headgate-io/headgate/server/rules"
)

func newPolicyDraw() *cobra.Command {
	var from configFlags
	var named ruleFlags
	var per, algorithm string
	var burst int64
	var asSVG, asJSON bool
	cmd := &cobra.Command{
		Use:   "draw ENDPOINT [LIMIT]",
		Short: "Draw what a rule admits over time",
		Long: `Draw what a rule admits: at once, in the first second, in the long run, and after a
silence; and say it in a sentence. A caller that never waits asks without a pause,
is silent for a while, and asks again, in a time of its own: nothing is taken from
anybody. With LIMIT no database is asked, and a rule is drawn that gives it; LIMIT is
as for "headgate policy set".

` + endpointHelp,
		Example: `  headgate policy draw 'GET /v1/items/{id}'
  headgate policy draw default 5/s --burst 10
  headgate policy draw default 100/m --algorithm fixed_window --svg > window.svg`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asSVG && asJSON {
				return usagef("--svg and --json are both given, want one")
			}
			wanted, err := named.rule(args[0])
			if err != nil {
				return err
			}
			show := func(rule policy.Rule, o policy.CompileOptions) error {
				picture, err := draw.Of(rule, o)
				if err != nil {
					return usageError{err}
				}
				return writePicture(cmd.OutOrStdout(), &picture, asSVG, asJSON)
			}
			if len(args) == 1 {
				for _, flag := range []string{"per", "burst", "algorithm"} {
					if cmd.Flags().Changed(flag) {
						return usagef("--%s is given, want it beside a LIMIT: else the rule of the database is drawn",
							flag)
					}
				}
				return readRules(cmd, &from, func(ctx context.Context, db editor, o policy.CompileOptions) error {
					rule, err := db.Get(ctx, named.key(wanted))
					if err != nil {
						return sayNotFound(err)
					}
					return show(rule, o)
				})
			}
			if named.temporary {
				return usagef("--temporary is given, want it without a LIMIT: it names a rule of the database")
			}
			err = errors.Join(setRate(&wanted, args[1], per, cmd.Flags().Changed),
				setBurst(&wanted, burst, cmd.Flags().Changed("burst")),
				wanted.Algorithm.UnmarshalText([]byte(algorithm)))
			if err == nil {
				err = rules.Check(policy.Document{}, wanted, policy.CompileOptions{Now: time.Now()})
			}
			if err != nil {
				return usageError{err}
			}
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			return show(wanted, policy.CompileOptions{BurstPercent: c.BurstPercent})
		},
	}
	from.addFlags(cmd, "db", "server")
	named.addFlags(cmd)
	named.addTemporary(cmd)
	flags := cmd.Flags()
	flags.StringVar(&per, "per", "1s", "time over which LIMIT is given, in whole seconds")
	flags.Int64Var(&burst, "burst", 0, "most requests at once (default: as many as LIMIT)")
	flags.StringVar(&algorithm, "algorithm", "token_bucket", "how LIMIT is counted: token_bucket, leaky_bucket, "+
		"fixed_window, sliding_window, sliding_log, calendar or calendar:ZONE")
	flags.BoolVar(&asSVG, "svg", false, "print a picture for a web page")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	takesNumber(cmd, wrongLimit)
	return cmd
}

func writePicture(w io.Writer, p *draw.Picture, asSVG, asJSON bool) error {
	var err error
	switch {
	case asSVG:
		_, err = w.Write(p.SVG())
	case asJSON:
		return writeJSON(w, p)
	default:
		_, err = io.WriteString(w, p.Text())
	}
	return err
}
