package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Explanation is the whole account of what Check would answer a request now,
// and why. Its JSON form is the admin API's and the command's.
type Explanation struct {
	Method string `json:"method"`
	Target string `json:"target"`

	// Canonical is the path that templates were matched against; Fault says
	// why there is none.
	Canonical string `json:"canonical,omitempty"`
	Fault     string `json:"fault,omitempty"`

	// Endpoint is the template found, or UNKNOWN; Status says how.
	Endpoint string `json:"endpoint"`
	Status   string `json:"status"`
	Cost     int64  `json:"cost,omitempty"`

	// Rules says why the rules cannot be relied on and what happens to requests;
	// absent if they can.
	Rules string `json:"rules,omitempty"`

	// Identity is absent when the request is refused before it matters.
	Identity *Identity `json:"identity,omitempty"`

	// Identifier says how the request's identifier was come by; never what it
	// is. It is absent where none was given and none is read.
	Identifier string `json:"identifier,omitempty"`

	// Body is what the request's body, or a document in its query, says of it; absent where none was given.
	Body *Body `json:"body,omitempty"`

	// Access is the rule of mode allow or block that settles the request; absent if none does.
	Access *Access `json:"access,omitempty"`

	// Penalty is the rule that blocks the caller for a time; absent if none does.
	Penalty *Penalty `json:"penalty,omitempty"`

	// Class is how urgent the request is; absent where nothing says anything of classes. ClassFrom is what says it, as
	// "tier gold of api_key ann"; absent if nothing does, and the request is normal for that.
	Class     string `json:"class,omitempty"`
	ClassFrom string `json:"class_from,omitempty"`

	// Adaptive says by how much rates at the endpoint are lowered; absent where they never are.
	Adaptive *Adaptive `json:"adaptive,omitempty"`

	// Scores are those of the callers that have one, where callers are scored.
	Scores []Score `json:"scores,omitempty"`

	// Considered is every place a rule was looked for, in order.
	Considered []Considered `json:"considered,omitempty"`

	// Buckets is the state of each bucket that applies.
	Buckets []Attempt `json:"buckets,omitempty"`

	Verdict Verdict `json:"verdict"`
}

// Body is what a request's body says of it, as who reads it says; Explain looks at none.
type Body struct {
	Read  bool  `json:"read"`            // bodies at the endpoint say what requests are, or cost
	Parts int64 `json:"parts,omitempty"` // requests that it holds

	// Portions are what the cost is made of, the dearest first; absent where it is one.
	Portions []Portion `json:"portions,omitempty"`

	// Status is that of the answer by which the request is refused because of it, and Why says why; absent if it is
	// not.
	Status int    `json:"status,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Portion is a part of a cost.
type Portion struct {
	What string  `json:"what"` // "Query.users"
	Cost float64 `json:"cost"` // in tokens
}

// RefusedBody is the reason of a Verdict on a request whose body is refused, before any rule.
const RefusedBody = "refused_body"

// Identity says whose budget a request uses, and why.
type Identity struct {
	Kind     string `json:"kind"`
	ID       string `json:"id,omitempty"`
	Project  string `json:"project,omitempty"`
	Tier     string `json:"tier,omitempty"`
	Client   string `json:"client,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Site     string `json:"site,omitempty"`   // the /48 of an IPv6 client, where a rule by site applies
	Region   string `json:"region,omitempty"` // where regions are known; "unknown" is one
	Found    string `json:"found"`
	Rejected string `json:"rejected,omitempty"`

	// Others are the principals of the request's other valid credentials, whose
	// budgets it uses as well.
	Others []Principal `json:"others,omitempty"`
}

// Access is a rule that settles requests without a limit.
type Access struct {
	Rule     string    `json:"rule"`
	Mode     string    `json:"mode"` // allow or block
	Endpoint string    `json:"endpoint"`
	Project  string    `json:"project,omitempty"`
	Tier     string    `json:"tier,omitempty"`
	Subject  string    `json:"subject"` // principal for everybody, or one network or caller
	Expires  time.Time `json:"expires,omitzero"`
}

// Penalty is why a caller is blocked for a time.
type Penalty struct {
	Rule  string    `json:"rule"`
	Terms string    `json:"terms"` // "10 in 1m for 15m"
	Until time.Time `json:"until"` // by the wall clock, to the second above
}

// Adaptive is the part of what rules say that is in force at an endpoint, and why.
type Adaptive struct {
	Multiplier float64 `json:"multiplier"` // 1 where they are what the rules say
	Floor      float64 `json:"floor"`

	// Agreed is the part in force for buckets that gateways share, and Others how many others are heard who
	// agree on it.
	Agreed float64 `json:"agreed"`
	Others int     `json:"others"`

	SLO  time.Duration `json:"slo_ns"`
	Last string        `json:"last"` // what the last window came to
	Why  string        `json:"why"`

	// AtOnce is the part in force of how many requests may be under way; absent where that does not follow the API.
	AtOnce float64 `json:"at_once,omitempty"`

	keepsShared bool // the store of shared buckets cannot lower rates
}

// Principal is a further principal of a request.
type Principal struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Project string `json:"project,omitempty"`
	Tier    string `json:"tier,omitempty"`
}

// Considered is one level at which a rule was looked for.
type Considered struct {
	Principal string `json:"principal,omitempty"` // for which of Identity.Others; absent for the first
	Subject   string `json:"subject"`
	Level     string `json:"level"`
	Rule      string `json:"rule,omitempty"`
	Applies   bool   `json:"applies"`
	Why       string `json:"why"`
}

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

// classWords says what a request has its class from; "" if from nothing.
func classWords(p *charge.Plan) string {
	by := p.ClassBy
	whose := func(what string) string {
		if p.Of(by.Principal).Kind == identity.Address {
			return what
		}
		return what + " of " + otherWords(p.Of(by.Principal))
	}
	switch by.Source {
	case charge.ByRule:
		rule := p.Set.Rule(p.Charges[by.Charge].Rule)
		return "rule " + rule.Title()
	case charge.ByEndpoint:
		if p.Match.ID == endpoint.Unknown {
			return "endpoint " + policy.UnknownEndpoint
		}
		return "endpoint " + p.Endpoints.Template(p.Match.ID).String()
	case charge.ByTier:
		who := p.Of(by.Principal)
		return whose("tier " + cmp.Or(who.Tier, p.Set.Tier(who.Project)))
	case charge.ByScore:
		return whose("tier " + p.Also[by.Principal] + " for the score")
	case charge.ByClaim:
		return whose("claim " + p.Set.ClassClaim())
	case charge.ByProgram:
		return "the program"
	}
	return ""
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

// Verdict is what Check would answer.
type Verdict struct {
	Allowed    bool          `json:"allowed"`
	Reason     string        `json:"reason"`
	Rule       string        `json:"rule,omitempty"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Wait       time.Duration `json:"wait_ns,omitempty"`
}

// Explain says what Limiter.Check would answer the request at this moment and
// why. It takes nothing from any bucket and is not observed. The request's
// identifier is read as a door reads the one in a body.
func Explain(ctx context.Context, l *headgate.Limiter, r headgate.Request) Explanation {
	x := Explanation{Method: r.Method, Target: l.Identities().RedactTarget(r.Target)}
	x.Identifier = readIdentifier(l, &r)
	d := l.Look(ctx, r)
	x.Cost, x.Rules = d.Cost, standingWords(l, d.Standing)
	x.explainEndpoint(l, r.Target, d)
	if d.Policies() != nil {
		x.explainIdentity(l, d)
	}
	if rule, settled := d.Access(); settled {
		x.Access = &Access{rule.Title(), rule.Mode.String(), rule.Endpoint, rule.Project, rule.Tier,
			rule.SubjectText(), rule.Expires}
	}
	if v, ok := d.Binding(); ok && d.Reason == headgate.InPenalty {
		rule := d.Policies().Rule(v.Rule)
		until := l.Wall().Add(d.RetryAfter + time.Second - 1).Truncate(time.Second)
		x.Penalty = &Penalty{Rule: rule.Title(), Terms: string(rule.Penalty), Until: until}
	}
	if d.Plan.Planned() {
		x.Class, x.ClassFrom = d.Class.String(), classWords(&d.Plan)
		x.explainAdaptive(l, d)
		x.explainScores(l, d)
		x.explainRules(d)
		x.explainBuckets(ctx, l, d)
	}
	x.Verdict = Verdict{Allowed: d.Allowed, Reason: d.Reason.String(), RetryAfter: d.RetryAfter, Wait: d.Wait}
	if v, ok := d.Binding(); ok {
		x.Verdict.Rule = d.Policies().Rule(v.Rule).Title()
	}
	return x
}

// readIdentifier treats the identifier of r, as a person typed it, as a door
// treats the one in a body, and says in words what came of it.
func readIdentifier(l *headgate.Limiter, r *headgate.Request) string {
	m := l.Endpoints().Match(r.Method, r.Target)
	identifier, none, reads := l.Typed(m, r.Identifier)
	r.Identifier, r.Unparsable = identifier, r.Unparsable || none
	switch {
	case r.Unparsable:
		return "none that can be read: the address's budget and the one of all such requests"
	case identifier != "" && reads:
		return "given, and read as in a body"
	case identifier != "":
		return "given, and taken as it is: no body is read here"
	}
	return ""
}

func (x *Explanation) explainEndpoint(l *headgate.Limiter, target string, d *headgate.Look) {
	m := d.Endpoint
	x.Status, x.Endpoint = m.Status.String(), policy.UnknownEndpoint
	if m.Status == endpoint.Invalid {
		x.Fault = m.Fault.String()
		return
	}
	x.Canonical, _ = l.Endpoints().Canonical(target)
	if m.Status == endpoint.Known {
		x.Endpoint = d.Template().String()
	}
}

func (x *Explanation) explainAdaptive(l *headgate.Limiter, d *headgate.Look) {
	s, ok := l.Adaptive(&d.Decision)
	if !ok {
		return
	}
	x.Adaptive = &Adaptive{
		Multiplier: multiplier(s.Multiplier), Floor: multiplier(s.Settings.Floor), SLO: s.Settings.SLO,
		Agreed: multiplier(s.Agreed), Others: s.Others, keepsShared: s.KeepsShared,
		Last: s.Last.String(), Why: s.Words(),
	}
	if s.Settings.AtOnce {
		x.Adaptive.AtOnce = multiplier(s.AtOnce)
	}
}

// multiplier is a part in 1024ths, to three places.
func multiplier(part int) float64 { return float64((part*1000+rate.Whole/2)/rate.Whole) / 1000 }

func (x *Explanation) explainIdentity(l *headgate.Limiter, d *headgate.Look) {
	who := &d.Principal
	id := Identity{
		Kind: who.Kind.String(), ID: who.ID, Project: who.Project, Tier: tierOf(d, who),
		Found: who.Hop.String(),
	}
	if who.Client.IsValid() {
		id.Client, id.Prefix = who.Client.String(), who.Prefix.String()
	}
	if site := l.Identities().Site(who.Prefix); site != who.Prefix && countsSites(&d.Plan) {
		id.Site = site.String()
	}
	if region, known := l.Region(who.Client); known {
		id.Region = orUnknown(region)
	}
	if who.Rejected != identity.NotRejected {
		id.Rejected = who.Rejected.String()
	}
	for i := range d.Others {
		other := &d.Others[i]
		id.Others = append(id.Others, Principal{Kind: other.Kind.String(), ID: other.ID, Project: other.Project,
			Tier: tierOf(d, other)})
	}
	x.Identity = &id
}

// tierOf is the tier that a principal names, or else that of its project.
func tierOf(d *headgate.Look, who *identity.Principal) string {
	return cmp.Or(who.Tier, d.Policies().Tier(who.Project))
}

// countsSites says whether a rule by site applies.
func countsSites(p *charge.Plan) bool {
	for i := range p.Charges {
		if p.Set.Terms(p.Charges[i].Rule).Subject == policy.SubjectSite {
			return true
		}
	}
	return false
}

// teller is an optional interface of Policies that age.
type teller interface {
	Words(policy.Standing) string
}

// standingWords says why the rules cannot be relied on, "" if they can.
func standingWords(l *headgate.Limiter, s policy.Standing) string {
	if told, ok := l.Policies().(teller); ok && !s.OK() {
		return told.Words(s)
	}
	return ""
}

func (x *Explanation) explainRules(d *headgate.Look) {
	for n := range 1 + len(d.Plan.Others) {
		name, who := "", d.Plan.Of(n)
		if n > 0 {
			name = otherWords(who)
		}
		x.explainRulesOf(d, n, who, name)
	}
}

func (x *Explanation) explainRulesOf(d *headgate.Look, n int, who *identity.Principal, name string) {
	p := &d.Plan
	for _, c := range p.Set.ConsiderFor(p.Wall, p.Match, who.Project, who.Tier, p.As(n)) {
		one := Considered{
			Principal: name,
			Subject:   c.Subject.String(),
			Level:     c.Level.String(),
			Applies:   c.Applies,
			Why:       c.Why,
		}
		if c.Found {
			rule := p.Set.Rule(c.Rule)
			one.Rule, one.Subject = rule.Title(), rule.SubjectText()
		}
		x.Considered = append(x.Considered, one)
	}
	x.explainScored(d, n, name)
	if fallback, ok := p.Set.Fallback(); ok && p.Fallback {
		rule := p.Set.Rule(fallback.Rule)
		x.Considered = append(x.Considered, Considered{
			Subject: rule.Subject.String(), Level: fallback.Level.String(), Rule: rule.Title(),
			Applies: true, Why: "applies in addition, because " + x.Rules,
		})
	}
}

// otherWords names a further principal, as "token alice of project acme".
func otherWords(who *identity.Principal) string {
	name := who.Kind.String() + " " + who.ID
	if who.Project != "" {
		name += " of project " + who.Project
	}
	return name
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
