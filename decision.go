package headgate

import (
	"time"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
	"github.com/headgate-io/headgate/slot"
)

// Reason says what settled a Decision. Doors turn it into their protocol's
// codes; the core knows none.
type Reason uint8

const (
	// WithinLimits: every rule that applies had room. Allowed.
	WithinLimits Reason = iota
	// NoRule: no rule applies. Allowed, unless Options.DenyWithoutRule.
	NoRule
	// OverLimit: at least one rule that applies has no room. Denied; the
	// Decision says which and for how long.
	OverLimit
	// CostAboveBurst: the request costs more than a rule's bucket can ever
	// hold, so waiting cannot help. Denied; the rules need mending.
	CostAboveBurst
	// UnknownEndpoint: no template matches the path. Denied before identity.
	UnknownEndpoint
	// UnknownMethod: the path is known, the method is not; or it is TRACE, and
	// no template says so. Denied before identity.
	UnknownMethod
	// InvalidTarget: the request target has no safe reading, or the method is
	// CONNECT or no method at all; see Decision.Endpoint.Fault. Denied before
	// identity.
	InvalidTarget
	// StoreFailed: the buckets could not answer. Denied, unless every rule
	// that applies says on_store_loss open.
	StoreFailed
	// NoPolicies: no rules have ever been loaded, or there is none and that is a
	// reason to deny (policy.CacheOptions.OnEmpty). Denied.
	NoPolicies
	// InvalidCost: Request.Cost or Request.Parts is below zero. Denied before identity; the
	// door needs mending.
	InvalidCost
	// ReservationsFull: Reserve found no place in the table of outstanding
	// reservations. Denied, and nothing was taken.
	ReservationsFull
	// TooManyCredentials: the request presents more different credentials than
	// are looked at, identity.MaxCredentials. Denied: the API behind might
	// honour one that was not.
	TooManyCredentials
	// BadCredential: a credential of the request is made up, expired, revoked or
	// not for this endpoint (Decision.Principal.Rejected). Denied, under
	// Options.RefuseBadCredentials; it was charged as if it were ignored.
	BadCredential
	// CredentialUnverified: a credential could not be verified at present.
	// Denied, under Options.RefuseBadCredentials; charged like the others. Also
	// denied, and charged to nobody, where a token was not looked at
	// (identity.TokenFlood) and a rule of mode block may be for whom it names.
	CredentialUnverified
	// Abandoned: the caller left while its request waited for its turn.
	// Denied; see Limiter.Wait.
	Abandoned
	// RulesStale: the rules were not confirmed for longer than
	// policy.CacheOptions.MaxStale, and OnStale is policy.Deny. Denied.
	RulesStale
	// Exempt: a rule of mode allow lets the request pass. No bucket was asked. Allowed.
	Exempt
	// Blocked: a rule of mode block refuses it. Denied, and charged to nobody.
	Blocked
	// InPenalty: the caller was denied so often that a rule blocks it for a time (policy.Rule.Penalty). Denied, and
	// charged to nobody; the binding verdict is that rule's.
	InPenalty
)

var reasonNames = [...]string{
	WithinLimits:    "within_limits",
	NoRule:          "no_rule",
	OverLimit:       "over_limit",
	CostAboveBurst:  "cost_above_burst",
	UnknownEndpoint: "unknown_endpoint",
	UnknownMethod:   "unknown_method",
	InvalidTarget:   "invalid_target",
	StoreFailed:     "store_failed",
	NoPolicies:      "no_policies",

	InvalidCost:      "invalid_cost",
	ReservationsFull: "reservations_full",
	Abandoned:        "abandoned",
	RulesStale:       "rules_stale",

	TooManyCredentials: "too_many_credentials",

	Exempt:  "exempt",
	Blocked: "blocked",

	InPenalty: "in_penalty",

	BadCredential:        "bad_credential",
	CredentialUnverified: "credential_unverified",
}

// Reasons is how many reasons there are; they count from 0.
const Reasons = len(reasonNames)

// String returns the reason's name as metrics and explanations write it.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown_reason"
}

// Verdict is what one rule said about a request.
type Verdict struct {
	Rule  policy.RuleID
	Level policy.Level

	// Principal is whose bucket it is: 0 for Decision.Principal, n for
	// Decision.Others[n-1]. One that several share is the first one's; see Of.
	Principal uint8

	// Unparsable is the rule's second verdict on a request of which nobody knows
	// whose it is: its identifier could not be read, or its credential was not
	// verified (identity.Principal.Flooded). It is about the bucket that all such
	// requests share.
	Unparsable bool

	// Earlier is one of the rule's further verdicts: on a caller whose project has
	// changed its tier of late, about the bucket that it had before, which goes
	// on; on one whose credential says its tier, about those of larger tiers.
	Earlier bool

	// Scored says that the rule is one of a tier by whose rules the principal pays as well, because of its
	// score (Options.Scores).
	Scored bool

	// Shadow rules count like any other and never deny. A rule that is enforced
	// for a share of its subjects is in shadow for the others.
	Shadow bool

	shared uint16 // others that share the bucket: bit n for Others[n-1]

	// Lowered is by how much the rule's rate is lowered at present: to so many 1024ths of what it says. 0 is not at
	// all; see Options.Adaptive.
	Lowered uint16

	// Outcome is the state of the rule's bucket after the decision.
	Outcome bucket.Outcome
}

// Of reports whether the bucket counts for a principal: 0 is
// Decision.Principal, n Decision.Others[n-1]. For every principal there are the
// verdicts that a request with its credential alone would have.
func (v *Verdict) Of(principal int) bool {
	return int(v.Principal) == principal || principal > 0 && v.shared>>principal&1 == 1
}

// Stages is how long each stage of one decision took, by the clock that never steps; 0 for a stage
// that was not reached.
type Stages struct {
	Endpoint time.Duration // canonical form and template
	Identity time.Duration // credentials and address
	Policy   time.Duration // which rules apply, and which buckets they name
	Bucket   time.Duration // all buckets together, the store's included

	// Note is for whoever asked for it by Options.Time, to find again in Options.Observe.
	Note any
}

// Total is how long all stages took together.
func (s *Stages) Total() time.Duration { return s.Endpoint + s.Identity + s.Policy + s.Bucket }

// inlineVerdicts is how many rules a Decision holds without an allocation.
// More than four subjects limited on one endpoint are rare.
const inlineVerdicts = 4

// Decision is the answer for one request. It is a value: keep it, copy it.
type Decision struct {
	// Allowed says whether the request may pass.
	Allowed bool

	// Reason says what settled it.
	Reason Reason

	// At is when it was made, in Unix nanoseconds by the clock of the buckets, which no step of the
	// wall clock moves; 0 if the target or the method alone settled it.
	At int64

	// Endpoint is the template found, or why none was.
	Endpoint endpoint.Match

	// Principal is whose budget was meant; zero when the request was refused
	// before identity.
	Principal identity.Principal

	// Others are the principals of the request's other valid credentials, which
	// are charged as well; see identity.AllCredentials.
	Others []identity.Principal

	// Region is the region of the client that rules with subject region
	// counted; empty if it is unknown, or if no such rule applies.
	Region string

	// RetryAfter is how long the denied request must wait to succeed if
	// nobody else takes from its buckets meanwhile; 0 when allowed or when no
	// wait helps. With Options.Slots it may be longer.
	RetryAfter time.Duration

	// Slot is the caller's own time for this request again, if it is denied, or for
	// its next one. Only with Options.Slots.
	Slot slot.Offer

	// Wait is how long the allowed request must be held back before it goes
	// on, the longest wait of the rules with algorithm leaky_bucket; 0 without
	// such a rule. Limiter.Wait has held it back already.
	Wait time.Duration

	// Cost is what the request costs, in tokens; of a reservation, what it
	// holds.
	Cost int64

	// Class is how urgent the request is, as the rules (policy.Priority) and
	// policy.CompileOptions.ClassesBy say; policy.Unclassed where nothing is said of
	// classes, and of a request that was settled before the rules that apply were
	// known. CallerClass is what the tiers and claims of its callers, and
	// Request.Class, say of it, whatever it asks for; policy.Unclassed for nothing.
	Class       policy.Class
	CallerClass policy.Class

	// Reservation is what was reserved for the request (Limiter.Reserve), to be settled; zero if nothing was. Whoever
	// knows it can settle it.
	Reservation reservation.ID

	// Waiting tells apart the requests that wait for their turn, at random: by it Options.Abandoned finds what
	// Options.Observe was told. 0 for one that does not wait, and where nobody is told.
	Waiting uint64

	// Lost says that a bucket could not be asked and the request passed all the
	// same, because its rule says so.
	Lost bool

	// Score is what Principal did of late, before this request. Only with Options.Scores, and once somebody
	// is identified.
	Score anomaly.Score

	// Stages is how long the decision took, if Options.Time asked for it.
	Stages *Stages

	caller anomaly.Caller // Principal, where callers are scored: it is a hash, which takes as long as counting

	set       *policy.Set
	endpoints *endpoint.Table // which Endpoint is of

	count   int
	binding int
	access  int // of an Exempt or Blocked request, the place of its rule in AccessRules
	inline  [inlineVerdicts]Verdict
	more    []Verdict // all verdicts, when they exceed inline
}

// Verdicts returns what each applicable rule said, in order of resolution. It
// is empty when the request was refused before policy, or no rule applies.
// The slice points into d: it is good as long as d is.
func (d *Decision) Verdicts() []Verdict {
	if d.more != nil {
		return d.more
	}
	return d.inline[:d.count]
}

// Binding returns the verdict to tell the client about: of a denied request
// the rule with the longest wait, of an allowed one the enforced rule with the
// fewest tokens left. It reports false when no enforced rule applies.
func (d *Decision) Binding() (Verdict, bool) {
	at := d.Bound()
	if at < 0 {
		return Verdict{}, false
	}
	return d.Verdicts()[at], true
}

// Bound is the place of Binding in Verdicts; below 0 if there is none.
func (d *Decision) Bound() int {
	if d.binding >= d.count {
		return -1
	}
	return d.binding
}

// ByLimit reports whether a rule's limit denied the request, at once or in the penalty that came of it.
func (d *Decision) ByLimit() bool {
	return !d.Allowed && (d.Reason == OverLimit || d.Reason == CostAboveBurst || d.Reason == InPenalty)
}

// Policies returns the rules the decision was made under; nil when it was
// refused before policy. Verdict.Rule counts in this Set alone.
func (d *Decision) Policies() *policy.Set { return d.set }

// Access is the rule of mode allow or block that settled the request; false if none did.
func (d *Decision) Access() (policy.Rule, bool) {
	if d.Reason != Exempt && d.Reason != Blocked {
		return policy.Rule{}, false
	}
	return d.set.AccessRule(d.access), true
}

// Template is the endpoint that was found, the zero Template if none was.
func (d *Decision) Template() endpoint.Template {
	if d.endpoints == nil {
		return endpoint.Template{}
	}
	return d.endpoints.Template(d.Endpoint.ID)
}

// settle records what the buckets said.
func (d *Decision) settle(p *charge.Plan, allowed bool) {
	d.Cost, d.Allowed, d.Reason = p.Cost, allowed, WithinLimits
	d.count = p.Told()
	verdicts := d.inline[:min(d.count, inlineVerdicts)]
	if d.count > inlineVerdicts {
		d.more = make([]Verdict, d.count)
		verdicts = d.more
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		if c.Kind == charge.Guaranteed {
			break // they come last
		}
		v := &verdicts[c.Place]
		if c.Joined {
			v.shared |= 1 << c.Principal
			continue
		}
		v.Rule, v.Level, v.Principal = c.Rule, c.Level, c.Principal
		v.Unparsable, v.Earlier, v.Scored = c.Kind == charge.Unreadable, c.Kind.Guards(), c.Scored
		v.Shadow, v.Outcome = p.Takes[c.Place].Shadow, p.Outs[c.Place]
		if part := p.Takes[c.Place].Part(); part < rate.Whole {
			v.Lowered = uint16(part)
		}
	}
	if allowed && p.Waits {
		d.Wait = longestWait(verdicts)
	}
	d.bind(verdicts)
	d.lose(verdicts)
}

// restate records what the caller is to be told of the buckets in place of what they said.
func (d *Decision) restate(p *charge.Plan) {
	verdicts := d.Verdicts()
	for i := range verdicts {
		verdicts[i].Outcome = p.Outs[i]
	}
	if d.Reason == OverLimit {
		d.bind(verdicts)
	}
}

// lose notes that the request passed by a rule whose bucket nobody could ask.
func (d *Decision) lose(verdicts []Verdict) {
	for i := range verdicts {
		d.Lost = d.Lost || d.Allowed && !verdicts[i].Shadow && verdicts[i].Outcome.Unknown
	}
}

func longestWait(verdicts []Verdict) time.Duration {
	longest := time.Duration(0)
	for i := range verdicts {
		if !verdicts[i].Shadow {
			longest = max(longest, verdicts[i].Outcome.Wait)
		}
	}
	return longest
}

// bind finds the binding verdict, and from it the reason and the wait.
func (d *Decision) bind(verdicts []Verdict) {
	d.binding = -1
	for i := range verdicts {
		v := &verdicts[i]
		if v.Shadow || v.Outcome.Unknown || (!d.Allowed && v.Outcome.Allowed) {
			continue
		}
		if d.binding < 0 || d.bindsBefore(v, &verdicts[d.binding]) {
			d.binding = i
		}
	}
	if d.Allowed || d.binding < 0 {
		return
	}
	binding := &verdicts[d.binding].Outcome
	d.Reason, d.RetryAfter = OverLimit, binding.RetryAfter
	if binding.Never {
		d.Reason, d.RetryAfter = CostAboveBurst, 0
	}
}

func (d *Decision) bindsBefore(v, than *Verdict) bool {
	a, b := &v.Outcome, &than.Outcome
	switch {
	case !d.Allowed && a.Never != b.Never:
		return a.Never
	case !d.Allowed:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
