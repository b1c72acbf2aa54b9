package daemon

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/revert"
	"github.com/headgate-io/headgate/server/trace"
	"github.com/headgate-io/headgate/server/usage"
	"github.com/headgate-io/headgate/server/warnings"
	"github.com/headgate-io/headgate/slot"
)

// parts is everything between the configuration and the listeners.
type parts struct {
	loaded   atomic.Pointer[loaded]
	regions  *regions
	database *policyDatabase
	rules    *policy.Cache
	keys     *keyring
	tokens   *part[tokens]
	agents   *part[signedAgents]
	replays  *replays
	tls      *tlsFiles // nil without
	askTLS   *tlsFiles // of those who ask; nil without
	apiKeys  *apiKeys  // nil if no key can be recognised

	adminTokens *adminTokens // nil if nobody listens
	limiter     *headgate.Limiter
	meter       *metrics.Meter
	scores      *anomaly.Table
	scored      *activity.Scored // callers with the highest of them
	usage       *usage.Table     // nil if nothing is counted
	days        *usage.Days      // the same, by the day
	activity    *activity.Table  // nil if nothing is remembered
	names       *activity.Names  // of callers, for people
	decisions   *part[written]
	watch       *warnings.Watch
	hook        *warnings.Hook // where watch tells
	requests    *requests
	pressure    *pressure
	shared      *shared          // nil if every gateway counts alone
	gossip      *gossiping       // nil if gateways tell each other nothing
	name        string           // of this replica
	heartbeat   *fleet.Heartbeat // nil if this replica reports to nobody
	reverter    *revert.Watcher  // nil if no change is taken back

	traces      *part[trace.Tracer]
	identifiers *httplimit.Identifiers
	calls       *httplimit.Calls
	models      *models
	adaptive    *adaptive.Table
	kept        *kept        // nil if buckets begin full
	keptUsage   *keptUsage   // nil if usage is forgotten
	counters    *counters    // nil if nothing but requests is asked about
	descriptors *descriptors // nil without

	log     *slog.Logger
	version string // of the program
}

func (p *parts) close() {
	p.kept.close()
	p.keptUsage.close()
	p.database.close()
	p.shared.close()
	p.gossip.close()
}

// build wires the parts in the order in which a request meets them.
func build(ctx context.Context, c config.Config, o Options) (_ *parts, err error) {
	p := &parts{
		log: logger(
			o.Log,
		),
		version:   o.Version,
		names:     activity.NewNames(),
		hook:      warnings.NewHook(warnings.HookOptions{}),
		tokens:    newPart[tokens](),
		agents:    newPart[signedAgents](),
		decisions: newPart[written](),
		traces:    newPart[trace.Tracer](),
	}
	l, err := load(c)
	if err != nil {
		return nil, err
	}
	l.registry.warn(p.log)
	if p.regions, err = newRegions(c.RegionFiles, o.Log); err != nil {
		return nil, err
	}
	p.database = newDatabase(c, OpenDatabase)
	p.requests = &requests{
		db:   p.database,
		log:  o.Log,
		keep: func() time.Duration { return p.loaded.Load().conf.Developers.KeepRequests },
	}
	if o.readOnly {
		p.database.open = OpenDatabaseReadOnly
		c.LastGood = ""
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if !o.readOnly {
		if p.kept, err = openKept(c, o.Log); err != nil {
			return nil, err
		}
	}
	if err := p.startRefreshing(ctx, c, l.compile, o); err != nil {
		return nil, err
	}
	if !o.readOnly { // nobody connects, and only the gateway can read its key
		if p.tls, err = newTLS("tls", c.TLS, o.Log); err != nil {
			return nil, err
		}
	}
	if !o.readOnly {
		if p.askTLS, err = newTLS("decisions.tls", c.Decisions.TLS.Files(), o.Log); err != nil {
			return nil, err
		}
		if p.adminTokens, err = startAdminTokens(ctx, p.database, c, o.Log); err != nil {
			return nil, err
		}
	}
	p.replays = newReplays(o.Log)
	var away error
	if l.tokens, away, err = startTokens(ctx, &c, p.replays, o.Log); err != nil {
		return nil, err
	}
	if away != nil {
		// Nobody gains: a request with a token counts as its address's.
		p.log.Error("no keys of bearer tokens could be fetched: until they can, tokens are ignored", "error", away)
	}
	p.tokens.put(l.tokens)
	if l.agents, err = startAgents(ctx, &c, nil, p.replays, o.Log); err != nil {
		return nil, err
	}
	p.agents.put(l.agents)
	if !o.readOnly || p.keys.len() > 0 { // else nobody has a key, so no secret is needed
		if p.apiKeys, err = newAPIKeys(c, p.database, p.keys, o.Log); err != nil {
			return nil, err
		}
	}
	if err := l.resolve(p); err != nil {
		return nil, err
	}
	p.loaded.Store(l)
	buckets, err := p.kept.fill(func() (*memory.Store, error) { return newBuckets(c) }, p.rules)
	if err != nil {
		return nil, err
	}
	if !o.readOnly { // nobody is counted, so nothing is shared
		if p.shared, err = newShared(ctx, c, o.Log); err != nil {
			return nil, err
		}
		if err := p.replays.share(p.shared); err != nil {
			return nil, err
		}
		if p.gossip, err = newGossiping(c, p.rules.Now, o.Log); err != nil {
			return nil, err
		}
	}
	shared, err := p.shared.over(buckets, p.gossip, p.rules.Now)
	if err != nil {
		return nil, err
	}
	if !o.readOnly {
		if p.counters, err = p.newCounters(c); err != nil {
			return nil, err
		}
		if p.descriptors, err = p.newDescriptors(c, logger(o.Log)); err != nil {
			return nil, err
		}
	}
	read, err := identifierOptions(c, l.registry.Table, o.Log)
	if err != nil {
		return nil, err
	}
	if p.identifiers, err = httplimit.NewIdentifiers(read); err != nil {
		return nil, err
	}
	if p.calls, err = httplimit.NewCalls(callOptions(c, l.registry)); err != nil {
		return nil, err
	}
	if p.models, err = newModels(c, l.registry.Table); err != nil {
		return nil, err
	}
	p.adaptive = &adaptive.Table{Notify: p.adapted, Changed: p.lowered}
	p.shared.adapts(p.adaptive)
	p.adaptive.Use(l.registry.Adaptive, p.rules.Now())
	stats := func() memory.Stats { return buckets.Stats(p.rules.Now()) }
	p.pressure = newPressure(stats, p.rules.Set, o.Log)
	p.name = replicaName(c)
	p.watch = warnings.New(warnings.Options{
		Gateway: p.name, Caller: p.names.Hash, Log: p.log, Send: p.hook.Send,
	})
	p.heartbeat = p.newHeartbeat(c, o)
	p.reverter = p.newReverter(c, o)
	if p.activity, err = newActivity(
		c.Activity,
		p.names,
		func(d *headgate.Decision) { p.meter.CameEarly(d) },
	); err != nil {
		return nil, err
	}
	if !o.readOnly {
		use, _, err := p.prepareTelling(ctx, &config.Config{}, &c)
		if err != nil {
			return nil, err
		}
		use()
	}
	p.scores, p.scored = anomaly.New(c.Anomalies.Callers), activity.NewScored(p.names)
	p.scores.Use(c.Anomalies.Settings())
	if p.usage, err = newUsage(c.Usage); err != nil {
		return nil, err
	}
	if p.usage != nil {
		p.days = usage.NewDays(p.names.Hash, nil)
	}
	if !o.readOnly {
		if p.keptUsage, err = keepUsage(c.Usage, p.days, p.log); err != nil {
			return nil, err
		}
	}
	p.meter = metrics.New(metrics.Options{
		Warnings:     p.watchStats,
		Policies:     p.rules.Status,
		Keys:         p.keys.status,
		Buckets:      stats,
		TooSmall:     func() bool { return len(p.pressure.warnings()) > 0 },
		FalseDenials: func(table memory.Stats) float64 { _, part := mostDenied(p.rules.Set(), table); return part },
		Reservations: func() reservation.Stats { return p.limiter.Reservations() },
		Slots:        func() slot.Stats { return p.limiter.Slots() },
		Waiters:      func() (waiting, most int) { return p.limiter.Waiters() },
		WithoutPlace: func() (full, beyondShare, lowerClass uint64) { return p.limiter.WithoutPlace() },
		Penalties:    func() penalty.Stats { return p.limiter.Penalties() },
		Scores:       func() (anomaly.Stats, bool) { return p.limiter.Scores() },
		Rejections:   func() iter.Seq2[identity.Rejection, uint64] { return p.who().Rejections() },
		Version:      o.Version,
		Identifiers:  p.identifiers.Faults,
		Calls:        p.calls.Faults,
		Ended:        p.models.meters.Ended,
		Regions:      p.regions.status,
		Descriptors:  p.descriptors.reporter(),
		Quotas:       p.descriptors.lent(),
		DecisionLog:  p.decisionStats,
		Traces:       p.traceStats,
		Balancer:     balancerStats(o.balancer),
		Holds:        o.holds,
		Tokens:       p.tokenStats,
		Agents:       p.agentStats,
		TLS:          p.tls.status(),
		AdminTokens:  p.adminTokens.status(),
		Fleet:        p.told(),
		Reverts:      p.reverts(),
		Reloads:      o.reloads,
		Kept:         p.kept.reporter(),
		KeptUsage:    p.keptUsage.at(),
		Store:        p.shared.status(),
		Gossip:       p.gossip.status(),
		Envelopes:    p.envelopes,
		Places:       p.places,
		OpenRequests: p.requests.opened,
		Adaptive:     p.adaptiveStats,
	})
	options := l.limiterOptions()
	options.NamedTiers = func() bool {
		conf := &p.loaded.Load().conf
		return conf.Tokens.TierClaim != "" || conf.SignedAgents.InProjects() || p.keys.tiers.Load()
	}
	options.Endpoints, options.Policies, options.Buckets, options.Names = l.registry.Table, p.rules, shared, cmp.Or(
		p.shared.naming(),
		p.gossip.naming(),
	)
	options.Adaptive = p.adaptive
	options.Keys, options.Penalties = p.kept.keys(), p.kept.penalties()
	options.Scores, options.Scored = p.scores, p.noteScore
	options.Region, options.Typed = p.regions.finder(p.who), p.identifiers.Typed
	options.Observe, options.Settled, options.Time = p.observe, p.settled, p.time
	options.Abandoned = p.abandoned
	options.MaxReservations = c.Settle.MaxOutstanding
	if c.RetryAfter != "truth" {
		options.Slots = slot.New(slot.Options{Reserve: c.RetryAfter == "reserved"})
	}
	p.limiter, err = headgate.New(options)
	return p, err
}

// prepareTelling makes what tells others of decisions: what writes them down, what warns of them and what traces them,
// as far as after says something else of it than before. use puts it in place, drop gives it up.
func (p *parts) prepareTelling(ctx context.Context, before, after *config.Config) (use, drop func(), err error) {
	uses, drop := []func(){}, func() {}
	if after.DecisionLog != before.DecisionLog {
		next, err := p.newDecisions(after.DecisionLog)
		if err != nil {
			return nil, nil, err
		}
		uses = append(uses, func() {
			if p.decisions.put(next); next != nil { // whose file may go on from another process
				p.adaptive.Repeat(p.rules.Now())
			}
		})
	}
	if after.Warn != before.Warn {
		use, err := p.prepareWatch(after.Warn)
		if err != nil {
			return nil, nil, err
		}
		uses = append(uses, use)
	}
	if after.Traces != before.Traces {
		next, err := p.newTraces(ctx, after.Traces)
		if err != nil {
			return nil, nil, err
		}
		uses = append(uses, func() { p.traces.put(next) })
		if next != nil {
			drop = func() { _ = next.Close(ctx) } // it has sent nothing
		}
	}
	return func() {
		for _, use := range uses {
			use()
		}
	}, drop, nil
}

// timedOneIn is how many decisions there are to one whose stages are timed.
const timedOneIn = 256

// timeSome times the stages of one decision in timedOneIn.
func timeSome(context.Context, *headgate.Request) *headgate.Stages {
	if rand.Uint32()%timedOneIn != 0 {
		return nil
	}
	return &headgate.Stages{}
}

var unknownModes = map[string]headgate.UnknownMode{"reject": headgate.RejectUnknown, "limit": headgate.LimitUnknown}

// startRefreshing loads rules and keys for the first time. Without any rules
// the gateway could only answer 503, so that is an error.
func (p *parts) startRefreshing(ctx context.Context, c config.Config, compile policy.CompileOptions,
	o Options) (err error) {
	log := o.Log
	predecessor, began := p.kept.predecessor()
	p.rules, err = policy.NewCache(policy.CacheOptions{
		Predecessor: predecessor, Began: began, Source: p.database, Compile: compile, Interval: c.Refresh,
		LastGood: c.LastGood, Log: log, Now: o.now,
		MaxStale: c.Staleness.MaxStale, OnStale: config.Fallbacks[c.Staleness.OnStale],
		OnEmpty:      config.Fallbacks[c.Staleness.OnEmpty],
		FallbackRule: c.Staleness.Fallback.Rule(),
		Spread:       true, Wake: p.database.wake[0], Others: p.others,
	})
	if err != nil {
		return err
	}
	if p.keys, err = newKeyring(p.database, c, log); err != nil {
		return err
	}
	if err := p.rules.Start(ctx); err != nil {
		return err
	}
	if err := p.keys.Start(ctx); err != nil {
		// Nobody gains: a request with a key counts as its address's.
		log.Error("no API keys could be loaded: until the database can be read, keys are ignored", "error", err)
	}
	return nil
}

// resolver tells callers apart as c says, by the keys of p, by t and by a.
func (p *parts) resolver(c config.Config, t *tokens, a *signedAgents) (*identity.Resolver, error) {
	who, err := addressOptions(c)
	if err != nil {
		return nil, err
	}
	who.KeySources, who.KeyFormats = c.Keys.Sources(), c.Keys.Formats()
	if c.Credentials == "first" {
		who.Credentials = identity.FirstCredentials
	}
	t.identify(&who, c)
	if a != nil {
		who.Agents = a.verifier
	}
	if p.apiKeys != nil {
		who.Keys, who.Digester, who.Rotated = p.keys, p.apiKeys.digester, p.apiKeys.rehash.note
	}
	return identity.New(who)
}
