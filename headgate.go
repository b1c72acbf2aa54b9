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
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// Limiter decides whether requests may pass. It is safe for concurrent use.
type Limiter struct {
	endpoints  *endpoint.Table
	policies   Policies
	identities *identity.Resolver
	planner    *charge.Planner
	buckets    bucket.Store

	costs         []int64             // by endpoint.ID
	places        []identity.Endpoint // by endpoint.ID, for keys with scopes
	rejectUnknown bool
	denyUnruled   bool
	refuseBad     bool
	region        func(netip.Addr) string // nil if regions cannot be told apart
	observe       func(*Request, *Decision)

	readIdentifier func(endpoint.ID, string) (string, bool, bool)

	clock Clock

	aging      Aging // nil if the rules never age
	agingClock Clock // the clock of Policies, if it is another than clock

	learn        bucket.Learner             // nil if the buckets need not
	told         atomic.Pointer[policy.Set] // the rules that they heard of last
	due          atomic.Int64               // when a temporary rule ends, which they have to hear of as well
	reservations *reservation.Table

	maxWaiters int64
	waiters    atomic.Int64 // requests in Wait that wait, or may have to

	trips sync.Pool // of *trip
}

// New returns a Limiter, or an error that names every field at fault.
func New(o Options) (*Limiter, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("headgate options: %w", err)
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("headgate options: %w", err)
	}
	l := &Limiter{
		endpoints: o.Endpoints, policies: o.Policies, identities: o.Identities, buckets: o.Buckets,
		planner: charge.New(charge.Options{
			Endpoints: o.Endpoints, Identities: o.Identities, Names: o.Names,
			Region: o.Region, NamedTiers: o.NamedTiers, MaxAllowances: o.MaxAllowances,
		}),
		costs:         costTable(o.Endpoints, o.Costs),
		places:        places(o.Endpoints),
		rejectUnknown: o.Unknown == RejectUnknown, denyUnruled: o.DenyWithoutRule, refuseBad: o.RefuseBadCredentials,
		region: o.Region, observe: o.Observe, clock: o.clock(),
		readIdentifier: o.Typed,
		reservations:   reservation.NewTable(o.MaxReservations),
		maxWaiters:     int64(o.MaxWaiters),
	}
	if l.maxWaiters == 0 {
		l.maxWaiters = defaultWaiters
	}
	l.learn, _ = o.Buckets.(bucket.Learner)
	l.aging, _ = o.Policies.(Aging)
	if o.Now != nil {
		l.agingClock, _ = o.Policies.(Clock)
	}
	if l.observe == nil {
		l.observe = func(*Request, *Decision) {}
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
	t := l.begin(r)
	if l.prepare(ctx, t) {
		l.consume(ctx, t)
	}
	l.tell(t)
	d := t.decision
	l.end(t)
	return d
}

func places(endpoints *endpoint.Table) []identity.Endpoint {
	all := make([]identity.Endpoint, endpoints.Len()+1)
	for id, template := range endpoints.All() {
		all[id] = identity.Endpoint{Method: template.Method(), Path: strings.TrimPrefix(template.String(), template.Method()+" ")}
	}
	return all
}

// Place is an endpoint as package identity takes it, nil for none.
func (l *Limiter) Place(id endpoint.ID) *identity.Endpoint {
	if id == endpoint.Unknown {
		return nil
	}
	return &l.places[id]
}

func costTable(endpoints *endpoint.Table, costs map[endpoint.ID]int64) []int64 {
	table := make([]int64, endpoints.Len()+1)
	for id := range table {
		table[id] = 1
		if cost, ok := costs[endpoint.ID(id)]; ok {
			table[id] = cost
		}
	}
	return table
}
