package nemesis

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// gateway is one process, put together as server/daemon does.
type gateway struct {
	*headgate.Limiter

	slot    int
	clock   *clock
	table   *adaptive.Table // nil where rates are what rules say
	rules   *rules
	leases  *lease.Store
	reports *report.Store
	buckets *scoped.Store
	members *redis.Members
	wire    *wire

	gone  context.CancelFunc // ends its words to other members
	ended chan struct{}      // closed when they have
	dead  atomic.Bool        // what it decides reaches nobody
}

// clock is a gateway's: off by what its wall clock was when it began, and steady from there on.
type clock struct{ offset time.Duration }

func (c *clock) Now() int64 { return time.Now().Add(c.offset).UnixNano() }

// Wall is no other here: rules of a Plan do not expire.
func (c *clock) Wall(now int64) int64 { return now }

// rules are those in force at one gateway, and its clock: what a policy.Cache is.
type rules struct {
	*clock
	set atomic.Pointer[policy.Set]
}

// Set is part of headgate.Policies.
func (r *rules) Set() *policy.Set { return r.set.Load() }

var endpoints = mustEndpoints("GET /a", "GET /b")

func mustEndpoints(templates ...string) *endpoint.Table {
	var all []endpoint.Template
	for _, text := range templates {
		one, err := endpoint.ParseTemplate(text)
		if err != nil {
			panic(err) // the templates are ours
		}
		all = append(all, one)
	}
	table, err := endpoint.Compile(all, endpoint.Profile{})
	if err != nil {
		panic(err)
	}
	return table
}

// must is for what is configured by a Plan: that it cannot be is a bug of ours.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// load has rules come into force, as a policy.Cache does.
func (g *gateway) load(limits []Limit, places *Places, free int) {
	doc := policy.Document{}
	for i, l := range limits {
		doc.Rules = append(doc.Rules, policy.Rule{
			Endpoint: bucketNames[i], Limit: l.Tokens, Per: l.Per, Burst: l.Burst, Scope: l.Scope, OnStoreLoss: l.Loss,
			Priority: l.Priority,
		})
	}
	doc.Rules = append(doc.Rules, places.rules()...)
	set, problems := policy.Compile(doc, policy.CompileOptions{
		Endpoints: endpoints, ClassesBy: classesBy(limits), Shared: true, Free: free,
		Previous: g.rules.Set(), Now: time.Unix(0, g.clock.Now()),
	})
	if err := problems.Err(); err != nil {
		panic(err)
	}
	g.rules.set.Store(set)
}

// fewAccounts is how many buckets a gateway remembers where there is a crowd: the least that can be asked for.
const fewAccounts = 64

// start starts a gateway in a place, whose wall clock is off. Nothing of one that is stranded reaches the store.
func (w *world) start(slot int, offset time.Duration, stranded bool) *gateway {
	p := w.plan
	w.mu.Lock()
	w.started++
	n := uint64(w.started)
	limits, network := append([]Limit(nil), w.limits[slot]...), w.network
	places := w.places[slot]
	w.mu.Unlock()
	chance := rand.New(rand.NewPCG(p.Seed, n))
	g := &gateway{slot: slot, clock: &clock{offset}, ended: make(chan struct{})}
	g.wire = &wire{world: w, chance: chance, network: network, cut: [2]bool{stranded, false}}
	g.rules = &rules{clock: g.clock}

	local := must(memory.New(memory.Options{MaxBuckets: 1 << 10}))
	shared := must(redis.New(redis.Options{Server: g.wire, Now: g.clock.Now}))
	g.members = must(redis.NewMembers(shared, redis.MembersOptions{Replica: n, TTL: memberTTL, Presumed: p.Replicas}))
	varied := rand.New(rand.NewPCG(p.Seed, n+1000))
	vary := func(n int64) int64 {
		g.wire.mu.Lock()
		defer g.wire.mu.Unlock()
		return varied.Int64N(n)
	}
	remembered := 0 // the default
	if p.Crowd > 0 {
		remembered = fewAccounts
	}
	g.leases = must(lease.New(lease.Options{
		MaxAccounts: remembered,
		Authority:   must(redis.NewAuthority(shared, redis.AuthorityOptions{TTL: p.TTL})),
		Terms:       lease.Terms{TTL: p.TTL, Poll: max(time.Millisecond, p.TTL/4)},
		Deadline:    min(p.Deadline, p.TTL), Gather: min(time.Millisecond, p.Deadline/4), Replica: n, Vary: vary,
	}))
	g.reports = must(report.New(report.Options{
		MaxAccounts: remembered,
		Authority:   must(redis.NewLedger(shared, redis.LedgerOptions{Keep: max(time.Second, 4*p.Interval)})),
		Interval:    p.Interval, Deadline: p.Deadline,
		Gather: min(time.Millisecond, p.Interval/4), Replica: n, Now: g.clock.Now,
	}))
	g.buckets = must(scoped.New(scoped.Options{
		Local: local, Strict: shared, Leases: g.leases, Free: p.Free, Reports: g.reports, Replicas: g.members.Replicas,
		Count: g.members.Count,
		Began: g.clock.Now(), Deadline: p.Deadline, Vary: vary,
		Changed: func(one scoped.Server, _ scoped.Status) { w.lost(g, one.Lost) },
	}))
	if p.Adaptive != nil {
		g.table = &adaptive.Table{}
	}
	g.load(limits, places, p.Free)
	g.Limiter = must(headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: g.rules, Identities: must(identity.New(identity.Options{})), Buckets: g.buckets,
		Names:    must(key.NewNamer([]byte("a secret of all gateways of a world"))),
		Adaptive: g.table,
	}))
	within, cancel := context.WithCancel(context.Background())
	g.gone = cancel
	if g.table != nil {
		notices := must(redis.NewNotices(shared, redis.NoticesOptions{Replica: n}))
		w.settling.Go(func() { w.follow(within, g, notices) })
	}
	go func() {
		g.members.Run(within, nil)
		close(g.ended)
	}()
	return g
}

// stop has a gateway say goodbye, or not.
func (w *world) stop(g *gateway, goodbye bool) {
	g.dead.Store(true)
	w.died(g)
	if goodbye {
		within, cancel := context.WithTimeout(context.Background(), time.Second)
		g.reports.Flush(within)
		cancel()
		g.buckets.Leave()
		g.gone()
		<-g.ended
	}
	g.wire.bury(w.grave)
	g.gone()
	<-g.ended
}

// ask is a request of a client for an endpoint.
func ask(client netip.Addr, target string, cost int64) headgate.Request {
	return headgate.Request{Method: "GET", Target: target, Peer: client, Cost: cost}
}
