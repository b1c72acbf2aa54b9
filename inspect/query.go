package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Query names buckets by what people know: an endpoint, and whose. Keys of
// buckets mean nothing outside the process, and nothing in it leads from one
// back to a client, so there is no list of buckets to choose from.
type Query struct {
	// Endpoint is a template ("GET /v1/items/{id}") for the bucket of that
	// endpoint, policy.All for the bucket that all endpoints share, or
	// policy.UnknownEndpoint. Required.
	Endpoint string

	// Subject picks among the rules that apply; nil means any.
	Subject *policy.Subject

	// Peer and Header are the evidence of a request, read as Check reads them.
	// A credential in it that would be ignored is an error: the bucket meant
	// is surely another one.
	Peer   netip.Addr
	Header identity.Headers

	// KeyID, Project and Tier are those of an API key; or Project alone, for
	// rules of subject project; or Address alone. Not together with evidence.
	KeyID   string
	Project string
	Tier    string
	Address netip.Addr

	// Certificate, Token, User and SignedAgent are the name of a client certificate, the
	// subject of a bearer token, the ID of an identity.User and that of an identity.Agent,
	// as Principal.ID has them; with the Project and Tier that came with them, if any did.
	// At most one of KeyID and these.
	Certificate string
	Token       string
	User        string
	SignedAgent string

	// Identifier is Request.Identifier.
	Identifier string

	// Named are the values of path parameters and claims, for rules that count by
	// them: "path:customer": "42". They are what a request would say.
	Named map[string]string

	// Once names a Reset or a Grant without an end, so that it is made once in a store that
	// several processes share, however often and at whichever of them it is asked for
	// within 25 hours; see bucket.Once. Of buckets that are this process's alone whoever
	// asks has to know whether it did.
	Once bucket.Once

	// Unparsable means the buckets that all requests share whose identifier
	// cannot be read. Alone.
	Unparsable bool
}

// Found is the answer to Find.
type Found struct {
	Buckets []Bucket `json:"buckets"`

	// Skipped are rules that apply to the endpoint and whose bucket the query
	// does not name.
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is a rule whose bucket cannot be named, and what that would take.
type Skipped struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject"`
	Needs   string `json:"needs"`
}

// QueryError says what is wrong with a Query or with the amount of a
// Grant. Everything else that goes wrong is another error.
type QueryError struct{ text string }

func (e *QueryError) Error() string { return e.text }

func wrongQuery(format string, args ...any) error {
	return &QueryError{fmt.Sprintf(format, args...)}
}

// Find reports the buckets that a query names. It takes nothing from them.
func Find(ctx context.Context, l *headgate.Limiter, q Query) (Found, error) {
	found, skipped, err := find(ctx, l, &q)
	if err != nil {
		return Found{}, err
	}
	in := Found{Buckets: make([]Bucket, len(found)), Skipped: skipped}
	for i := range found {
		in.Buckets[i] = found[i].Bucket
	}
	return in, nil
}

// Caller returns who a query means by evidence or by names, as the requests of
// that caller are resolved. What the query says of buckets does not matter. An
// API key counts here whatever its scopes.
func Caller(ctx context.Context, l *headgate.Limiter, q Query) (identity.Principal, error) {
	who, _, err := whoOf(ctx, l.Identities().AnyScope(), &q, nil)
	return who, err
}

// named is a bucket that a query names: what a request for one token would be
// charged to.
type named struct {
	Bucket
	plan   *charge.Plan
	charge int // in plan.Charges
}

// find finds the buckets that a query names, and the rules whose buckets it does
// not.
func find(ctx context.Context, l *headgate.Limiter, q *Query) (found []named, skipped []Skipped, err error) {
	set, identities := l.Policies().Set(), l.Identities()
	if set == nil {
		return nil, nil, errors.New("no rules were loaded yet")
	}
	match, every, err := matchOf(set.Endpoints(), q.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	who, knows, err := whoOf(ctx, identities, q, placeOf(set.Endpoints(), match))
	if err != nil {
		return nil, nil, err
	}
	if q.Unparsable && (q.Identifier != "" || knows != knowledge{}) {
		return nil, nil,
			wrongQuery("the query says whose bucket, want nothing of the kind: all requests whose identifier " +
				"cannot be read share one")
	}
	identifier, none, _ := l.Typed(match, q.Identifier)
	if none && q.Identifier != "" {
		return nil, nil, wrongQuery("the identifier is none that could be read in a body")
	}
	p := &charge.Plan{Request: charge.Request{
		Set:        set,
		Identities: identities,
		Match:      match,
		Who:        &who,
		Identifier: identifier,
		Unparsable: q.Unparsable,
		Named:      q.Named,
		Cost:       1,
	}}
	if err := l.Plan(p); err != nil {
		return nil, nil, err
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		rule := p.Set.Rule(c.Rule)
		if c.Kind.Guards() || c.Scored || // whose bucket is found by its tier, whatever the score
			c.Level.EveryEndpoint() != every || q.Subject != nil && *q.Subject != rule.Subject {
			continue
		}
		words := everybodyUnreadable(rule.Subject)
		if of, _ := rule.Subject.Counts(); q.Unparsable &&
			(c.Kind != charge.Unreadable || of != policy.SubjectIdentifier) {
			continue // the address's
		}
		if !q.Unparsable {
			if needs := knows.lacksNamed(&rule, q.Named); needs != "" {
				skipped = append(skipped, Skipped{rule.Title(), rule.SubjectText(), needs})
				continue
			}
			words = whose(l, p, c, q.Identifier != "")
		}
		n := named{Bucket: bucketOf(&rule, c.Level, c.Shadow, words), plan: p, charge: i}
		n.Endpoint = q.Endpoint
		if err := n.look(ctx, l); err != nil {
			return nil, nil, err
		}
		found = append(found, n)
	}
	return found, skipped, nil
}

// look finds out what is left in the bucket as n.plan has it, and in those that
// have to have room beside it.
func (n *named) look(ctx context.Context, l *headgate.Limiter) error {
	for i, take := range n.plan.Together(n.charge) {
		take.Shadow = false
		one, none, err := peek(ctx, l, n.plan.Now, take)
		if err != nil {
			return err
		}
		if i == 0 {
			n.Remaining, n.ResetAfter, n.Wait = none.Remaining, none.ResetAfter, one.RetryAfter
			continue
		}
		n.Remaining, n.Wait = min(n.Remaining, none.Remaining), max(n.Wait, one.RetryAfter)
	}
	n.Allowance = allowanceOf(l, n.plan, n.charge)
	return nil
}

// allowanceOf is what the bucket of one charge was granted for a time, nil for
// nothing.
func allowanceOf(l *headgate.Limiter, p *charge.Plan, of int) *Allowance {
	if tokens, until, ok := l.Allowed(p, of); ok {
		return &Allowance{tokens, until}
	}
	return nil
}

// peek reports how a bucket would answer a request for one token, and for none.
func peek(ctx context.Context, l *headgate.Limiter, now int64, take bucket.Take) (one, none bucket.Outcome, err error) {
	take.Kept = 0 // what there is, whoever may have it
	takes, outs := [1]bucket.Take{take}, [1]bucket.Outcome{}
	if err := l.Peek(ctx, now, takes[:], outs[:]); err != nil {
		return one, none, err
	}
	one, takes[0].Cost = outs[0], 0
	err = l.Peek(ctx, now, takes[:], outs[:])
	return one, outs[0], err
}

// matchOf reads which endpoint a query means, and whether the bucket of all
// endpoints together.
func matchOf(endpoints *endpoint.Table, text string) (m endpoint.Match, every bool, err error) {
	switch text {
	case "":
		return m, false, wrongQuery("endpoint is missing, want a template such as GET /v1/items/{id}, * or UNKNOWN")
	case policy.All:
		return endpoint.Match{Status: endpoint.Known}, true, nil
	case policy.UnknownEndpoint:
		return endpoint.Match{Status: endpoint.UnknownPath}, false, nil
	case policy.Default:
		return m, false,
			wrongQuery("endpoint is %q, want the endpoint meant: each one that the rule covers has a bucket of its own",
				text)
	}
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		return m, false, wrongQuery("%v", err)
	}
	id, ok := endpoints.Lookup(template)
	if !ok {
		near := ""
		if closest, ok := endpoints.Closest(template); ok {
			near = fmt.Sprintf(", such as %q", closest)
		}
		return m, false, wrongQuery("endpoint is %q, want an endpoint of the API%s", template, near)
	}
	return endpoint.Match{ID: id, Status: endpoint.Known}, false, nil
}

// knowledge is what a query tells of its subject.
type knowledge struct{ principal, project, address, identifier, claims bool }

// whoOf makes of a query the principal that its requests would be resolved to.
func whoOf(ctx context.Context, from *identity.Resolver, q *Query, at *identity.Endpoint) (who identity.Principal,
	knows knowledge, err error) {
	knows.identifier = q.Identifier != ""
	evidence, names := q.Peer.IsValid() || q.Header != nil, q.KeyID != "" || q.Certificate != "" || q.Token != "" ||
		q.User != "" || q.SignedAgent != "" || q.Project != "" || q.Tier != "" || q.Address.IsValid()
	switch {
	case evidence && names:
		return who, knows,
			wrongQuery("the query has both evidence and names, want one of both: a peer and headers, or a key, " +
				"certificate, token, project or address")
	case evidence:
		shown := identity.Evidence{Peer: q.Peer, Header: q.Header, Endpoint: at, Look: true}
		others := from.ResolveAll(ctx, &shown, &who, nil)
		if len(others) > 0 {
			return who, knows, wrongQuery("%d valid credentials are shown, want one: a request with all of them "+
				"spends the budgets of each", 1+len(others))
		}
		if who.Rejected != identity.NotRejected {
			return who, knows,
				wrongQuery("the credential shown would be ignored, because %s: name its key or the address",
					who.Rejected)
		}
		knows.principal, knows.project, knows.address, knows.claims = true, true, who.Client.IsValid(), true
		return who, knows, nil
	}
	if q.Address.IsValid() {
		who = from.Resolve(ctx, identity.Evidence{Peer: q.Address})
		knows.address = true
	}
	for kind, id := range map[identity.Kind]string{
		identity.APIKey: q.KeyID, identity.Certificate: q.Certificate, identity.Token: q.Token,
		identity.LoggedIn: q.User, identity.SignedAgent: q.SignedAgent,
	} {
		switch {
		case id == "":
		case knows.principal:
			return who, knows, wrongQuery("the query names several principals, want one: a key, a certificate, " +
				"a token's subject, a user or an agent")
		default:
			who.Kind, who.ID, knows.principal = kind, id, true
		}
	}
	knows.principal = knows.principal || q.Project == "" && knows.address
	who.Project, who.Tier = q.Project, q.Tier
	knows.project = q.Project != ""
	return who, knows, nil
}

// lacks says what else it takes to name the bucket of a subject, or "". What a
// request lacks is replaced by its address, so an address names it as well.
func (k knowledge) lacks(s policy.Subject) string {
	switch s, _ := s.Counts(); s {
	case policy.SubjectEndpoint:
		return ""
	case policy.SubjectPrincipal:
		return needs(k.principal, "an API key, a certificate, a token's subject or an address")
	case policy.SubjectPrincipalIP:
		return needs(k.principal && k.address, "an address, and the credential if it used one")
	case policy.SubjectProject:
		return needs(k.project || k.address, "a project or an address")
	case policy.SubjectIdentifier:
		return needs(k.identifier || k.address, "an identifier or an address")
	case policy.SubjectIdentifierIP:
		return needs(k.address, "an address, and an identifier if it tried one")
	}
	return needs(k.address, "an address")
}

// lacksNamed is lacks for a rule that may count by a path parameter or a claim.
func (k knowledge) lacksNamed(r *policy.Rule, named map[string]string) string {
	if !r.Subject.Named() {
		return k.lacks(r.Subject)
	}
	_, known := named[r.Whose()]
	of, _ := r.Subject.Counts()
	return needs(known || k.claims && of == policy.SubjectClaim, "a value of "+r.Whose())
}

func needs(known bool, what string) string {
	if known {
		return ""
	}
	return what
}
