package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/server/telemetry"
)

// readTelemetrySettings is what a command line says, and the file that it names besides.
func readTelemetrySettings(given *pflag.FlagSet) (f telemetryFlags, err error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(flags)
	given.Visit(func(g *pflag.Flag) {
		values := []string{g.Value.String()}
		if list, ok := g.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if flags.Lookup(g.Name) == nil {
			return // of all commands, such as --help
		}
		for _, v := range values {
			err = errors.Join(err, flags.Set(g.Name, v))
		}
	})
	if err == nil && f.file != "" {
		err = readTelemetryFile(f.file, flags)
	}
	return f, err
}

// telemetryFiles is what the files say that settings name.
type telemetryFiles struct {
	secrets [][]byte
	cert    *tls.Certificate // nil: none is named
}

func (f *telemetryFlags) read() (files telemetryFiles, err error) {
	files.secrets, err = readTelemetrySecrets(f.secretFile)
	if f.cert != "" {
		c, wrong := tls.LoadX509KeyPair(f.cert, f.key)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("read --tls-cert and --tls-key: %w", wrong))
		}
		files.cert = &c
	}
	return files, err
}

func (f *telemetryFlags) options(quotas []telemetry.Quota, files telemetryFiles) telemetry.Options {
	return telemetry.Options{Quotas: quotas, Secrets: files.secrets, Window: f.window, MaxClients: f.maxClients}
}

// runningTelemetry is an aggregator, and the settings that are in force.
type runningTelemetry struct {
	server   *telemetry.Server
	settings func() (telemetryFlags, error) // as they would be at a start now
	flags    telemetryFlags                 // what waits for a restart is as it was at the start
	files    telemetryFiles
	cert     atomic.Pointer[tls.Certificate] // of files
}

// reload takes over what settings say now, and says what came of it.
func (r *runningTelemetry) reload(log *slog.Logger) {
	changed, restart, err := r.change()
	r.server.Reloaded(err)
	if err != nil {
		log.Error("reload failed: what was in force before stays", "error", err)
		return
	}
	var about []any
	if len(changed) > 0 {
		about = append(about, "changed", strings.Join(changed, ", "))
	}
	if len(restart) > 0 {
		log.Warn("reloaded, but some settings wait for a restart",
			append(about, "restart", strings.Join(restart, ", "))...)
	} else {
		log.Info("reloaded", about...)
	}
}

// change puts in force what of the settings can change now, all of it or, with an error, nothing.
func (r *runningTelemetry) change() (changed, restart []string, err error) {
	next, err := r.settings()
	if err != nil {
		return nil, nil, err
	}
	quotas, err := next.check()
	if err != nil {
		return nil, nil, err
	}
	now := &r.flags
	differ := func(list *[]string, name string, differs bool) {
		if differs {
			*list = append(*list, name)
		}
	}
	differ(&restart, "udp", next.udp != now.udp)
	differ(&restart, "http", next.http != now.http)
	differ(&restart, "admin", next.admin != now.admin)
	differ(&restart, "window", next.window != now.window)
	encrypts := (next.cert == "") != (now.cert == "")
	differ(&restart, "tls_cert", encrypts)
	if next.reference > 0 {
		return nil, restart, nil
	}
	files, err := next.read()
	if err != nil {
		return nil, nil, err
	}
	if encrypts {
		next.cert, next.key, files.cert = now.cert, now.key, r.files.cert
	}
	differ(&changed, "quotas", !slices.Equal(next.quotas, now.quotas))
	differ(&changed, "secret", !slices.EqualFunc(files.secrets, r.files.secrets, bytes.Equal))
	differ(&changed, "certificate", files.cert != nil &&
		!slices.EqualFunc(files.cert.Certificate, r.files.cert.Certificate, bytes.Equal))
	differ(&changed, "origins", !slices.Equal(next.origins, now.origins))
	differ(&changed, "max_clients", next.maxClients != now.maxClients)
	differ(&changed, "per_source", next.perSource != now.perSource)
	if err := r.server.Change(next.options(quotas, files), next.origins, next.perSource); err != nil {
		return nil, nil, err
	}
	r.cert.Store(files.cert)
	next.udp, next.http, next.admin, next.window = now.udp, now.http, now.admin, now.window
	r.flags, r.files = next, files
	return changed, restart, nil
}
