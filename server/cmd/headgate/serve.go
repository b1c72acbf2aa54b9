package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/collector"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

func newServe() *cobra.Command {
	var from configFlags
	cmd := &cobra.Command{
		Use:        "serve",
		SuggestFor: []string{"run", "start"},
		Short:      "Run the gateway in front of an API",
		Long: `Run the gateway in front of an API. Requests to endpoints that the documents
declare are limited by the rules in the database and passed on; everything else
is answered by the gateway: 404 unknown endpoint, 405 unknown method, 400 invalid
target, 429 over a limit, 503 limits unavailable, 502 and 504 for the API's own
failures.

With --decisions and --decisions-grpc proxies such as nginx, Traefik, Caddy and
Envoy ask this process whether a request may pass, and pass it on themselves; with
--listen none besides, that is all it does, and --upstream is not wanted. See
docs/decisions.md.

Rules and keys changed by "headgate policy" and "headgate key", by the admin API
or by plain SQL act within a second, without a restart. If the database cannot be
read, the last good rules stay in force; they are also kept on disk for a start
without the database.

SIGHUP, or "headgate reload", reads the configuration and the documents again and
puts in force what can change, all of it or nothing; buckets and connections stay.

--config takes a YAML file with every setting; see docs/settings.md for all of
them. Relative paths are relative to the working directory.`,
		Example: `  headgate serve --upstream http://127.0.0.1:9000 --openapi api.yaml
  headgate serve --config headgate.yaml --listen 0.0.0.0:8080
  headgate serve --listen none --decisions 127.0.0.1:8082 --openapi api.yaml`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, from.file, func() (config.Config, error) { return from.complete(cmd) })
		},
	}
	from.addFlags(cmd, "listen", "decisions", "decisions-grpc", "decisions-resp", "decisions-spoe", "admin",
		"admin-token-file", "upstream", "openapi", "routes", "db", "secret-file", "trusted-proxy", "unknown",
		"max-buckets", "max-bytes",
		"max-wait", "max-waiters", "max-connections", "max-connections-per-address", "engine")
	return cmd
}

// serve runs a gateway by what complete returns, then and at each reload; file is where it is read from, if anywhere.
func serve(cmd *cobra.Command, file string, complete func() (config.Config, error)) error {
	c, err := interruptible(cmd.Context(), "reading "+file, complete)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // which would end a process that is not ready for it
	defer signal.Stop(hangup)
	started := collector.Relax()
	log, level := newLog(cmd.ErrOrStderr(), c.Log)
	d, err := interruptible(cmd.Context(), "starting", func() (*daemon.Daemon, error) {
		return daemon.Start(cmd.Context(), c, daemon.Options{
			Log: log, Level: level, Version: programVersion(), File: file,
			Read: complete,
		})
	})
	if err != nil {
		return err
	}
	started()
	go collector.GiveBack(cmd.Context())
	sayWhere(cmd.OutOrStdout(), c, d)
	go func() {
		for {
			select {
			case <-cmd.Context().Done():
				return
			case <-hangup:
				_, _ = d.Reload(cmd.Context()) // which says itself what came of it
			}
		}
	}()
	return d.Run(cmd.Context())
}

// sayWhere tells where the process listens.
func sayWhere(w io.Writer, c config.Config, d *daemon.Daemon) {
	scheme := "http"
	if c.TLS.On() {
		scheme = "https"
	}
	if c.Gateway() {
		fmt.Fprintf(w, "gateway   %s://%s -> %s\n", scheme, d.Gateway(), c.Upstream)
	}
	for _, l := range d.Decisions() {
		word, scheme := strings.TrimPrefix(l.Setting, "decisions."), ""
		if word == "listen" {
			word, scheme = "decisions", "http://"
			if c.Decisions.TLS != (config.DecisionsTLS{}) {
				scheme = "https://"
			}
		}
		fmt.Fprintf(w, "%-9s %s%s for %s\n", word, scheme, l.Address, strings.Join(c.Decisions.From, ", "))
	}
	fmt.Fprintf(w, "admin     http://%s\n", d.Admin())
}

// usualLog is the log of a command that has no configuration.
func usualLog(w io.Writer) *slog.Logger {
	log, _ := newLog(w, config.Default().Log)
	return log
}

func newLog(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		panic(err) // Complete has checked it
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}
