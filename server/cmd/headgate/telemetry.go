package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	wire "github.com/headgate-io/headgate/pace/telemetry"
	"github.com/headgate-io/headgate/server/telemetry"
)

// telemetryFlags are the flags of "headgate telemetry".
type telemetryFlags struct {
	udp, http, admin string
	quotas           []string
	secretFile       string
	window           time.Duration
	maxClients       int
	perSource        int
	cert, key        string
	origins          []string
	reference        float64
	file             string
}

func newTelemetry() *cobra.Command {
	var given telemetryFlags
	cmd := &cobra.Command{
		Use:   "telemetry",
		Short: "Let clients that share a quota learn of each other",
		Long: `Run the aggregator to which clients of one quota report: how much they sent, how
much of it was refused, and how many requests wait. Its answers tell each of them
what all of them said, so that they can divide a quota that no server divides for
them, such as that of somebody else's API. See docs/telemetry.md.

Reports come by UDP, or as bodies of POST ` + telemetry.Path + ` for browsers and across
networks. Each is signed by a key made of the secret. Answers are signed too, and
never longer than reports. Nothing is stored: after a restart it says for the
length of a window that it does not know yet.

--config names a YAML file with any of the settings, which have the names of the
flags with _ in the place of -, and quotas and origins for the lists. Flags win
over it.

SIGHUP reads that file, the secret and the certificate again. All of what can change
while it runs is put in force, or, with a fault anywhere, nothing; the log says
what has changed, and what waits for a restart. The file of the secret may have two
lines, the current and the previous one: reports by either are taken.`,
		Example: `  openssl rand -hex 32 > telemetry.secret
  headgate telemetry --quota api=80/60s,burst=100 --secret-file telemetry.secret
  headgate telemetry --quota api --udp 10.0.0.7:8125 --http 10.0.0.7:8126 \
    --tls-cert cert.pem --tls-key key.pem --secret-file telemetry.secret`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings := func() (telemetryFlags, error) { return readTelemetrySettings(cmd.Flags()) }
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			return serveTelemetry(cmd.Context(), cmd.OutOrStdout(), usualLog(cmd.ErrOrStderr()), hangup, settings)
		},
	}
	given.add(cmd.Flags())
	cmd.AddCommand(newTelemetryAsk(), newTelemetryKey())
	return cmd
}

func (f *telemetryFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "config", "", "YAML file with any of the settings; flags win over it")
	flags.StringArrayVar(&f.quotas, "quota", nil,
		"quota that clients report about, as NAME, or NAME=80/60s,burst=100 where its limit is known (repeatable)")
	flags.StringVar(&f.secretFile, "secret-file", "", "file whose first line is the secret, 32 bytes or more (needed)")
	flags.StringVar(&f.udp, "udp", "127.0.0.1:8125", "address for reports by UDP, or none")
	flags.StringVar(&f.http, "http", "none", "address for reports by HTTP, or none")
	flags.StringVar(&f.admin, "admin", "none", "address on this machine for /metrics and /healthz, or none")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate of --http, PEM; without, it is plain text")
	flags.StringVar(&f.key, "tls-key", "", "its key, PEM")
	flags.StringArrayVar(&f.origins, "origin", nil,
		"web page that may read answers, such as https://app.example.com (repeatable)")
	flags.DurationVar(&f.window, "window", 30*time.Second,
		"how far back answers look, 1s to 1h: clients report about as often")
	flags.IntVar(&f.maxClients, "max-clients", 10_000,
		"clients of each quota that are known at once, at about 700 bytes each")
	flags.IntVar(&f.perSource, "per-source", 100, "reports a second that are looked at of one address")
	flags.Float64Var(&f.reference, "reference", 0, "speak the unsigned JSON of the published code of Farkiani et "+
		"al. instead, on this machine alone, and say that the limit is so many requests a minute")
}

// check says everything that is wrong with the flags.
func (f *telemetryFlags) check() ([]telemetry.Quota, error) {
	var wrong []error
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for _, a := range []struct{ name, value string }{{"--udp", f.udp}, {"--http", f.http}, {"--admin", f.admin}} {
		if _, err := netip.ParseAddrPort(a.value); err != nil && a.value != "none" {
			say("%s is %q, want an address and a port such as 127.0.0.1:8125, or none", a.name, a.value)
		}
	}
	if f.udp == "none" && f.http == "none" {
		say("--udp and --http are none, want one of them at least")
	}
	if a, err := netip.ParseAddrPort(f.admin); err == nil && !a.Addr().Unmap().IsLoopback() {
		say("--admin is %q, want an address of this machine, such as 127.0.0.1:8127: its metrics say how much "+
			"business there is", f.admin)
	}
	if (f.cert == "") != (f.key == "") {
		say("want --tls-cert and --tls-key, or neither")
	}
	if f.cert != "" && f.http == "none" {
		say("--tls-cert is for --http, which is none")
	}
	for _, o := range f.origins {
		if o != "*" && (!strings.HasPrefix(o, "https://") && !strings.HasPrefix(o, "http://") ||
			strings.Count(o, "/") != 2) {
			say("--origin is %q, want one as browsers name it, such as https://app.example.com, without a path", o)
		}
	}
	var quotas []telemetry.Quota
	if f.reference != 0 {
		if a, err := netip.ParseAddrPort(f.udp); err != nil || !a.Addr().Unmap().IsLoopback() {
			say("--udp is %q, want an address of this machine, such as 127.0.0.1:8125: what --reference speaks is "+
				"not signed", f.udp)
		}
		if f.http != "none" || len(f.quotas) > 0 || f.secretFile != "" || f.admin != "none" {
			say("--reference goes with --udp alone")
		}
		if !(f.reference > 0 && f.reference <= 1e9) {
			say("--reference is %v, want the limit in requests a minute", f.reference)
		}
		return nil, errors.Join(wrong...)
	}
	if f.secretFile == "" {
		say("want --secret-file; to make one: openssl rand -hex 32 > telemetry.secret")
	}
	if len(f.quotas) == 0 {
		say("want --quota, such as --quota api=80/60s,burst=100")
	}
	for _, text := range f.quotas {
		q, err := parseQuota(text)
		if err != nil {
			wrong = append(wrong, err)
		}
		quotas = append(quotas, q)
	}
	return quotas, errors.Join(wrong...)
}

// parseQuota reads NAME, NAME=80/60s or NAME=80/60s,burst=100.
func parseQuota(text string) (telemetry.Quota, error) {
	name, limit, limited := strings.Cut(text, "=")
	q := telemetry.Quota{Name: name}
	if err := wire.CheckQuota(name); err != nil {
		return q, fmt.Errorf("--quota: %w", err)
	}
	if !limited {
		return q, nil
	}
	limit, burst, bursts := strings.Cut(limit, ",")
	count, per, ok := strings.Cut(limit, "/")
	n, err1 := strconv.ParseFloat(count, 64)
	d, err2 := time.ParseDuration(per)
	if !ok || err1 != nil || err2 != nil || !(n > 0 && n <= 1e9) || d <= 0 || n/d.Seconds() > 1e9 {
		return q, fmt.Errorf("--quota %s: the limit is %q, want REQUESTS/TIME, such as 80/60s", name, limit)
	}
	q.Capacity = n / d.Seconds()
	if bursts {
		value, ok := strings.CutPrefix(burst, "burst=")
		b, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil || b < 1 {
			return q, fmt.Errorf("--quota %s: %q stands after the limit, want burst=REQUESTS, such as burst=100", name,
				burst)
		}
		q.Burst = b
	}
	return q, nil
}

// serveTelemetry runs an aggregator by settings, which are asked for again at each hangup.
func serveTelemetry(
	ctx context.Context, out io.Writer, log *slog.Logger, hangup <-chan os.Signal,
	settings func() (telemetryFlags, error),
) error {
	f, err := settings()
	if err != nil {
		return usageError{err}
	}
	quotas, err := f.check()
	if err != nil {
		return usageError{err}
	}
	r := runningTelemetry{settings: settings, flags: f}
	o := telemetry.ServerOptions{PerSource: f.perSource, Origins: f.origins, Log: log}
	if f.reference > 0 {
		o.Reference = telemetry.NewReference(f.reference, time.Now())
	} else {
		if r.files, err = f.read(); err != nil {
			return err
		}
		if o.Aggregator, err = telemetry.New(f.options(quotas, r.files), time.Now()); err != nil {
			return usageError{err}
		}
		if f.cert != "" {
			r.cert.Store(r.files.cert)
			o.TLS = &tls.Config{
				MinVersion:     tls.VersionTLS12,
				GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.cert.Load(), nil },
			}
		}
	}
	if err := f.listen(&o); err != nil {
		return err
	}
	if r.server, err = telemetry.NewServer(o); err != nil {
		return usageError{err}
	}
	if o.UDP != nil {
		fmt.Fprintf(out, "udp       %s\n", o.UDP.LocalAddr())
	}
	if o.HTTP != nil {
		scheme := "http"
		if o.TLS != nil {
			scheme = "https"
		}
		fmt.Fprintf(out, "http      %s://%s%s\n", scheme, o.HTTP.Addr(), telemetry.Path)
	}
	if o.Admin != nil {
		fmt.Fprintf(out, "admin     http://%s\n", o.Admin.Addr())
	}
	ctx, stop := context.WithCancel(ctx)
	reloads := make(chan struct{})
	go func() {
		defer close(reloads)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				r.reload(log)
			}
		}
	}()
	err = r.server.Run(ctx)
	stop()
	<-reloads
	return err
}

// readTelemetrySecrets reads the current secret and perhaps the previous one.
func readTelemetrySecrets(path string) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--secret-file %s is not there; to make it: openssl rand -hex 32 > %s", path, path)
	}
	if err != nil {
		return nil, fmt.Errorf("--secret-file: %w", err)
	}
	var secrets [][]byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			secrets = append(secrets, []byte(line))
		}
	}
	if len(secrets) < 1 || len(secrets) > 2 {
		return nil,
			fmt.Errorf("--secret-file %s has %d lines, want the secret, and perhaps the previous one in a second line",
				path, len(secrets))
	}
	for i, s := range secrets {
		if len(s) < telemetry.MinSecret {
			return nil,
				fmt.Errorf(
					"--secret-file %s: line %d has %d bytes, want %d or more; to make a secret: openssl rand -hex "+
						"32", path, i+1, len(s), telemetry.MinSecret)
		}
	}
	return secrets, nil
}

// listen opens what is wanted, or nothing.
func (f *telemetryFlags) listen(o *telemetry.ServerOptions) (err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, c := range []io.Closer{o.UDP, o.HTTP} {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	if f.udp != "none" {
		if o.UDP, err = net.ListenPacket("udp", f.udp); err != nil {
			return fmt.Errorf("--udp: %w", err)
		}
	}
	if f.http != "none" {
		if o.HTTP, err = net.Listen("tcp", f.http); err != nil {
			return fmt.Errorf("--http: %w", err)
		}
	}
	if f.admin != "none" {
		if o.Admin, err = net.Listen("tcp", f.admin); err != nil {
			return fmt.Errorf("--admin: %w", err)
		}
	}
	return nil
}

func newTelemetryAsk() *cobra.Command {
	var addr, name, secretFile string
	var timeout time.Duration
	var out printer
	cmd := &cobra.Command{
		Use:   "ask",
		Short: "Ask an aggregator what the clients of a quota say",
		Long: `Report to an aggregator by UDP, as a client that has sent nothing, and print the
answer. For the length of a window it counts as one of the clients.`,
		Example: `  headgate telemetry ask --addr 10.0.0.7:8125 --quota api --secret-file telemetry.secret`,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			secrets, err := readTelemetrySecrets(secretFile)
			if err != nil {
				return err
			}
			client, err := wire.New(wire.Options{Addr: addr, Quota: name, Secret: secrets[0]})
			if err != nil {
				return usageError{err}
			}
			defer client.Close(wire.State{})
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			for {
				client.Report(wire.State{})
				select {
				case <-ctx.Done():
					return fmt.Errorf("no answer from %s within %v: is it running, has it the quota %q, and the "+
						"same secret, and are both clocks right?", addr, timeout, name)
				case <-time.After(250 * time.Millisecond):
				}
				if a, ok := client.Latest(); ok {
					if out.asJSON {
						return writeJSON(cmd.OutOrStdout(), entryOf(a))
					}
					printAggregate(cmd.OutOrStdout(), a)
					return nil
				}
			}
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8125", "where the aggregator receives reports by UDP")
	cmd.Flags().StringVar(&name, "quota", "", "quota to ask about (needed)")
	cmd.Flags().StringVar(&secretFile, "secret-file", "",
		"file whose first line is the secret of the aggregator (needed)")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for an answer")
	out.addFlags(cmd)
	return cmd
}

// aggregateEntry is what is known of a quota, in JSON.
type aggregateEntry struct {
	Clients       int      `json:"clients"` // within the window
	Refusing      int      `json:"refusing"`
	WindowSeconds float64  `json:"window_seconds"`
	Sent          uint64   `json:"sent"`
	Accepted      uint64   `json:"accepted"`
	Refused       uint64   `json:"refused"`
	Waiting       uint64   `json:"waiting"`
	SinceRefusal  *float64 `json:"seconds_since_refusal,omitempty"` // none: there was none, as far as is known
	Capacity      float64  `json:"capacity_per_second,omitempty"`   // none: unknown
	Configured    bool     `json:"capacity_configured"`
}

func entryOf(a wire.Aggregate) aggregateEntry {
	e := aggregateEntry{
		Clients: int(a.Active), Refusing: int(a.Refusing), WindowSeconds: a.Window.Seconds(), Sent: uint64(a.Sent),
		Accepted: uint64(a.Accepted),
		Refused:  uint64(a.Refused), Waiting: uint64(a.Queue), Capacity: float64(a.Capacity), Configured: a.Configured,
	}
	if a.SinceRefusal >= 0 {
		seconds := a.SinceRefusal.Seconds()
		e.SinceRefusal = &seconds
	}
	return e
}

func printAggregate(w io.Writer, a wire.Aggregate) {
	window := strings.TrimSuffix(a.Window.String(), "m0s")
	if window != a.Window.String() {
		window += "m"
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("clients", "%d in the last %s, %d of them refused", a.Active, window, a.Refusing)
	row("requests", "%d sent, %d accepted, %d refused", a.Sent, a.Accepted, a.Refused)
	row("waiting", "%d", a.Queue)
	switch {
	case a.SinceRefusal >= 0:
		row("refusal", "%v ago", a.SinceRefusal.Round(time.Second))
	case a.Warm:
		row("refusal", "none")
	default:
		row("refusal", "none known; the aggregator has run for less than its window")
	}
	switch {
	case a.Configured:
		row("capacity", "%.3g a second", a.Capacity)
	case a.Capacity > 0:
		row("capacity", "%.3g a second, as measured", a.Capacity)
	default:
		row("capacity", "unknown")
	}
}

func newTelemetryKey() *cobra.Command {
	var name, secretFile, client string
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make the key of one client, which speaks for no other",
		Long: `Print the key by which the client with a number reports about a quota, in base64.
A client that has it, and not the secret, speaks for itself alone: for programs of
others, and for browsers.`,
		Example: `  headgate telemetry key --quota api --client 42 --secret-file telemetry.secret`,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := strconv.ParseUint(client, 10, 64)
			if err != nil {
				return usagef("--client is %q, want a number from 0 to 2^64-1", client)
			}
			if err := wire.CheckQuota(name); err != nil {
				return usagef("--%w", err)
			}
			secrets, err := readTelemetrySecrets(secretFile)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(),
				base64.StdEncoding.EncodeToString(wire.ClientKey(secrets[0], name, id)))
			return err
		},
	}
	cmd.Flags().StringVar(&name, "quota", "", "quota to report about (needed)")
	cmd.Flags().StringVar(&client, "client", "", "number of the client (needed)")
	cmd.Flags().StringVar(&secretFile, "secret-file", "",
		"file whose first line is the secret of the aggregator (needed)")
	return cmd
}
