// Package daemon is the process behind `headgate serve`: it wires every part
// by hand, starts the listeners and stops them without losing a request.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/advisories"
	"github.com/headgate-io/headgate/server/balancer"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/engine"
	"github.com/headgate-io/headgate/server/hold"
	"github.com/headgate-io/headgate/server/metrics"
)

// Options is what does not come from the configuration.
type Options struct {
	Log     *slog.Logger // default slog.Default
	Version string       // of the program

	readOnly bool             // look, and leave no trace
	now      func() time.Time // for tests; nil is a clock that does not step

	// Read reads the configuration again for Reload, complete. Nil leaves it as it is: then only the documents that
	// it names are read.
	Read func() (config.Config, error)

	// File is the configuration's, to be watched under watch_files. Default none.
	File string

	// Level, if set, is that of Log, to be changed by Reload.
	Level *slog.LevelVar

	balancer *balancer.Listener // nil without
	holds    func() map[string]hold.Stats
	reloads  func() metrics.ReloadStatus
}

// Daemon is a running gateway with its admin listener.
type Daemon struct {
	conf    config.Config
	log     *slog.Logger
	parts   *parts
	gate    listener // closed where there is no gateway
	admin   listener
	asked   listener // where proxies ask; closed where none does
	called  listener // the same over gRPC
	redis   listener // where clients of Redis ask
	haproxy listener // where HAProxy asks by messages
	side    *admin.Door
	holds   holds
	leaving atomic.Bool

	balancer *balancer.Listener // nil without

	api      swap          // what is behind gate
	carriers carriers      // to the API
	others   chan struct{} // holds one where the servers to try are others since
	tunnels  gateway.Tunnels
	answers  *decisions.Answers
	reloads  reloads
}

// listener is a server and where it listens. The zero value is closed.
type listener struct {
	net.Listener
	server *http.Server
	front  *engine.Server // before it, for requests that are plain; nil without
	other  server         // in its place, for what is not HTTP
}

// server is what *envoy.Server, *resp.Server and *spoe.Server have in common.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// Start builds everything that c, which is complete, says, and listens. It
// serves once Run is called. Without a readable database it starts with the
// last good rules, and fails only if there are none.
func Start(ctx context.Context, c config.Config, o Options) (*Daemon, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d := &Daemon{conf: c, log: o.Log, others: make(chan struct{}, 1)}
	d.reloads.read, d.reloads.file, d.reloads.level = o.Read, o.File, o.Level
	for _, warning := range c.Warnings() {
		o.Log.Warn(warning.String())
	}
	warnOfReaders(&c, o.Log)
	if words := advisories.Known().Words(runtime.Version()); words != "" {
		o.Log.Warn(words + ": want a release in which they are fixed")
	}
	access, err := adminAccess(&c)
	if err != nil {
		return nil, err
	}
	if d.holds, err = d.newHolds(); err != nil {
		return nil, err
	}
	o.holds, o.reloads = d.heldStats, d.reloads.status
	// The sockets first: a port in use is the commonest fault and the quickest
	// to find.
	if err := d.listen(); err != nil {
		return nil, err
	}
	o.balancer = d.balancer
	file := contentOf(d.reloads.files())
	if d.parts, err = build(ctx, c, o); err == nil {
		d.parts.loaded.Load().contents.file = file
		err = d.handle(access)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// Gateway returns the address the gateway listens on, and Admin the admin
// listener's; nil where nobody listens. Decisions says where proxies and programs
// ask.
func (d *Daemon) Gateway() net.Addr { return d.gate.address() }
func (d *Daemon) Admin() net.Addr   { return d.admin.address() }
func (d *Daemon) Decisions() (all []config.Listener) {
	for _, l := range []struct {
		setting string
		listener
	}{{"decisions.listen", d.asked}, {"decisions.grpc", d.called}, {"decisions.resp", d.redis},
		{"decisions.spoe", d.haproxy}} {
		if l.Listener != nil {
			all = append(all, config.Listener{Setting: l.setting, Address: l.Addr().String()})
		}
	}
	return all
}

// listeners are those that are open, the admin listener last: it answers while
// the others stop.
func (d *Daemon) listeners() []listener {
	return slices.DeleteFunc([]listener{d.gate, d.asked, d.called, d.redis, d.haproxy, d.admin},
		func(l listener) bool { return l.Listener == nil })
}

func (d *Daemon) close() {
	for _, l := range d.listeners() {
		_ = l.Close()
	}
}

// listen opens the listeners. Nothing is accepted until Run.
func (d *Daemon) listen() error {
	var errs [7]error
	if d.conf.Gateway() {
		d.gate, errs[0] = open("listen", d.conf.Listen)
		d.gate.held(d.holds.gate)
		d.gate.Listener, errs[1] = d.balanced(d.gate.Listener)
	}
	d.admin, errs[2] = open("admin", d.conf.Admin)
	d.admin.held(d.holds.admin)
	if at := d.conf.Decisions.Listen; at != "" {
		d.asked, errs[3] = open("decisions.listen", at)
		d.asked.held(d.holds.asked)
	}
	if at := d.conf.Decisions.GRPC; at != "" {
		d.called, errs[4] = open("decisions.grpc", at)
	}
	if at := d.conf.Decisions.RESP; at != "" {
		d.redis, errs[5] = open("decisions.resp", at)
	}
	if at := d.conf.Decisions.SPOE; at != "" {
		d.haproxy, errs[6] = open("decisions.spoe", at)
	}
	if err := errors.Join(errs[:]...); err != nil {
		d.close()
		return err
	}
	return nil
}

// handle puts the doors behind the listeners.
func (d *Daemon) handle(access admin.Access) (err error) {
	d.parts.loaded.Load().access = access
	if d.side, err = d.adminDoor(access); err != nil {
		return err
	}
	d.admin.server.Handler = d.holds.admin.Handler(gateway.Framed(d.side))
	if err := d.handleQuestions(); err != nil || !d.conf.Gateway() {
		return err
	}
	if d.carriers, err = newCarriers(&d.conf, d.holds.upstream, d.log); err != nil {
		return err
	}
	gate, err := d.newGateway(d.parts.loaded.Load(), d.carriers)
	if err != nil {
		return err
	}
	d.api.Store(&gate)
	d.gate.server.Handler = d.holds.gate.Handler(gateway.Framed(d.parts.traced(&d.api)))
	d.gate.Listener = d.parts.tls.listen(d.gate.Listener)
	if len(d.conf.GRPCStreams) > 0 && d.parts.tls == nil {
		// Clients of gRPC without TLS speak HTTP/2 from the first byte.
		d.gate.server.Protocols = new(http.Protocols)
		d.gate.server.Protocols.SetHTTP1(true)
		d.gate.server.Protocols.SetUnencryptedHTTP2(true)
	}
	if chosen, _ := d.conf.ChosenEngine(); chosen == "fast" {
		d.gate.front = engine.New(d.gate.server)
	}
	return nil
}

func (d *Daemon) newGateway(l *loaded, by carriers) (http.Handler, error) {
	base, err := url.Parse(l.conf.Upstream)
	if err != nil {
		return nil, err // Complete has checked it
	}
	var pool *upstream.Pool
	if by.own {
		pool = by.pool
	}
	limit := d.limit(&l.conf)
	limit.CountWhen, limit.CountTimeout = l.registry.CountWhen, l.conf.Settle.Timeout
	limit.CountFailed = seldom(d.log, "an answer that does not count was not settled, and counts")
	gate, err := gateway.New(gateway.Options{
		Limiter: d.parts.limiter, Upstream: base, Pool: pool, Transport: by.transport,
		TrustedProxy: l.who.Trusts, ForwardedHeader: l.conf.ForwardedHeader, ClientHeader: l.conf.ClientAddress.Header,
		Log: d.log, Failed: d.parts.meter.UpstreamFailed, Took: d.parts.watch.Took, Times: d.parts.watch.Times,
		WebSockets: l.registry.WebSockets, Streams: l.registry.Streams, Tunnels: &d.tunnels,
		KeyHeader: l.conf.Keys.Header, PassOverrides: l.conf.PassOverrideHeaders,
		Outgoing: outgoing(l.who, l.conf.Keys),
		Limit:    limit,
	})
	if err != nil {
		return nil, err
	}
	return d.developers(l, gate)
}

// limit is what every door over HTTP answers with.
func (d *Daemon) limit(c *config.Config) httplimit.Options {
	o := fields(c.Headers)
	o.Methods = func(target string) []string { return d.parts.limiter.Endpoints().Allowed(target) }
	o.Reserve = settlement(c.Settle, d.log)
	o.Identifiers, o.Calls, o.Meters = d.parts.identifiers, d.parts.calls, d.parts.models.meters
	o.MaxHeld = int64(c.Clients.BodyMemory)
	o.MaxWait = c.LongestWait()
	return o
}

// fields choose what every door tells clients.
func fields(h config.Headers) httplimit.Options {
	return httplimit.Options{
		OmitFields: !h.RateLimit, Draft: drafts[h.Draft], BindingOnly: h.Rules == "binding", Legacy: dialects[h.Legacy],
	}
}

var dialects = map[string]httplimit.Dialect{
	"none": httplimit.NoLegacy, "delta": httplimit.DeltaSeconds, "epoch": httplimit.EpochSeconds,
	"iso8601":  httplimit.ISO8601,
	"draft-03": httplimit.WithPolicies,
}

var drafts = map[string]httplimit.Draft{
	"draft-10": httplimit.Draft10, "draft-11": httplimit.Draft11, "proposal-166": httplimit.Proposal166,
	"draft-07": httplimit.Draft07, "draft-06": httplimit.Draft06, "draft-03": httplimit.Draft03,
}

func open(field, address string) (listener, error) {
	// Package hold keeps alive what it admits: to set it up for what is refused is
	// most of the work.
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		flag := strings.ReplaceAll(strings.TrimSuffix(field, ".listen"), ".", "-")
		return listener{},
			fmt.Errorf("%s is %q, which is in use: stop what listens there or choose another address with --%s", field,
				address, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return listener{}, fmt.Errorf("%s is %q, which is no address of this machine: want one that it has, such as "+
			"127.0.0.1, or none before the colon for all of them", field, address)
	case errors.Is(err, syscall.EACCES):
		return listener{}, fmt.Errorf("%s is %q, which this user may not listen on: want a port from 1024 on, or the "+
			"capability CAP_NET_BIND_SERVICE", field, address)
	case err != nil:
		return listener{}, fmt.Errorf("%s is %q: %w", field, address, err)
	}
	return listener{Listener: l, server: &http.Server{
		// "OPTIONS *" is a request like any other, and its target is no path:
		// net/http would answer it unseen.
		DisableGeneralOptionsHandler: true,
		// Everything a client can do wrong at this level is its own affair
		// and must not fill the log.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}}, nil
}

func (l listener) serve() error {
	if l.other != nil {
		return l.other.Serve(l.Listener)
	}
	if l.front != nil {
		return l.front.Serve(l.Listener)
	}
	return l.server.Serve(l.Listener)
}

// shutDown lets what is under way finish, and cuts it off when ctx ends, which is
// its error.
func (l listener) shutDown(ctx context.Context) error {
	if l.other != nil {
		_ = l.Close()
		return l.other.Shutdown(ctx)
	}
	var s interface {
		Shutdown(context.Context) error
		Close() error
	} = l.server
	if l.front != nil {
		s = l.front
	}
	err := s.Shutdown(ctx)
	if ctx.Err() != nil {
		_ = s.Close()
	}
	return err
}

func (l listener) address() net.Addr {
	if l.Listener == nil {
		return nil
	}
	return l.Addr()
}

// ready says why the process should not be sent requests, or nil.
func (d *Daemon) ready() error {
	switch {
	case d.leaving.Load():
		return errors.New("shutting down")
	case d.parts.rules.Set() == nil:
		return errors.New("no rules were loaded yet")
	}
	if s := d.parts.rules.Status(); s.Standing.Fallback == policy.Deny {
		return errors.New(s.StandingWords)
	}
	return d.parts.shared.ready()
}

// Run serves until ctx ends or a listener fails. It then stops accepting,
// lets the requests in flight finish within the shutdown timeout, and returns.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.parts.close()
	defer func() { d.carriers.close() }() // those of the last reload
	defer d.parts.kept.end()              // after the last decision, and the last write of run
	defer d.parts.keptUsage.end()         // the same
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var refreshing sync.WaitGroup
	refreshing.Go(func() { d.parts.rules.Run(background) })
	refreshing.Go(func() { d.parts.keys.Run(background) })
	refreshing.Go(func() { d.parts.database.watch(background) })
	refreshing.Go(func() { d.parts.reportRules(background) })
	refreshing.Go(func() { d.parts.apiKeys.run(background, d.conf.Refresh) })
	refreshing.Go(func() { d.parts.pressure.run(background) })
	refreshing.Go(func() { d.parts.regions.run(background) })
	refreshing.Go(func() { d.parts.tokens.run(background, func(ctx context.Context, t *tokens) { t.source.Run(ctx) }) })
	refreshing.Go(func() { d.parts.agents.run(background, func(ctx context.Context, a *signedAgents) { a.run(ctx) }) })
	refreshing.Go(func() { d.parts.descriptors.run(background) })
	refreshing.Go(func() { d.parts.tls.run(background) })
	refreshing.Go(func() { d.parts.askTLS.run(background) })
	refreshing.Go(func() { d.parts.requests.run(background) })
	refreshing.Go(func() { d.parts.readActivity(background) })
	refreshing.Go(func() { d.parts.watch.Run(background) })
	refreshing.Go(func() { d.parts.hook.Run(background) })
	refreshing.Go(func() {
		d.parts.decisions.run(background, func(ctx context.Context, log *written) { log.write(ctx) })
	})
	refreshing.Go(func() { d.parts.traces.run(background, d.parts.trace) })
	refreshing.Go(func() { d.parts.shared.run(background) })
	refreshing.Go(func() { d.parts.gossip.run(background) })
	refreshing.Go(func() { d.parts.kept.run(background) })
	refreshing.Go(func() { d.parts.keptUsage.run(background) })
	if d.parts.heartbeat != nil {
		refreshing.Go(func() { d.parts.heartbeat.Run(background) })
	}
	if d.parts.reverter != nil {
		refreshing.Go(func() { d.parts.reverter.Run(background) })
	}
	refreshing.Go(func() { d.parts.adminTokens.run(background) })
	refreshing.Go(func() { d.side.Run(background) })
	refreshing.Go(func() { d.watchFiles(background) })
	refreshing.Go(func() { d.tryUpstreams(background) })
	refreshing.Go(func() { d.holds.gate.Run(background) })
	refreshing.Go(func() { d.holds.admin.Run(background) })
	refreshing.Go(func() { d.holds.asked.Run(background) })
	defer refreshing.Wait()
	defer stopBackground()

	failed := make(chan error, len(d.listeners()))
	for _, l := range d.listeners() {
		go func() { failed <- l.serve() }()
	}
	if s := d.parts.rules.Status(); s.Standing.Empty {
		d.log.Warn(s.StandingWords + ": add some with `headgate policy set`")
	}
	if d.conf.Unknown == "reject" && limitsUnknown(d.parts.rules.Set()) {
		d.log.Warn("there are rules for UNKNOWN, and they count nothing: unknown is reject, so that what matches no " +
			"endpoint is refused before any rule; want unknown: limit, or --unknown limit, for them to count")
	}
	d.log.Info("server behind", "assumed", d.conf.Endpoint.Assumes())
	if d.conf.Gateway() {
		chosen, why := d.conf.ChosenEngine()
		d.log.Info("requests are read by", "engine", chosen, "why", why)
	}
	d.log.Info("serving", d.whereabouts()...)
	d.tell(systemd.SdNotifyReady)
	select {
	case err := <-failed:
		now, cancel := context.WithCancel(ctx)
		cancel()
		for _, l := range d.listeners() {
			_ = l.shutDown(now)
		}
		return err
	case <-ctx.Done():
		return d.shutDown(context.WithoutCancel(ctx))
	}
}

// whereabouts says where this process listens, for a log line.
func (d *Daemon) whereabouts() (about []any) {
	if d.conf.Gateway() {
		about = append(about, "gateway", d.gate.Addr().String())
	}
	for _, l := range d.Decisions() {
		about = append(about, strings.TrimSuffix(strings.ReplaceAll(l.Setting, ".", "_"), "_listen"), l.Address)
	}
	about = append(about, "admin", d.admin.Addr().String())
	if d.conf.Gateway() {
		about = append(about, "upstream", d.conf.Upstream)
	}
	return append(about, "endpoints", d.parts.limiter.Endpoints().Len(), "rules", d.parts.rules.Status().Rules)
}

func (d *Daemon) shutDown(ctx context.Context) error {
	d.leaving.Store(true)
	d.tell(systemd.SdNotifyStopping)
	within := d.parts.loaded.Load().conf.ShutdownTimeout
	d.log.Info("shutting down: requests in flight may finish", "within", within)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	errs := []error{d.tunnels.End(ctx)}
	for _, l := range d.listeners() {
		if l.Listener == d.admin.Listener {
			errs = append(errs, l.server.Close())
		} else if err := l.shutDown(ctx); errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, fmt.Errorf("requests in flight at %v were cut off after %v", l.Addr(), within))
		} else {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Offline returns the Limiter that `headgate serve` would run with, without
// listening and with every bucket full, and the endpoints whose bodies it would
// read. It only reads: it makes no database, no secret and no copy.
func Offline(ctx context.Context, c config.Config, log *slog.Logger) (*headgate.Limiter, *httplimit.Calls, error) {
	p, err := build(ctx, c, Options{Log: log, readOnly: true})
	if err != nil {
		return nil, nil, err
	}
	p.close()
	return p.limiter, p.calls, nil
}

// limitsUnknown reports whether rules are for requests that match no endpoint.
func limitsUnknown(set *policy.Set) bool {
	return set != nil && slices.ContainsFunc(
		set.Consider(0, endpoint.Match{Status: endpoint.UnknownPath}, "", ""),
		func(c policy.Considered) bool { return c.Found })
}
