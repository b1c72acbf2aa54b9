package headgate

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
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
	// UnknownMethod: the path is known, the method is not. Denied before
	// identity.
	UnknownMethod
	// InvalidTarget: the request target has no safe reading; see
	// Decision.Endpoint.Fault. Denied before identity.
	InvalidTarget
	// StoreFailed: the buckets could not answer. Denied, unless every rule
	// that applies says on_store_loss open.
	StoreFailed
	// NoPolicies: no rules have ever been loaded. Denied.
	NoPolicies
	// InvalidCost: Request.Cost is below zero. Denied before identity; the
	// door needs mending.
	InvalidCost
	// ReservationsFull: Reserve found no place in the table of outstanding
	// reservations. Denied, and nothing was taken.
	ReservationsFull
	// Abandoned: the caller left while its request waited for its turn.
	// Denied; see Limiter.Wait.
	Abandoned
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

	// Unparsable is the rule's second verdict on a request whose identifier
	// could not be read: about the bucket that all such requests share.
	Unparsable bool

	// Earlier is one of the rule's further verdicts: on a caller whose project has
	// changed its tier of late, about the bucket that it had before, which goes
	// on; on one whose credential says its tier, about those of larger tiers.
	Earlier bool

	// Shadow rules count like any other and never deny. A rule that is enforced
	// for a share of its subjects is in shadow for the others.
	Shadow bool

	// Outcome is the state of the rule's bucket after the decision.
	Outcome bucket.Outcome
}

// inlineVerdicts is how many rules a Decision holds without an allocation.
// More than four subjects limited on one endpoint are rare.
const inlineVerdicts = 4

// Decision is the answer for one request. It is a value: keep it, copy it.
type Decision struct {
	// Allowed says whether the request may pass.
	Allowed bool

	// Reason says what settled it.
	Reason Reason

	// Endpoint is the template found, or why none was.
	Endpoint endpoint.Match

	// Principal is whose budget was meant; zero when the request was refused
	// before identity.
	Principal identity.Principal

	// Region is the region of the client that rules with subject region
	// counted; empty if it is unknown, or if no such rule applies.
	Region string

	// RetryAfter is how long the denied request must wait to succeed if
	// nobody else takes from its buckets meanwhile; 0 when allowed or when no
	// wait helps.
	RetryAfter time.Duration

	// Wait is how long the allowed request must be held back before it goes
	// on, the longest wait of the rules with algorithm leaky_bucket; 0 without
	// such a rule. Limiter.Wait has held it back already.
	Wait time.Duration

	// Cost is what the request costs, in tokens; of a reservation, what it
	// holds.
	Cost int64

	// Lost says that a bucket could not be asked and the request passed all the
	// same, because its rule says so.
	Lost bool

	set     *policy.Set
	count   int
	binding int
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
	if d.binding < 0 || d.binding >= d.count {
		return Verdict{}, false
	}
	return d.Verdicts()[d.binding], true
}

// Policies returns the rules the decision was made under; nil when it was
// refused before policy. Verdict.Rule counts in this Set alone.
func (d *Decision) Policies() *policy.Set { return d.set }

// settle records what the buckets said.
func (d *Decision) settle(t *trip, allowed bool) {
	d.set, d.Cost = t.set, t.cost
	d.Allowed, d.Reason = allowed, WithinLimits
	d.count = len(t.applied)
	verdicts := d.inline[:min(d.count, inlineVerdicts)]
	if d.count > inlineVerdicts {
		d.more = make([]Verdict, d.count)
		verdicts = d.more
	}
	for i, a := range t.applied {
		verdicts[i] = Verdict{Rule: a.Rule, Level: a.Level, Unparsable: i >= t.named && i < t.doubted, Earlier: i >= t.doubted, Shadow: t.takes[i].Shadow, Outcome: t.outs[i]}
	}
	if allowed && t.shaped {
		d.Wait = longestWait(verdicts)
	}
	d.bind(verdicts)
	d.lose(verdicts)
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
