package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/charge"
)

// Attempt is one bucket as the request would meet it. Its Endpoint is the rule's.
type Attempt struct {
	Bucket

	Project    string `json:"project,omitempty"`
	Tier       string `json:"tier,omitempty"`
	Principal  string `json:"principal,omitempty"`  // which of Identity.Others uses it; absent if the first does
	Unparsable bool   `json:"unparsable,omitempty"` // shared by all requests whose identifier cannot be read
	// the rule applies because of the principal's score, which is in Explanation.Scores
	Scored bool `json:"scored,omitempty"`
	// one besides the rule's own: from before the project changed its tier, or Larger
	Earlier bool `json:"earlier,omitempty"`
	// whose larger limit counts the request as well, "tier gold" or "everybody"
	Larger     string        `json:"larger,omitempty"`
	Scope      string        `json:"scope"`
	Algorithm  string        `json:"algorithm"`
	RetryAfter time.Duration `json:"retry_after_ns"`
	Wait       time.Duration `json:"wait_ns,omitempty"` // for which the request is held back
	Denies     bool          `json:"denies"`
	Binding    bool          `json:"binding"`

	// Percent is the share of subjects that the rule is enforced for; absent if
	// it is all. Mode says what it is for this caller.
	Percent int `json:"enforce_percent,omitempty"`

	// CountWhen says which answers count, absent if all do, and Penalty when the rule blocks its caller for
	// a time, absent if it never does.
	CountWhen string `json:"count_when,omitempty"`
	Penalty   string `json:"penalty,omitempty"`

	// Refusal is what the rule answers the requests that it denies, absent if that is 429 with problem details.
	Refusal string `json:"refusal,omitempty"`

	// Priority is what the rule says of classes, absent if it says nothing; Share is absent unless they share this
	// bucket.
	Priority string `json:"priority,omitempty"`
	Share    *Share `json:"share,omitempty"`

	// Unknown says that this bucket was not asked, so that the numbers say nothing:
	// another one had denied the request, or nobody answers for it. OnStoreLoss is
	// what becomes of the request then; absent where the bucket is in this process.
	Unknown     bool   `json:"unknown,omitempty"`
	OnStoreLoss string `json:"on_store_loss,omitempty"`

	// Time says which time the caller is told to come at, and why; absent if the bucket
	// has room, or no other caller uses it.
	Time *Time `json:"time,omitempty"`

	// Envelope is what all replicas together admit from this bucket at most; absent
	// where this process is the only one and the rule says it all.
	Envelope *Envelope `json:"envelope,omitempty"`

	// Multiplier is the part of the rule's rate, or of how many requests may be under way, that is in force, and
	// KeepsRate why it is all where it is not for others at the endpoint. Both are absent where none is ever lowered.
	Multiplier float64 `json:"multiplier,omitempty"`
	KeepsRate  string  `json:"keeps_rate,omitempty"`

	// Places is how many requests may be under way now; absent where that is never lowered.
	Places int64 `json:"places,omitempty"`

	// Taken is how many requests are under way, of a limit on that, whatever part of it is in force; as many as it says
	// at most.
	Taken int64 `json:"taken,omitempty"`

	// Expires is when a temporary rule ends, and StandsFor the limit of the
	// lasting rule in whose place it stands until then.
	Expires   time.Time `json:"expires,omitzero"`
	StandsFor string    `json:"stands_for,omitempty"`
}

// Share is what the request's class has of a bucket that classes share. What is left of it is told as that class may
// use it.
type Share struct {
	Kept       int64  `json:"kept"`                   // tokens that the class leaves for others
	Guaranteed int    `json:"guaranteed_percent"`     // of the limit, that it may have whatever others ask for
	As         string `json:"as,omitempty"`           // whose share that is, if the rule does not name this class
	Used       bool   `json:"by_guarantee,omitempty"` // the request passes by that alone
	Highest    bool   `json:"highest,omitempty"`      // what it leaves is only what all are guaranteed
}

// shareOf is what a request's class has of the bucket of a charge, nil if classes do not share it.
func shareOf(p *charge.Plan, of int) *Share {
	c := &p.Charges[of]
	terms := p.Set.PriorityOf(c.Rule)
	if terms == nil || terms.Shares == nil || c.Kind.Guards() {
		return nil
	}
	own := terms.Guaranteed(p.Class)
	take := p.Takes[c.Place]
	take.Kept = 0
	held := take.Met() // of what is in force
	s := &Share{Kept: held.Burst() - held.Keeping(terms.Kept(p.Class)).Burst(), Guaranteed: own.Percent,
		Highest: own == terms.Shares[0]}
	if own.Class != p.Class {
		s.As = own.Class.String()
	}
	for i := range p.Charges {
		s.Used = s.Used || p.Charges[i].Kind == charge.Guaranteed && p.Charges[i].Of == of
	}
	return s
}

// Time is when a refused caller may come again. RetryAfter says how long that is.
type Time struct {
	Reserved bool   `json:"reserved,omitempty"` // the token is kept for the caller
	Before   int    `json:"before,omitempty"`   // callers who have earlier times
	Why      string `json:"why"`
}

// timeOf puts into words which time a caller is told. t is nil where times are not spaced.
func timeOf(t *charge.Time, sharedAndFull bool) *Time {
	switch {
	case t == nil && sharedAndFull:
		return &Time{Why: "when the bucket has room, and all who use it are told the same (retry_after: truth)"}
	case t == nil || !t.Refused || t.Alone:
		return nil
	}
	why := "when the bucket has room: nobody has an earlier time"
	others := fmt.Sprintf("%d other callers", t.Before)
	if t.Before == 1 {
		others = "1 other caller"
	}
	switch {
	case t.Beyond:
		why = "as late as callers are told: behind " + others +
			", its own would be too far ahead, or there are too many"
	case t.Has && t.HeldBack:
		why = "the time that it was given; what the bucket holds is reserved for others"
	case t.Has:
		why = "the time that it was given"
	case t.HeldBack:
		why = "behind " + others + ", for whom what the bucket holds is reserved"
	case t.Before > 0:
		why = "behind " + others
	}
	return &Time{Reserved: t.Reserved, Before: t.Before, Why: why}
}

func (x *Explanation) explainBuckets(ctx context.Context, l *headgate.Limiter, d *headgate.Look) {
	verdicts := d.Verdicts()
	if len(verdicts) == 0 {
		return // the buckets could not be asked
	}
	for i := range d.Plan.Charges {
		if c := &d.Plan.Charges[i]; !c.Joined && c.Kind != charge.Guaranteed {
			a := attempt(l, d, c, &verdicts[c.Place])
			var t *charge.Time
			if d.Times != nil {
				t = &d.Times[c.Place]
			}
			a.Time = timeOf(t, a.Denies && a.RetryAfter > 0 && d.Policies().Terms(c.Rule).Subject.ManyCallers())
			a.Allowance, a.Share = allowanceOf(l, &d.Plan, i), shareOf(&d.Plan, i)
			if c.Concurrent && !a.Unknown {
				a.Taken = takenOf(ctx, l, &d.Plan, c)
			}
			if x.Adaptive != nil {
				terms := d.Plan.Set.Terms(c.Rule)
				switch a.KeepsRate = charge.KeepsRate(&terms, c.Level); {
				case terms.Concurrent && x.Adaptive.AtOnce > 0:
					if a.KeepsRate = charge.KeepsPlaces(&terms, c.Level); a.KeepsRate == "" {
						shape := d.Plan.Takes[c.Place].Shape.AtOnce(d.Plan.Takes[c.Place].Lowered.Part())
						a.Multiplier, a.Places = x.Adaptive.AtOnce, shape.Capacity/shape.Unit
					}
				case a.KeepsRate != "":
				case !charge.Agreed(terms.Scope):
					a.Multiplier = x.Adaptive.Multiplier
				case x.Adaptive.keepsShared:
					a.KeepsRate = "the store of shared buckets cannot lower it"
				default:
					a.Multiplier = x.Adaptive.Agreed
				}
			}
			x.Buckets = append(x.Buckets, a)
		}
	}
}

// takenOf is how many places of a bucket are taken, whatever part of them is in force and whoever may have the rest;
// 0 if nobody answers for it.
func takenOf(ctx context.Context, l *headgate.Limiter, p *charge.Plan, c *charge.Charge) int64 {
	take := p.Takes[c.Place]
	take.Lowered = nil
	_, none, err := peek(ctx, l, p.Now, take)
	if err != nil || none.Unknown {
		return 0
	}
	return take.Shape.Burst() - none.Remaining
}

func attempt(l *headgate.Limiter, d *headgate.Look, c *charge.Charge, v *headgate.Verdict) Attempt {
	set, out := d.Policies(), &v.Outcome
	rule := set.Rule(c.Rule)
	who := d.Plan.Of(int(c.Principal))
	words := whose(l, &d.Plan, c, d.Plan.Identifier != "")
	if c.Kind == charge.Unreadable {
		words = everybodyUnreadable(rule.Subject)
	}
	a := Attempt{
		Bucket:  bucketOf(&rule, c.Level, v.Shadow, words),
		Project: rule.Project, Tier: rule.Tier, Unparsable: v.Unparsable, Earlier: v.Earlier, Scored: c.Scored,
		Scope: rule.Scope.String(), Unknown: out.Unknown, Algorithm: rule.Algorithm.String(),
		RetryAfter: out.RetryAfter, Wait: out.Wait,
		Denies:  !v.Shadow && !out.Allowed,
		Binding: c.Place == d.Bound(),
		Percent: int(rule.EnforcePercent), Expires: rule.Expires, CountWhen: string(rule.CountWhen),
		Penalty: string(rule.Penalty),
		Refusal: string(rule.Refusal), Priority: string(rule.Priority),
	}
	a.Left = Left{Endpoint: rule.Endpoint, Remaining: out.Remaining, ResetAfter: out.ResetAfter}
	if c.Principal > 0 {
		a.Principal = otherWords(who)
	}
	if c.Kind == charge.Larger {
		larger := set.Rule(c.As)
		a.Limit, a.Per, a.Burst, a.Larger = larger.Limit, larger.Per, larger.Burst, "everybody"
		if larger.Tier != "" {
			a.Larger = "tier " + larger.Tier
		}
	}
	if lasting, ok := set.StandsFor(c.Rule); ok {
		stood := set.Rule(lasting)
		a.StandsFor = fmt.Sprintf("%s, burst %d", stood.Rate(), stood.Burst)
	}
	if rule.Scope.Shared() {
		a.OnStoreLoss = rule.OnStoreLoss.String()
	}
	if e, told := EnvelopeOf(l, rule); told {
		a.Envelope = &e
	}
	return a
}
