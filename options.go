package headgate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// Policies gives the rules in force. *policy.Cache keeps them fresh from a
// source; Fixed holds one Set for ever.
type Policies interface {
	// Set returns the current rules, or nil when none were ever loaded. It is
	// called once a request and must not block.
	Set() *policy.Set
}

// Fixed is Policies that never change.
func Fixed(set *policy.Set) Policies { return fixed{set} }

type fixed struct{ set *policy.Set }

func (f fixed) Set() *policy.Set { return f.set }

// Clock is what Policies may be besides: the clock that their changes are dated
// by. Buckets must be counted by the same one. If it were another and the wall
// clock had been set back or forth in between, a new limit would act an hour
// late, or a bucket drain at it for an hour too long.
type Clock interface {
	// Now is a time that never steps, in Unix nanoseconds.
	Now() int64

	// Wall is the wall clock's time at now, by which rules expire.
	Wall(now int64) int64
}

// Buckets holds the state of every budget. bucket/memory implements it.
type Buckets interface {
	// TryConsume takes from all buckets or from none, and writes takes[i]'s
	// outcome to outs[i]. now is in Unix nanoseconds. An error means that it
	// could not find out; nothing was taken then.
	TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error)

	// Peek answers what TryConsume would, and changes nothing.
	Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error)
}

// UnknownMode says what becomes of a request that no template matches.
type UnknownMode uint8

const (
	// RejectUnknown refuses it before any identity or limiter work.
	RejectUnknown UnknownMode = iota
	// LimitUnknown lets it pass within the budget of the UNKNOWN rules.
	LimitUnknown
)

// Options configures a Limiter. Endpoints, Policies, Buckets and Identities
// are required; every other zero value is a safe default.
type Options struct {
	Endpoints  *endpoint.Table
	Policies   Policies
	Buckets    Buckets
	Identities *identity.Resolver

	// Names names the buckets of rules of scope strict, lease and sync, which processes
	// share (bucket/scoped). Nil means that none are shared: such rules then count
	// as local ones, as policy.CompileOptions.Shared warns.
	Names *key.Namer

	// Unknown says what becomes of a request to a path that no template
	// matches, or with a method its path does not declare. The zero value
	// rejects both; either way they never touch another endpoint's budget.
	// An undeclared OPTIONS on a known path is a browser's CORS preflight far
	// more often than anything else: it is always limited, never rejected.
	Unknown UnknownMode

	// Costs is how many tokens a request to an endpoint takes, 1 where
	// absent. Give policy.CompileOptions the same, so that a cost no bucket
	// can hold is found when rules load. An endpoint of cost 0 looks at its
	// buckets, takes nothing and is never denied by them: for one that tells
	// clients their budget. Request.Cost goes before.
	Costs map[endpoint.ID]int64

	// NamedTiers reports whether a caller that names no tier, but proved who it
	// is, may name one with its next request, by another token or because its key
	// was given one, or shares the budget of its project with one who does. Callers
	// who do are told apart from those by their Tier. What they spend is counted by
	// the rules of larger tiers as well; see policy.Set.Climb. It is asked for every
	// request. Nil means that none does.
	NamedTiers func() bool

	// DenyWithoutRule refuses requests that no rule applies to. The zero
	// value lets them pass: lint has complained about the gap already.
	DenyWithoutRule bool

	// MaxWaiters is how many requests may wait for their turn in Limiter.Wait
	// at the same time; one more is denied at once. Each holds a goroutine and
	// what its door holds with it. Default 1024.
	MaxWaiters int

	// Region names the region of a client address for rules with subject
	// "region"; "" is a region of its own, the unknown one. Nil means that
	// every region is unknown. identity/region has a table for it:
	//
	//	Region: func(a netip.Addr) string { return table.Region(identities.IPv4(a)) }
	//
	// It is asked about the resolved client only, and an IPv4 address behind
	// NAT64 is somewhere only as itself.
	Region func(netip.Addr) string

	// Typed reads an identifier that a person typed, for Explain and for the
	// queries of buckets, as a door reads the one in a body at the endpoint:
	// httplimit.Identifiers.Typed fits. At endpoint.Unknown it is asked for all
	// endpoints together, a rule's for "*". It reports whether there is one then, and
	// whether bodies are read there at all. Nil means that none are.
	Typed func(at endpoint.ID, typed string) (identifier string, ok, reads bool)

	// Observe, if set, is called after every decision, on the request's own
	// goroutine. It must be quick and must not keep either pointer.
	// Request.Identifier is empty then.
	Observe func(*Request, *Decision)

	// MaxReservations is how many reservations may be outstanding at once:
	// made by Reserve, neither settled nor expired. Default 65536, at most
	// 1<<24. One takes about 400 bytes with two rules. Size it by requests a
	// second times the seconds that one is outstanding; beyond it Reserve
	// refuses.
	MaxReservations int

	// MaxAllowances is how many buckets may have an allowance at once (see
	// Grant). Default 4096, at most 1<<20.
	MaxAllowances int

	// Now is the clock. The default is the clock of Policies if they are a
	// Clock, as a policy.Cache is, and else one of its own. Both read the
	// monotonic clock, anchored to the wall clock once: a step of the wall
	// clock moves no budget. Rules expire by the wall clock.
	Now func() time.Time
}

func (o *Options) clock() Clock {
	if c, ok := o.Policies.(Clock); ok && o.Now == nil {
		return c
	}
	return steady.New(o.Now)
}

const defaultWaiters = 1024

func (o *Options) validate() error {
	var errs []error
	missing := func(field string, absent bool) {
		if absent {
			errs = append(errs, fmt.Errorf("%s is nil, want one", field))
		}
	}
	missing("Endpoints", o.Endpoints == nil)
	missing("Policies", o.Policies == nil)
	missing("Buckets", o.Buckets == nil)
	missing("Identities", o.Identities == nil)
	if o.Unknown > LimitUnknown {
		errs = append(errs, fmt.Errorf("Unknown is %d, want RejectUnknown or LimitUnknown", o.Unknown))
	}
	if o.MaxWaiters < 0 {
		errs = append(errs, fmt.Errorf("MaxWaiters is %d, want 1 or more, or 0 for %d", o.MaxWaiters, defaultWaiters))
	}
	for id, cost := range o.Costs {
		if cost < 0 {
			errs = append(errs, fmt.Errorf("Costs[%d] is %d, want 0 or more", id, cost))
		}
		if o.Endpoints != nil && (id == endpoint.Unknown || int(id) > o.Endpoints.Len()) {
			errs = append(errs, fmt.Errorf("Costs has endpoint %d, want 1 to %d", id, o.Endpoints.Len()))
		}
	}
	bound := func(field string, value, most int) {
		if value < 0 || value > most {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 to %d, or 0 for the default", field, value, most))
		}
	}
	bound("MaxReservations", o.MaxReservations, mostReservations)
	bound("MaxAllowances", o.MaxAllowances, mostAllowances)
	return errors.Join(errs...)
}

// Sharer is what Buckets may be besides: who knows how many replicas there are,
// for Envelope. bucket/scoped implements it.
type Sharer interface {
	// Sharing says how buckets are shared at this moment.
	Sharing() bucket.Sharing
}

// Corrector is what Buckets must be besides, for Reserve, Settle, Reset and
// Grant. bucket/memory implements it.
type Corrector interface {
	// Correct changes the debts of buckets outside of any request, and writes
	// to moved[i] how many units of changes[i] it added, or took off when
	// below zero. An error means that nothing was changed; but what is shared may
	// have been, as an answer may get lost. What several processes share has to
	// see to Change.Charged: a Limiter knows of its own reservations alone.
	Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error
}
