// Package headgate limits the rate of API requests as a security control.
//
// A request travels one way, through stages that are packages of their own:
//
//	endpoint → identity → policy → key → bucket → decision
//
// Its target is brought into one canonical form and matched to a template, so
// that no spelling escapes a limit and no invented path makes a new one. A
// verified credential, or else the client's address by trusted-proxy rules,
// says whose budget it uses. The rules that apply are looked up in an
// immutable set that is refreshed from a database while requests run. Each
// names a bucket, and the request takes its cost from all of them or from
// none.
//
// # Use
//
// Rules in lines before a handler (policy.ParseRule; httplimit.New):
//
//	limited, err := httplimit.New(mux, "GET /v1/reports/{report} 2/h", "default 20/s burst 40")
//	http.ListenAndServe(":8080", limited)
//
// The same in its parts:
//
//	table, err := endpoint.Compile(templates, endpoint.Profile{})
//	set, problems := policy.Compile(document, policy.CompileOptions{Endpoints: table})
//	buckets, err := memory.New(memory.Options{})
//	who, err := identity.New(identity.Options{})
//	lim, err := headgate.New(headgate.Options{
//		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
//	})
//	http.ListenAndServe(":8080", httplimit.Handler(lim, api, httplimit.Options{}))
//
// # Guarantees
//
// In any interval of length t, a bucket of rate r and burst b admits at most
// b + r·t tokens' worth of requests: exactly, in integers, whatever the
// clients send, whatever the table evicts, and however the clock steps back.
// A denied request takes nothing anywhere. Memory is bounded by the options
// of the bucket table, not by what clients invent. Nothing about a request's
// credentials leaves the process.
//
// # Cost
//
// Check reads the clock once, takes one lock a bucket shard and allocates
// nothing.
package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/waiters"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
	"github.com/headgate-io/headgate/slot"
)

// Limiter decides whether requests may pass. It is safe for concurrent use.
type Limiter struct {
	endpoints *endpoint.Table // while there are no rules, which have their own
	policies  Policies
	planner   *charge.Planner
	buckets   bucket.Store

	terms   atomic.Pointer[terms]
	region  func(netip.Addr) string // nil if regions cannot be told apart
	observe func(*Request, *Decision)
	settled func(reservation.ID, int64, Answer)
	left    func(*Request, *Decision, int64)        // nil: nobody is told of callers that leave
	time    func(context.Context, *Request) *Stages // nil: no decision is timed

	readIdentifier func(endpoint.ID, string) (string, bool, bool)

	clock Clock

	aging      Aging // nil if the rules never age
	agingClock Clock // the clock of Policies, if it is another than clock

	learn        bucket.Learner             // nil if the buckets need not
	told         atomic.Pointer[policy.Set] // the rules that they heard of last
	due          atomic.Int64               // when a temporary rule ends, which they have to hear of as well
	reservations *reservation.Table

	slots *slot.Table // nil: refused callers are told the truth

	penalties *penalty.Table

	adaptive *adaptive.Table // nil: no rate is ever lowered

	scores *anomaly.Table // nil: nobody is scored
	scored func(*identity.Principal, anomaly.Score)

	renewing atomic.Bool // places of requests under way are renewed from time to time

	waiting *waiters.Room // requests in Wait that wait, or may have to

	trips sync.Pool // of *trip
}

// terms are what Reload can change. A request is decided by those of when it came.
type terms struct {
	identities    *identity.Resolver
	rejectUnknown bool
	denyUnruled   bool
	refuseBad     bool
	maxWaiters    int64
	maxWait       time.Duration
}

func (o *Options) terms() *terms {
	return &terms{
		identities:    o.Identities,
		rejectUnknown: o.Unknown == RejectUnknown, denyUnruled: o.DenyWithoutRule, refuseBad: o.RefuseBadCredentials,
		maxWaiters: int64(cmp.Or(o.MaxWaiters, defaultWaiters)), maxWait: o.MaxWait,
	}
}

// New returns a Limiter, or an error that names every field at fault.
func New(o Options) (*Limiter, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("headgate options: %w", err)
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("headgate options: %w", err)
	}
	var lowered func(*endpoint.Table, endpoint.ID, int64) rate.Lowerings
	if o.Adaptive != nil {
		lowered = o.Adaptive.Lowered
	}
	l := &Limiter{
		endpoints: o.Endpoints, policies: o.Policies, buckets: o.Buckets,
		planner: charge.New(charge.Options{
			Keys: o.Keys, Names: o.Names, Region: o.Region, NamedTiers: o.NamedTiers, MaxAllowances: o.MaxAllowances,
			Lowered: lowered,
		}),
		adaptive: o.Adaptive,
		region:   o.Region, observe: o.Observe, settled: o.Settled, left: o.Abandoned, time: o.Time, clock: o.clock(),
		readIdentifier: o.Typed,
		reservations:   reservation.NewTable(o.MaxReservations),
		slots:          o.Slots,
		penalties:      o.Penalties,
		scores:         o.Scores,
		scored:         o.Scored,
		waiting:        waiters.New(),
	}
	l.terms.Store(o.terms())
	l.learn, _ = o.Buckets.(bucket.Learner)
	l.aging, _ = o.Policies.(Aging)
	if o.Now != nil {
		l.agingClock, _ = o.Policies.(Clock)
	}
	if l.observe == nil {
		l.observe = func(*Request, *Decision) {}
	}
	if l.settled == nil {
		l.settled = func(reservation.ID, int64, Answer) {}
	}
	l.trips.New = func() any { return new(trip) }
	return l, nil
}

// Check decides one request and takes its cost from every bucket that
// applies, or from none. It allocates nothing on its way to an allowed or a
// denied answer of up to four rules.
//
// Under a rule with algorithm leaky_bucket an allowed request has to be held
// back for Decision.Wait. Wait does so.
func (l *Limiter) Check(ctx context.Context, r Request) Decision {
	t := l.begin(ctx, &r)
	if l.prepare(ctx, t) {
		l.consume(ctx, t)
	}
	l.tell(ctx, t)
	d := t.decision
	l.end(t)
	return d
}

// Reload changes what o says of Identities, Unknown, DenyWithoutRule, RefuseBadCredentials, MaxWaiters and MaxWait,
// while requests are decided: each is by what holds when it comes. Nothing else of o counts. Endpoints and their costs
// change with the rules (policy.Cache.Recompile). Buckets keep what they hold.
func (l *Limiter) Reload(o Options) error {
	if err := errors.Join(o.validateTerms()...); err != nil {
		return fmt.Errorf("headgate options: %w", err)
	}
	if o.Identities == nil {
		o.Identities = l.Identities()
	}
	l.terms.Store(o.terms())
	return nil
}

// Place is an endpoint as package identity takes it, for keys with scopes.
func Place(t endpoint.Template) identity.Endpoint {
	method := t.Method()
	return identity.Endpoint{Method: method, Path: t.String()[len(method)+1:]}
}
