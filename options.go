package headgate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
	"github.com/headgate-io/headgate/slot"
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

// Aging is an optional interface of Policies: rules that cannot be relied on any more if nobody
// confirms them. *policy.Cache is one.
type Aging interface {
	// InForce is Policies.Set, and says whether the rules can be relied on at now, by the clock of
	// Policies. It is called once a request and must not block.
	InForce(now int64) (*policy.Set, policy.Standing)
}

// Clock is an optional interface of Policies: the clock that their changes are dated
// by. Buckets must be counted by the same one. If it were another and the wall
// clock had been set back or forth in between, a new limit would act an hour
// late, or a bucket drain at it for an hour too long.
type Clock interface {
	// Now is a time that never steps, in Unix nanoseconds.
	Now() int64

	// Wall is the wall clock's time at now, by which rules expire.
	Wall(now int64) int64
}

// UnknownMode says what happens to a request that no template matches.
type UnknownMode uint8

const (
	// RejectUnknown refuses it before any identity or limiter work.
	RejectUnknown UnknownMode = iota
	// LimitUnknown lets it pass within the budget of the UNKNOWN rules.
	LimitUnknown
)

// Options configures a Limiter. Rules are required, or Endpoints and Policies;
// every other zero value is a safe default.
type Options struct {
	// Rules are the rules of a program that has no other source of them, a line
	// each (policy.ParseRule). They are in place of Policies.
	Rules []string

	// Endpoints are the endpoints that exist, and those that Rules may name. With
	// Rules it may be nil: then they are those that rules name, everything else is
	// limited together by the rule for UNKNOWN, or the one for default, of which
	// there must be one, and targets that two servers may read differently are
	// refused (endpoint.Strictest; a slash at the end makes no difference). Rules of
	// Policies have their own (policy.CompileOptions.Endpoints), and these count until
	// there are some.
	Endpoints *endpoint.Table

	Policies   Policies           // the rules, where they change while the program runs
	Buckets    bucket.Store       // nil is a table in memory (bucket/memory)
	Identities *identity.Resolver // nil tells callers apart by the address of their connection

	// Keys names the buckets of this process. Nil draws a secret for that; one that
	// lasts (key.NewLasting) is for Buckets that are saved over a restart.
	Keys *key.Hasher

	// Names names the buckets of rules of scope strict, lease and sync, which processes
	// share (bucket/scoped). Nil means that none are shared: such rules then count
	// as local ones, as policy.CompileOptions.Shared warns.
	Names *key.Namer

	// Unknown says what happens to a request to a path that no template
	// matches, or with a method its path does not declare. The zero value
	// rejects both; either way they never touch another endpoint's budget.
	// An undeclared OPTIONS on a known path is a browser's CORS preflight far
	// more often than anything else: it is always limited, never rejected.
	Unknown UnknownMode

	// Costs is how many tokens a request to an endpoint takes under Rules: their
	// policy.CompileOptions.Costs. Those of Policies say so themselves. Request.Cost
	// goes before.
	Costs map[endpoint.ID]int64

	// NamedTiers reports whether a caller that names no tier, but proved who it
	// is, may name one with its next request, by another token or because its key
	// was given one, or shares the budget of its project with one who does. Callers
	// who do are told apart from those by their Tier. What they spend is counted by
	// the rules of larger tiers as well; see policy.Set.LargerTiers. It is asked for every
	// request. Nil means that none does.
	NamedTiers func() bool

	// DenyWithoutRule refuses requests that no rule applies to. The zero
	// value lets them pass: lint has complained about the gap already.
	DenyWithoutRule bool

	// RefuseBadCredentials denies requests with a credential that is made up,
	// expired, revoked or not for the endpoint (BadCredential), or that cannot be
	// verified at present (CredentialUnverified), after they were charged to
	// whoever they are known to come from. The zero value ignores the credential:
	// the API may know it, or refuse it itself. Set it where this limiter knows
	// every credential that the API takes: then nothing reaches the API whose
	// holder is not known here.
	RefuseBadCredentials bool

	// MaxWaiters is how many requests may wait for their turn in Limiter.Wait
	// at the same time; one more is denied at once. Each holds a goroutine and
	// what its door holds with it. From 512 on, half is kept for callers of whom
	// few wait, so that one with many cannot take every place. Default 1024.
	MaxWaiters int

	// MaxWait is Request.MaxWait of requests that do not say it: set it to what the doors say in
	// theirs, so that what people are told of a request is what becomes of it.
	MaxWait time.Duration

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

	// Abandoned, if set, is called when the caller of an admitted request leaves that waits for its turn (Wait
	// and its like): with the decision as Observe had it, but for what is reversed, and with the time by which
	// what it took was given back, as Decision.At has it. It must be quick and must not keep either pointer.
	Abandoned func(r *Request, d *Decision, at int64)

	// Settled, if set, is called after a reservation was settled, with the time of that as Decision.At has it, on the
	// goroutine of whoever settled it. It must be quick. Of those of callers who left, Abandoned is told instead.
	Settled func(id reservation.ID, at int64, a Answer)

	// Time, if set, is asked at the start of every decision whether its stages are to be timed, on the request's own
	// goroutine: what it returns is Decision.Stages, filled in, by the time that Observe is called. It must be quick,
	// return nil for nearly all, as reading clocks costs as much as a decision, and keep no pointer. Nil times none.
	Time func(context.Context, *Request) *Stages

	// MaxReservations is how many reservations may be outstanding at once:
	// made by Reserve, neither settled nor expired. Default 65536, at most
	// 1<<24. One takes about 400 bytes with two rules. Size it by requests a
	// second times the seconds that one is outstanding; beyond it Reserve
	// refuses.
	MaxReservations int

	// Slots spaces the times at which refused callers may come again, and reserves
	// them if it does that. Decision.RetryAfter is then the caller's own time, which
	// is no earlier than the truth. Nil tells all of them the truth: when the next
	// token comes, which is the same moment for everybody who shares the bucket.
	Slots *slot.Table

	// Penalties remembers callers who were denied again and again, for rules with a policy.Rule.Penalty. Nil is a table
	// of its own, for penalty.DefaultCallers: 4 MiB, once a rule with one has denied somebody.
	Penalties *penalty.Table

	// Adaptive has endpoints whose rates are lowered while the API behind is slow or fails. Who sends requests on to it
	// tells the table's endpoints when they are sent and answered; gateway.Options.Exchange does. Nil lowers none.
	Adaptive *adaptive.Table

	// Scores scores callers by what they do, and has those with a high score pay by the rules of a tier as well
	// (anomaly.Settings.Tiers): beside those that hold for them anyway, so that a score takes and never gives. Doors
	// that see answers tell of them by Answered. Nil scores nobody.
	Scores *anomaly.Table

	// Scored, if set, is told of each caller that has a score, at each of its requests, once that is decided. It must
	// be quick, and may keep nothing of what it is given. Default nil.
	Scored func(*identity.Principal, anomaly.Score)

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
	missing("Endpoints", o.Endpoints == nil && len(o.Rules) == 0)
	if len(o.Rules) > 0 && o.Policies != nil {
		errs = append(errs, errors.New("Rules and Policies are both set, want one of them"))
	} else if len(o.Rules) == 0 && o.Policies == nil {
		errs = append(errs, errors.New("Rules and Policies are both empty, want one of them"))
	}
	if o.Policies != nil && len(o.Costs) > 0 {
		errs = append(errs, errors.New("Costs is set with Policies, want it among the policy.CompileOptions of those"))
	}
	errs = append(errs, o.validateTerms()...)
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
	bound("MaxReservations", o.MaxReservations, reservation.MostOutstanding)
	bound("MaxAllowances", o.MaxAllowances, charge.MostAllowances)
	return errors.Join(errs...)
}

// validateTerms checks what Reload can change.
func (o *Options) validateTerms() (errs []error) {
	if o.Unknown > LimitUnknown {
		errs = append(errs, fmt.Errorf("Unknown is %d, want RejectUnknown or LimitUnknown", o.Unknown))
	}
	if o.MaxWaiters < 0 {
		errs = append(errs, fmt.Errorf("MaxWaiters is %d, want 1 or more, or 0 for %d", o.MaxWaiters, defaultWaiters))
	}
	return errs
}

// complete makes what was left out of o.
func (o *Options) complete() error {
	var errs []error
	if len(o.Rules) > 0 && o.Policies == nil {
		errs = append(errs, o.readRules())
	}
	var err error
	if o.Buckets == nil {
		o.Buckets, err = memory.New(memory.Options{})
		errs = append(errs, err)
	}
	if o.Penalties == nil {
		o.Penalties = penalty.New(0)
	}
	if o.Identities == nil {
		o.Identities, err = identity.New(identity.Options{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unreadable is the code of a line that was told of as an error already.
const unreadable = "unreadable"

// readRules makes Policies of Rules, and Endpoints if there are none.
func (o *Options) readRules() error {
	var errs []error
	var unread policy.Problems
	rules := make([]policy.Rule, len(o.Rules), len(o.Rules)+1)
	for i, text := range o.Rules {
		r, err := policy.ParseRule(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("Rules[%d]: %w", i, err))
			unread = append(unread, policy.Problem{Code: unreadable, Rule: i})
			r.Endpoint = policy.UnknownEndpoint // for all that is known, it is the one for everything else
		}
		rules[i] = r
	}
	if o.Endpoints == nil {
		var err error
		if o.Endpoints, rules, err = policy.EndpointsOf(rules); err != nil {
			errs = append(errs, fmt.Errorf("Rules: %w", err))
		}
		o.Unknown = LimitUnknown
	}
	document := policy.Document{Rules: rules, Source: "Rules"}
	compile := policy.CompileOptions{Endpoints: o.Endpoints, Costs: o.Costs}
	var set *policy.Set
	var problems policy.Problems
	switch {
	case o.Endpoints == nil: // nobody can say what the rules are for
	case len(errs) > 0:
		problems = policy.LintRest(document, compile, unread) // the rest, so that all is told at once
	default:
		set, problems = policy.Compile(document, compile)
	}
	for _, p := range problems {
		// From a database the endpoint may be one of tomorrow. A program's own rule would never act.
		if p.Severity == policy.Error && p.Code != unreadable || p.Code == "no_endpoint" {
			errs = append(errs, p)
		}
	}
	if set != nil {
		o.Policies = Fixed(set)
	}
	return errors.Join(errs...)
}
