// Package inspect tells people what a Limiter does and why: what would become
// of a request, what is left in whose bucket. It answers for operators, who may
// also fill a bucket or grant it tokens.
package inspect

import (
	"net/netip"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Left is what is left in one bucket.
type Left struct {
	Endpoint   string        `json:"endpoint"`       // whose requests it counts; "*" is all of them together
	Remaining  int64         `json:"remaining"`      // tokens that can be taken now, an allowance's included
	ResetAfter time.Duration `json:"reset_after_ns"` // until it is full

	// Wait is how long until one token can be taken; more than 0 when the
	// bucket is empty or in debt beyond its burst.
	Wait time.Duration `json:"wait_ns"`
}

// Bucket is one bucket, in words that hold no secret.
type Bucket struct {
	Rule    string        `json:"rule"`  // its title
	Level   string        `json:"level"` // where the rule was found
	Subject string        `json:"subject"`
	Whose   string        `json:"whose"`
	Limit   int64         `json:"limit"`
	Per     time.Duration `json:"per_ns"`
	Burst   int64         `json:"burst"`
	Mode    string        `json:"mode"`

	Left

	// Allowance makes the burst larger until it lapses; see Grant.
	Allowance *Allowance `json:"allowance,omitempty"`
}

// Allowance is what a bucket was granted for a time.
type Allowance struct {
	Tokens int64     `json:"tokens"`
	Until  time.Time `json:"until"`
}

// bucketOf is the bucket of a rule in words, but for what is left in it.
func bucketOf(rule *policy.Rule, level policy.Level, shadow bool, whose string) Bucket {
	mode := policy.Enforce
	if shadow {
		mode = policy.Shadow
	}
	return Bucket{
		Rule: rule.Title(), Level: level.String(), Subject: rule.SubjectText(), Whose: whose,
		Limit: rule.Limit, Per: rule.Per, Burst: rule.Burst, Mode: mode.String(),
	}
}

// Envelope is a bucket.Envelope: in any interval, all replicas together
// admit at most Burst + Excess tokens, and what Tokens per Per give in it. What
// operators give (Reset, Grant) is not counted, and comes on top.
type Envelope struct {
	Replicas int           `json:"replicas"`
	Burst    int64         `json:"burst"`
	Tokens   int64         `json:"tokens"`
	Per      time.Duration `json:"per_ns"`
	Excess   int64         `json:"excess"`
}

// EnvelopeOf is the envelope of a rule at this moment, or false where this process
// is the only one and the rule says it all.
func EnvelopeOf(l *headgate.Limiter, r policy.Rule) (Envelope, bool) {
	e, sharing := l.Envelope(r)
	if r.Scope == policy.Local && sharing.Replicas == 1 {
		return Envelope{}, false
	}
	return Envelope{sharing.Replicas, e.Burst, e.Tokens, e.Per, e.Excess}, true
}

// asked stands for the identifier that an operator asked for. Answers, logs and
// the audit name nobody's account.
const asked = "the identifier asked for"

// whose says in words whose bucket a charge of a plan means: a request's that tries an
// identifier, or not, and proves to come from who. The value of a path parameter is in
// the request's target; that of a claim is not shown, because it may be anything.
func whose(l *headgate.Limiter, p *charge.Plan, c *charge.Charge, identifier bool) string {
	terms, who := p.Set.Terms(c.Rule), p.Of(int(c.Principal))
	s, name := terms.Subject, p.Set.SubjectName(c.Rule)
	address := addressWords("address", who.Prefix)
	principal := address
	if who.Kind != identity.Address {
		principal = principalWords(who)
	}
	switch {
	case s == policy.SubjectPrincipal:
		return principal
	case s == policy.SubjectPrincipalIP && who.Kind != identity.Address:
		return principal + " at " + address
	case s == policy.SubjectProject && who.Project != "":
		return "project " + who.Project
	case s == policy.SubjectRegion:
		region, _ := l.Region(who.Client)
		return "region " + orUnknown(region)
	case s == policy.SubjectEndpoint:
		return "everybody"
	case s == policy.SubjectIdentifier && identifier:
		return asked
	case s == policy.SubjectIdentifierIP && identifier:
		return asked + " at " + address
	case s == policy.SubjectSite:
		if site := l.Identities().Site(who.Prefix); site != who.Prefix {
			return addressWords("site", site)
		}
	case s == policy.SubjectPath:
		switch value, ok := p.ParameterOf(c.Rule); {
		case ok && len(value) > charge.MaxNamed:
			return "all requests whose " + name + " is too long"
		case ok && value != "":
			return name + " " + value
		}
	case s == policy.SubjectClaim:
		if value, ok := p.ClaimOf(c.Rule, int(c.Principal)); ok && value != "" && len(value) <= charge.MaxNamed {
			return "the claim " + name + " of " + principal
		}
		return principal
	}
	return address
}

// everybodyUnreadable is whose a bucket of kind charge.Unreadable is.
func everybodyUnreadable(s policy.Subject) string {
	if of, _ := s.Counts(); of == policy.SubjectIdentifier {
		return "all requests whose identifier cannot be read"
	}
	return "all requests whose token was not verified"
}

// principalWords names a principal, as "api key k_1 of project acme".
func principalWords(who *identity.Principal) string {
	words := strings.ReplaceAll(who.Kind.String(), "_", " ") + " " + who.ID
	if who.Project != "" {
		words += " of project " + who.Project
	}
	return words
}

func addressWords(what string, group netip.Prefix) string {
	switch {
	case !group.IsValid():
		return "requests without an address"
	case group.IsSingleIP():
		return what + " " + group.Addr().String()
	}
	return what + " " + group.String()
}

// orUnknown names the region that has no name.
func orUnknown(region string) string {
	if region == "" {
		return "unknown"
	}
	return region
}
