package headgate

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
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

	// Identity is absent when the request is refused before it matters.
	Identity *IdentityAccount `json:"identity,omitempty"`

	// Identifier says how the request's identifier was come by; never what it
	// is. It is absent where none was given and none is read.
	Identifier string `json:"identifier,omitempty"`

	// Considered is every place a rule was looked for, in order.
	Considered []Considered `json:"considered,omitempty"`

	// Buckets is the state of each bucket that applies.
	Buckets []BucketAccount `json:"buckets,omitempty"`

	Verdict VerdictAccount `json:"verdict"`
}

// IdentityAccount says whose budget a request uses, and why.
type IdentityAccount struct {
	Kind     string `json:"kind"`
	ID       string `json:"id,omitempty"`
	Project  string `json:"project,omitempty"`
	Tier     string `json:"tier,omitempty"`
	Client   string `json:"client,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Region   string `json:"region,omitempty"` // where regions are known; "unknown" is one
	Found    string `json:"found"`
	Rejected string `json:"rejected,omitempty"`
}

// Considered is one level at which a rule was looked for.
type Considered struct {
	Subject string `json:"subject"`
	Level   string `json:"level"`
	Rule    string `json:"rule,omitempty"`
	Applies bool   `json:"applies"`
	Why     string `json:"why"`
}

// BucketAccount is one bucket as the request would meet it.
type BucketAccount struct {
	Rule       string        `json:"rule"`
	Endpoint   string        `json:"endpoint"`
	Project    string        `json:"project,omitempty"`
	Tier       string        `json:"tier,omitempty"`
	Subject    string        `json:"subject"`
	Unparsable bool          `json:"unparsable,omitempty"` // shared by all requests whose identifier cannot be read
	Earlier    bool          `json:"earlier,omitempty"`    // one besides the rule's own: from before the project changed its tier, or Larger
	Larger     string        `json:"larger,omitempty"`     // whose larger limit counts the request as well, "tier gold" or "everybody"
	Limit      int64         `json:"limit"`
	Per        time.Duration `json:"per_ns"`
	Burst      int64         `json:"burst"`
	Scope      string        `json:"scope"`
	Algorithm  string        `json:"algorithm"`
	Mode       string        `json:"mode"`
	Remaining  int64         `json:"remaining"`
	RetryAfter time.Duration `json:"retry_after_ns"`
	ResetAfter time.Duration `json:"reset_after_ns"`
	Wait       time.Duration `json:"wait_ns,omitempty"`
	Denies     bool          `json:"denies"`
	Binding    bool          `json:"binding"`

	// Percent is the share of subjects that the rule is enforced for; absent if
	// it is all. Mode says what it is for this caller.
	Percent int `json:"enforce_percent,omitempty"`

	// Unknown says that this bucket was not asked, so that the numbers say nothing:
	// another one had denied the request, or nobody answers for it. OnStoreLoss is
	// what becomes of the request then; absent where the bucket is in this process.
	Unknown     bool   `json:"unknown,omitempty"`
	OnStoreLoss string `json:"on_store_loss,omitempty"`

	// Envelope is what all replicas together admit from this bucket at most; absent
	// where this process is the only one and the rule says it all.
	Envelope *EnvelopeAccount `json:"envelope,omitempty"`

	// Expires is when a temporary rule ends, and StandsFor the limit of the
	// lasting rule in whose place it stands until then.
	Expires   time.Time `json:"expires,omitzero"`
	StandsFor string    `json:"stands_for,omitempty"`
}

// VerdictAccount is what Check would answer.
type VerdictAccount struct {
	Allowed    bool          `json:"allowed"`
	Reason     string        `json:"reason"`
	Rule       string        `json:"rule,omitempty"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	Wait       time.Duration `json:"wait_ns,omitempty"`
}

// Explain says what Check would answer the request at this moment and why. It
// takes nothing from any bucket and is not observed. It allocates freely: it
// is for people.
func (l *Limiter) Explain(ctx context.Context, r Request) Explanation {
	t := &trip{request: r, limiter: l}
	identifier := l.readTyped(&t.request)
	d := &t.decision
	if l.prepare(ctx, t) {
		allowed, err := l.buckets.Peek(ctx, t.now, t.takes, t.outs)
		l.conclude(t, allowed, err)
	}
	x := Explanation{Method: r.Method, Target: l.identities.RedactTarget(r.Target), Cost: d.Cost, Identifier: identifier}
	l.explainEndpoint(&x, r.Target, d.Endpoint)
	if d.set != nil {
		l.explainIdentity(&x, d)
		l.explainRules(&x, t)
		l.explainBuckets(&x, t)
	}
	x.Verdict = VerdictAccount{Allowed: d.Allowed, Reason: d.Reason.String(), RetryAfter: d.RetryAfter, Wait: d.Wait}
	if v, ok := d.Binding(); ok {
		x.Verdict.Rule = d.set.Rule(v.Rule).Title()
	}
	return x
}

// readTyped treats the identifier of r, as a person typed it, as a door treats
// the one in a body, and says in words what came of it.
func (l *Limiter) readTyped(r *Request) string {
	m := l.endpoints.Match(r.Method, r.Target)
	var reads bool
	r.Identifier, r.Unparsable, reads = l.typed(m, r.Identifier, r.Unparsable)
	switch {
	case r.Unparsable:
		return "none that can be read: the address's budget and the one of all such requests"
	case r.Identifier != "" && reads:
		return "given, and read as in a body"
	case r.Identifier != "":
		return "given, and taken as it is: no body is read here"
	}
	return ""
}

// typed asks Options.Typed, where there is one and it knows the endpoint.
func (l *Limiter) typed(m endpoint.Match, identifier string, unparsable bool) (read string, none, reads bool) {
	if l.readIdentifier == nil || m.Status != endpoint.Known {
		return identifier, unparsable, false
	}
	read, ok, reads := l.readIdentifier(m.ID, identifier)
	if !reads {
		return identifier, unparsable, false
	}
	return read, unparsable || !ok, true
}

func (l *Limiter) explainEndpoint(x *Explanation, target string, m endpoint.Match) {
	x.Status, x.Endpoint = m.Status.String(), policy.UnknownEndpoint
	if m.Status == endpoint.Invalid {
		x.Fault = m.Fault.String()
		return
	}
	x.Canonical, _ = l.endpoints.Canonical(target)
	if m.Status == endpoint.Known {
		x.Endpoint = l.endpoints.Template(m.ID).String()
	}
}

func (l *Limiter) explainIdentity(x *Explanation, d *Decision) {
	who := &d.Principal
	account := IdentityAccount{
		Kind: who.Kind.String(), ID: who.ID, Project: who.Project, Tier: who.Tier,
		Found: who.Hop.String(),
	}
	if account.Tier == "" {
		account.Tier = d.set.Tier(who.Project)
	}
	if who.Client.IsValid() {
		account.Client, account.Prefix = who.Client.String(), who.Prefix.String()
	}
	if l.regions {
		account.Region = orUnknown(l.region(who.Client))
	}
	if who.Rejected != identity.NotRejected {
		account.Rejected = who.Rejected.String()
	}
	x.Identity = &account
}

// orUnknown names the region that has no name.
func orUnknown(region string) string {
	if region == "" {
		return "unknown"
	}
	return region
}

func (l *Limiter) explainRules(x *Explanation, t *trip) {
	for _, c := range t.set.ConsiderFor(l.clock.Wall(t.now), t.match, t.who.Project, t.who.Tier, t) {
		account := Considered{Subject: c.Subject.String(), Level: c.Level.String(), Applies: c.Applies, Why: c.Why}
		if c.Found {
			account.Rule = t.set.Rule(c.Rule).Title()
		}
		x.Considered = append(x.Considered, account)
	}
}

func (l *Limiter) explainBuckets(x *Explanation, t *trip) {
	d := &t.decision
	for i, v := range d.Verdicts() {
		rule := d.set.Rule(v.Rule)
		account := BucketAccount{
			Rule: rule.Title(), Endpoint: rule.Endpoint, Project: rule.Project, Tier: rule.Tier,
			Subject: rule.Subject.String(), Unparsable: v.Unparsable, Earlier: v.Earlier, Limit: rule.Limit, Per: rule.Per, Burst: rule.Burst,
			Scope: rule.Scope.String(), Unknown: v.Outcome.Unknown, Algorithm: rule.Algorithm.String(), Mode: modeFor(v.Shadow).String(),
			Remaining: v.Outcome.Remaining, RetryAfter: v.Outcome.RetryAfter, ResetAfter: v.Outcome.ResetAfter, Wait: v.Outcome.Wait,
			Denies:  !v.Shadow && !v.Outcome.Allowed,
			Binding: i == d.binding,
			Percent: int(rule.EnforcePercent), Expires: rule.Expires,
		}
		if i >= t.doubted && t.guards[i-t.doubted].Rung {
			larger := d.set.Rule(t.guards[i-t.doubted].Rule)
			account.Limit, account.Per, account.Burst, account.Larger = larger.Limit, larger.Per, larger.Burst, "everybody"
			if larger.Tier != "" {
				account.Larger = "tier " + larger.Tier
			}
		}
		if lasting, ok := d.set.StandsFor(v.Rule); ok {
			stood := d.set.Rule(lasting)
			account.StandsFor = fmt.Sprintf("%s, burst %d", stood.Rate(), stood.Burst)
		}
		if rule.Scope.Shared() {
			account.OnStoreLoss = rule.OnStoreLoss.String()
		}
		if e, told := l.Promise(rule); told {
			account.Envelope = &e
		}
		x.Buckets = append(x.Buckets, account)
	}
}

// modeFor is the mode of a rule for one caller.
func modeFor(shadow bool) policy.Mode {
	if shadow {
		return policy.Shadow
	}
	return policy.Enforce
}
