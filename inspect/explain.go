package inspect

import (
	"cmp"
	"context"
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
