package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/openapi"
	"github.com/headgate-io/headgate/server/record"
)

// loaded is what a reload puts another in place of, as a whole. What counts, and what waits, is elsewhere and
// stays.
//
//	configuration ──▶ documents ──▶ endpoints ──▶ rules compiled for them ──▶ in force
//	      └─ a fault anywhere: what was loaded before stays
type loaded struct {
	conf     config.Config // what does not reload is as it was at the start
	registry *Registry
	compile  policy.CompileOptions
	who      *identity.Resolver
	tokens   *tokens             // nil without
	agents   *signedAgents       // nil without
	door     *developers.Door    // nil if there is none
	from     map[string]networks // who may ask for decisions, by the setting of the listener
	setters  networks            // who of them may set limits of descriptors
	fields   httplimit.Options   // what clients are told of limits of descriptors
	access   admin.Access        // to the admin listener
	contents contents            // as they were before they were read
}

// load reads the documents that c names.
func load(c config.Config) (*loaded, error) {
	from := map[string]networks{}
	for _, l := range c.Decisions.Listeners() {
		list, err := config.ParsePrefixes(c.Decisions.MayAsk(l.Setting))
		if err != nil {
			return nil, err // Complete has checked it
		}
		from[l.Setting] = list
	}
	setters, err := config.ParsePrefixes(c.Decisions.RateLimitOverrides)
	if err != nil {
		return nil, err
	}
	before := contents{documents: contentOf(documents(&c))}
	registry, err := Endpoints(c)
	if err != nil {
		return nil, err
	}
	return &loaded{
		conf:     c,
		registry: registry,
		compile:  CompileOptions(c, registry),
		from:     from,
		setters:  setters,
		fields:   fields(c.Headers),
		contents: before,
	}, nil
}

// networks are those of whoever may do something.
type networks []netip.Prefix

// have reports whether an address is in one of them.
func (n networks) have(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(a) })
}

// resolve has callers told apart as the configuration says, by the keys of p, by tokens and by signatures.
func (l *loaded) resolve(p *parts) (err error) {
	l.who, err = p.resolver(l.conf, l.tokens, l.agents)
	return err
}

// limiterOptions are those that headgate.Limiter.Reload takes over.
func (l *loaded) limiterOptions() headgate.Options {
	return headgate.Options{
		Identities: l.who, Unknown: unknownModes[l.conf.Unknown], DenyWithoutRule: l.conf.NoRule == "deny",
		RefuseBadCredentials: l.conf.BadCredentials == "reject", MaxWaiters: l.conf.MaxWaiters,
		MaxWait: l.conf.LongestWait(),
	}
}

// who tells callers apart.
func (p *parts) who() *identity.Resolver { return p.loaded.Load().who }

// compileOptions are those of the rules in force.
func (p *parts) compileOptions() policy.CompileOptions { return p.loaded.Load().compile }

// swap is a handler in whose place another can come. Requests under way stay with theirs.
type swap struct{ atomic.Pointer[http.Handler] }

func (s *swap) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*s.Load()).ServeHTTP(w, r) }

// reloads is what became of them.
type reloads struct {
	read  func() (config.Config, error)
	file  string // that it reads, if any
	level *slog.LevelVar

	turn sync.Mutex // of the one that reloads

	mu        sync.Mutex // guards what follows
	last      record.Reload
	failed    string // why the newest one did, "" if it did not
	good, bad uint64
}

func (r *reloads) status() metrics.ReloadStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return metrics.ReloadStatus{Good: r.good, Bad: r.bad, OK: r.failed == "", Waiting: len(r.last.Restart)}
}

// Reload reads the configuration and the documents that it names again, and puts in force what of it can change while
// the process runs: all of that, or, with an error that says why, nothing. Buckets and connections stay. Callers wait
// for each other.
func (d *Daemon) Reload(ctx context.Context) (record.Reload, error) {
	d.reloads.turn.Lock()
	defer d.reloads.turn.Unlock()
	d.tell(systemd.SdNotifyReloading + "\n" + systemd.SdNotifyMonotonicUsec())
	defer d.tell(systemd.SdNotifyReady)
	before := d.carriers
	done, err := d.reload(ctx)
	done.At = time.Now().UTC()
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	if err != nil {
		d.reloads.bad, d.reloads.failed = d.reloads.bad+1, err.Error()
		d.log.Error("reload failed: what was in force before stays", "error", err)
		return record.Reload{}, err
	}
	d.reloads.good, d.reloads.failed, d.reloads.last = d.reloads.good+1, "", done
	about := []any{"endpoints", done.Endpoints, "added", done.Added, "removed", done.Removed}
	if len(done.Changed) > 0 {
		about = append(about, "changed", strings.Join(done.Changed, ", "))
	}
	if len(done.Restart) > 0 {
		d.log.Warn("reloaded, but some settings wait for a restart",
			append(about, "restart", strings.Join(done.Restart, ", "))...)
	} else {
		d.log.Info("reloaded", about...)
	}
	if d.carriers != before {
		d.tryOthers()
	}
	return done, nil
}

func (d *Daemon) reload(ctx context.Context) (done record.Reload, err error) {
	p, before := d.parts, d.parts.loaded.Load()
	next, file := before.conf, contentOf(d.reloads.files())
	if d.reloads.read != nil {
		if next, err = d.reloads.read(); err != nil {
			return done, err
		}
	}
	next, done.Changed, done.Restart = before.conf.Reloaded(next)
	if err := next.Complete(); err != nil {
		return done, fmt.Errorf("what can change now does not go with what waits for a restart (%s): %w",
			strings.Join(done.Restart, ", "), err)
	}
	l, err := load(next)
	if err != nil {
		return done, err
	}
	l.contents.file = file
	if err := d.reloadTokens(ctx, before, l); err != nil {
		return done, err
	}
	if err := d.reloadAgents(ctx, before, l); err != nil {
		return done, err
	}
	if err := l.resolve(p); err != nil {
		return done, err
	}
	useAround, err := d.prepareAround(l)
	if err != nil {
		return done, err
	}
	gate, by, useHolds, err := d.prepareGate(before, l)
	defer func() {
		if err != nil && by != d.carriers {
			by.close()
		}
	}()
	if err != nil {
		return done, err
	}
	useTelling, dropTelling, err := p.prepareTelling(ctx, &before.conf, &l.conf)
	if err != nil {
		return done, err
	}
	// From here on nothing fails: the rules last, which come from elsewhere.
	adapting := l.registry.Adaptive
	if !sameRules(before, l) {
		if err := p.rules.Recompile(ctx, l.compile); err != nil {
			dropTelling()
			return done, fmt.Errorf("%w: %w", errRules, err)
		}
	} else {
		l.registry, l.compile = before.registry, before.compile
	}
	useAround()
	useTelling()
	p.adaptive.Use(adapting, p.rules.Now())
	if err := errors.Join(
		p.limiter.Reload(l.limiterOptions()),
		d.answers.Reload(d.limit(&l.conf), l.conf.PassOverrideHeaders),
	); err != nil {
		return done, err // ours to mend: both have been checked
	}
	p.scores.Use(l.conf.Anomalies.Settings())
	p.loaded.Store(l)
	if gate != nil {
		d.api.Store(&gate)
	}
	if l.door != nil {
		if err := l.door.Use(); err != nil {
			return done, err // ours to mend: it is what New has checked
		}
	}
	useHolds()
	if by != d.carriers {
		old := d.carriers
		d.carriers = by
		old.close()
	}
	if l.tokens != before.tokens {
		p.tokens.put(l.tokens)
	}
	if l.agents != before.agents {
		p.agents.put(l.agents)
	}
	if d.reloads.level != nil {
		_ = d.reloads.level.UnmarshalText([]byte(l.conf.Log.Level)) // which Complete has checked
	}
	if l.registry != before.registry {
		l.registry.warn(d.log)
	}
	if l.access.Token != before.access.Token && !slices.Contains(done.Changed, "admin_token_file") {
		done.Changed = append(done.Changed, "admin_token_file")
	}
	done.Endpoints = l.registry.Table.Len()
	done.Added, done.Removed = compared(before.registry.Table, l.registry.Table)
	return done, nil
}

// reloadTokens has l verify tokens as before, if nothing else is said of them. The keys of an issuer must be there:
// otherwise those in use are better than none.
func (d *Daemon) reloadTokens(ctx context.Context, before, l *loaded) error {
	l.tokens = before.tokens
	if reflect.DeepEqual(before.conf.Tokens, l.conf.Tokens) &&
		(l.conf.Tokens.DPoP == "off" || slices.Equal(before.conf.Origins, l.conf.Origins)) {
		return nil
	}
	next, away, err := startTokens(ctx, &l.conf, d.parts.replays, d.log)
	if err == nil && away != nil {
		err = fmt.Errorf("tokens: %w", away)
	}
	l.tokens = next
	return err
}

// reloadAgents has l verify signatures as before, if nothing else is said of them. Directories that stay keep their
// keys. Those of others may be away: nothing that was in force is lost by it.
func (d *Daemon) reloadAgents(ctx context.Context, before, l *loaded) (err error) {
	l.agents = before.agents
	if reflect.DeepEqual(before.conf.SignedAgents, l.conf.SignedAgents) &&
		slices.Equal(before.conf.Origins, l.conf.Origins) {
		return nil
	}
	l.agents, err = startAgents(ctx, &l.conf, before.agents, d.parts.replays, d.log)
	return err
}

// prepareAround makes anew what stands around the decision: how bodies are read, certificates, who may call the admin
// listener, regions and balancers. use puts it in force.
func (d *Daemon) prepareAround(l *loaded) (use func(), err error) {
	p, c := d.parts, &l.conf
	var uses [7]func()
	var errs [8]error
	read, err := identifierOptions(l.conf, l.registry.Table, d.log)
	if err != nil {
		return nil, err
	}
	uses[0], errs[0] = p.identifiers.Prepare(read)
	uses[1], errs[1] = p.tls.prepare(func(config.TLS) config.TLS { return c.TLS })
	uses[2], errs[2] = p.askTLS.prepare(func(config.TLS) config.TLS { return c.Decisions.TLS.Files() })
	uses[3], errs[3] = p.regions.prepare(c.RegionFiles)
	uses[4], errs[4] = d.prepareBalancers(c.ProxyProtocol)
	uses[5], errs[5] = p.models.prepare(l.conf, l.registry.Table)
	uses[6], errs[6] = p.calls.Prepare(callOptions(l.conf, l.registry))
	l.access, errs[7] = adminAccess(c)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return func() {
		for _, use := range uses {
			use()
		}
		d.side.Use(l.access)
	}, nil
}

// prepareGate makes the gateway of l, nil where there is none, with what carries its requests on. use has its clients
// hold what they may by l.
func (d *Daemon) prepareGate(before, l *loaded) (gate http.Handler, by carriers, use func(), err error) {
	by = d.carriers
	most, use, err := d.prepareHolds(&l.conf)
	if err != nil || !d.conf.Gateway() {
		return nil, by, use, err
	}
	if !sameCarriers(&l.conf, &before.conf) || most != by.transport.MaxConnsPerHost {
		fresh, err := newCarriers(&l.conf, most, d.log)
		if err != nil {
			return nil, by, nil, err
		}
		by = fresh
	}
	gate, err = d.newGateway(l, by)
	return gate, by, use, err
}

// errRules is why a reload failed whose files are good: it may be tried again.
var errRules = errors.New("rules for the new endpoints")

// sameRules reports whether rules mean the same under two sets of endpoints.
func sameRules(a, b *loaded) bool {
	return reflect.DeepEqual(a.registry.Operations, b.registry.Operations) &&
		a.conf.Endpoint.Profile() == b.conf.Endpoint.Profile() && a.conf.BurstPercent == b.conf.BurstPercent &&
		maps.Equal(a.registry.Costs, b.registry.Costs) && slices.Equal(a.registry.Identified, b.registry.Identified) &&
		maps.Equal(a.registry.Parts, b.registry.Parts) && maps.Equal(a.registry.Dearest, b.registry.Dearest) &&
		slices.Equal(a.registry.Metered, b.registry.Metered) && slices.Equal(a.compile.Followed, b.compile.Followed) &&
		slices.Equal(a.compile.ScoreTiers, b.compile.ScoreTiers) &&
		reflect.DeepEqual(a.compile.ClassesBy, b.compile.ClassesBy) &&
		slices.Equal(a.compile.AgentTiers, b.compile.AgentTiers) &&
		slices.Equal(
			a.compile.Unseen,
			b.compile.Unseen,
		) && slices.Equal(a.compile.Claims, b.compile.Claims) // of tokens
}

// watchFiles reloads when the configuration's file or a document changed, and has ceased to, under watch_files. A file
// with a fault is tried once; good ones are tried again while the rules for them cannot be had.
func (d *Daemon) watchFiles(ctx context.Context) {
	if !d.conf.WatchFiles {
		return
	}
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var last, tried contents
	var again time.Time // when to try the same once more; zero for never
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l := d.parts.loaded.Load()
		now := contents{contentOf(d.reloads.files()), contentOf(documents(&l.conf))}
		untried := now != tried || !again.IsZero() && time.Now().After(again)
		if now == last && now != l.contents && untried {
			tried, again = now, time.Time{}
			if _, err := d.Reload(ctx); errors.Is(err, errRules) { // it says itself what came of it
				again = time.Now().Add(againInterval)
			}
		}
		last = now
	}
}

const (
	watchInterval = time.Second
	againInterval = 5 * time.Second
)

// contents are what was read: the configuration's file, and the documents that it names, but for what those refer to.
type contents struct{ file, documents content }

func (r *reloads) files() []string {
	if r.file == "" {
		return nil
	}
	return []string{r.file}
}

func documents(c *config.Config) []string {
	all := slices.Clone(c.OpenAPI)
	for _, source := range c.Routes {
		all = append(all, openapi.File(source))
	}
	for _, g := range c.GraphQL {
		all = append(all, g.Schema)
	}
	return all
}

// tell tells systemd, if it started this process, how it is; see sd_notify(3).
func (d *Daemon) tell(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		d.log.Warn("the state of this process could not be reported to systemd", "state", state, "error", err)
	}
}

// compared counts the templates that one table has and the other has not.
func compared(before, after *endpoint.Table) (added, removed int) {
	texts := make(map[string]bool, before.Len())
	for _, t := range before.All() {
		texts[t.String()] = true
	}
	for _, t := range after.All() {
		if !texts[t.String()] {
			added++
		}
		delete(texts, t.String())
	}
	return added, len(texts)
}
