package headgate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// BucketQuery names buckets by what people know: an endpoint, and whose. Keys of
// buckets mean nothing outside the process, and nothing in it leads from one
// back to a client, so there is no list of buckets to choose from.
type BucketQuery struct {
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

	// Certificate and Token are the name of a client certificate and the subject
	// of a bearer token, as Principal.ID has them; with the Project and Tier that
	// came with them, if any did. At most one of KeyID and these.
	Certificate string
	Token       string

	// Identifier is Request.Identifier.
	Identifier string

	// Once names a Reset or a Grant without an end, so that it is made once in a store that
	// several processes share, however often and at whichever of them it is asked for
	// within 25 hours; see bucket.Once. Of buckets that are this process's alone whoever
	// asks has to know whether it did.
	Once bucket.Once

	// Unparsable means the buckets that all requests share whose identifier
	// cannot be read. Alone.
	Unparsable bool
}

// BucketState is one bucket, in words that hold no secret.
type BucketState struct {
	Rule     string        `json:"rule"`     // its title
	Endpoint string        `json:"endpoint"` // whose requests it counts; "*" is all of them together
	Level    string        `json:"level"`    // where the rule was found
	Subject  string        `json:"subject"`
	Whose    string        `json:"whose"`
	Limit    int64         `json:"limit"`
	Per      time.Duration `json:"per_ns"`
	Burst    int64         `json:"burst"`
	Mode     string        `json:"mode"`

	// Remaining is how many tokens can be taken now, the allowance's included.
	Remaining  int64         `json:"remaining"`
	ResetAfter time.Duration `json:"reset_after_ns"`

	// Wait is how long until one token can be taken; more than 0 when the
	// bucket is empty or in debt beyond its burst.
	Wait time.Duration `json:"wait_ns"`

	// Allowance makes the burst larger until it lapses; see Grant.
	Allowance *AllowanceState `json:"allowance,omitempty"`
}

// AllowanceState is what a bucket was granted for a time.
type AllowanceState struct {
	Tokens int64     `json:"tokens"`
	Until  time.Time `json:"until"`
}

// Inspection is the answer to Inspect.
type Inspection struct {
	Buckets []BucketState `json:"buckets"`

	// Skipped are rules that apply to the endpoint and whose bucket the query
	// does not name.
	Skipped []SkippedRule `json:"skipped,omitempty"`
}

// SkippedRule is a rule whose bucket cannot be named, and what that would take.
type SkippedRule struct {
	Rule    string `json:"rule"`
	Subject string `json:"subject"`
	Needs   string `json:"needs"`
}

// QueryError says what is wrong with a BucketQuery or with the amount of a
// Grant. Everything else that goes wrong is another error.
type QueryError struct{ text string }

func (e *QueryError) Error() string { return e.text }

func wrongQuery(format string, args ...any) error {
	return &QueryError{fmt.Sprintf(format, args...)}
}

// Approve is asked before a bucket is changed, and told which; an error keeps
// it as it is. It is where a change is written down: what cannot be, does not
// happen. Nil approves.
type Approve func(BucketState) error

// Inspect reports the buckets that a query names. It takes nothing from them.
func (l *Limiter) Inspect(ctx context.Context, q BucketQuery) (Inspection, error) {
	found, skipped, err := l.find(ctx, &q)
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{Buckets: make([]BucketState, len(found)), Skipped: skipped}
	for i := range found {
		in.Buckets[i] = found[i].state
	}
	return in, nil
}

// Reset makes one bucket full, as if its client had never come, and ends its
// allowance; reservations that are outstanding give nothing more back to it. It
// reports the bucket as it is then. The query must name exactly
// one bucket.
func (l *Limiter) Reset(ctx context.Context, q BucketQuery, approve Approve) (BucketState, error) {
	named, err := l.one(ctx, &q, approve)
	if err != nil {
		return BucketState{}, err
	}
	now := l.clock.Now()
	l.allowances.remove(named.take.Key, now)
	if !named.take.Reach.Scope().Shared() { // whose store sees to the reservations of all processes
		l.reservations.void(named.take.Key)
	}
	for i := range named.guards {
		if !named.guards[i].Reach.Scope().Shared() {
			l.reservations.void(named.guards[i].Key)
		}
	}
	named.take.Shape, named.take.Since, named.take.Before = named.terms.Shape, named.terms.Since, named.terms.Before
	if _, err := l.change(ctx, now, named, bucket.Fill, q.Once); err != nil {
		return BucketState{}, err
	}
	return l.look(ctx, named)
}

// Grant gives one bucket amount tokens, and reports the bucket as it is then and
// how many it was given.
//
// With a zero until they are given once and the bucket is never more than full:
// what does not fit is not given, and reservations that are outstanding give back
// so much less. Otherwise the bucket's burst is larger by
// amount until then, so that in any interval at most amount is admitted besides
// what would be anyway; it starts with all of it, drains at the same rate, and
// what was used beyond the burst at the end is forgiven. A second such grant to
// the bucket takes the place of the first, so repeating one is harmless. It is
// bounded by MaxAllowanceTime and Options.MaxAllowances, and it ends with the
// process. A rule that counts in windows has no burst beside its limit, and other
// processes would not know of it where they share the bucket, so such a grant to
// a bucket of theirs is a QueryError.
func (l *Limiter) Grant(ctx context.Context, q BucketQuery, amount int64, until time.Time, approve Approve) (BucketState, int64, error) {
	if amount < 1 {
		return BucketState{}, 0, wrongQuery("amount is %d, want 1 or more", amount)
	}
	if err := l.checkUntil(until); err != nil {
		return BucketState{}, 0, err
	}
	named, err := l.one(ctx, &q, nil)
	if err == nil {
		err = checkGrant(named, amount, until)
	}
	if err == nil && approve != nil {
		err = approve(named.state)
	}
	if err != nil {
		return BucketState{}, 0, err
	}
	now := l.clock.Now()
	given := amount
	if until.IsZero() {
		given, err = l.topUp(ctx, now, named, amount, q.Once)
	} else {
		err = l.allow(now, named, amount, until.UnixNano()-l.ahead(now))
	}
	if err != nil {
		return BucketState{}, 0, err
	}
	state, err := l.look(ctx, named)
	return state, given, err
}

func (l *Limiter) checkUntil(until time.Time) error {
	now := time.Unix(0, l.clock.Wall(l.clock.Now())).UTC()
	switch {
	case until.IsZero():
		return nil
	case !until.After(now):
		return wrongQuery("expires is %s, want a time to come", until.Format(time.RFC3339))
	case until.Sub(now) > MaxAllowanceTime:
		return wrongQuery("expires is %s, want at most %v from now; a rule of its own lasts longer", until.Format(time.RFC3339), MaxAllowanceTime)
	}
	return nil
}

// ahead is how far the wall clock, by which people say until when, is ahead of
// the one that buckets are counted by.
func (l *Limiter) ahead(now int64) int64 { return l.clock.Wall(now) - now }

// maxGrant bounds what is granted: a thousand bursts is a decision about the
// rule, not about a bucket.
const maxGrant = 1000

func checkGrant(named *namedBucket, amount int64, until time.Time) error {
	s := &named.state
	if !until.IsZero() && !named.terms.Shape.Algorithm.Drains() {
		return wrongQuery("rule %q counts in windows, which have no burst to enlarge for a time: grant without an expiry, or change the rule", s.Rule)
	}
	if scope := named.take.Reach.Scope(); !until.IsZero() && scope.Shared() {
		return wrongQuery("rule %q is %v, and other processes would not know of a larger burst of its bucket: grant without an expiry, or set a rule that expires", s.Rule, named.terms.Scope)
	}
	if amount/maxGrant >= s.Burst && amount > maxGrant*s.Burst {
		return wrongQuery("amount is %d, want at most %d times the burst of %d; change the rule for more", amount, maxGrant, s.Burst)
	}
	return nil
}

// topUp takes amount tokens off the debt, as far as there is any.
func (l *Limiter) topUp(ctx context.Context, now int64, named *namedBucket, amount int64, once bucket.Once) (int64, error) {
	moved, err := l.change(ctx, now, named, -named.take.Shape.UnitsSaturating(amount), once)
	if err != nil {
		return 0, err
	}
	if !named.take.Reach.Scope().Shared() { // whose store sees to the reservations of all processes
		l.reservations.spend(named.take.Key, named.take.Shape, -moved[0])
	}
	for i := range named.guards {
		if !named.guards[i].Reach.Scope().Shared() {
			l.reservations.spend(named.guards[i].Key, named.guards[i].Shape, -moved[1+i])
		}
	}
	return (-moved[0] + named.take.Shape.Unit - 1) / named.take.Shape.Unit, nil // a part of a token counts as one
}

func (l *Limiter) allow(now int64, named *namedBucket, amount, until int64) error {
	grown := named.terms.Shape.Grow(amount)
	if grown.Burst()-named.terms.Shape.Burst() < amount {
		return wrongQuery("amount is %d, want at most %d, with which the burst can still be counted", amount, grown.Burst()-named.terms.Shape.Burst())
	}
	if !l.allowances.set(named.take.Key, allowance{tokens: amount, from: now, until: until, gone: goneAt(until, grown)}) {
		return fmt.Errorf("there are %d allowances already, want one to lapse first", l.allowances.most)
	}
	return nil
}

// change corrects the debt of one bucket, and then of its guards, by so many
// units, which are the same in all of them.
func (l *Limiter) change(ctx context.Context, now int64, named *namedBucket, units int64, once bucket.Once) (moved []int64, err error) {
	if l.correct == nil {
		return nil, errCannotCorrect
	}
	changes := []bucket.Change{changeOf(&named.take, units)}
	for i := range named.guards {
		changes = append(changes, changeOf(&named.guards[i], units))
	}
	for i := range changes {
		changes[i].Once = once
	}
	moved = make([]int64, len(changes))
	if err := l.correct.Correct(ctx, now, changes, moved); errors.Is(err, bucket.ErrAnother) {
		return nil, wrongQuery("%v", err)
	} else if err != nil {
		return nil, fmt.Errorf("correct the bucket: %w", err)
	}
	return moved, nil
}

func changeOf(t *bucket.Take, units int64) bucket.Change {
	return bucket.Change{Key: t.Key, Tag: t.Tag, Reach: t.Reach, Shape: t.Shape, Since: t.Since, Before: t.Before, Units: units}
}

// namedBucket is a bucket that a query names.
type namedBucket struct {
	take  bucket.Take // of one token
	terms policy.Terms
	state BucketState

	// guards are takes from the buckets that have to have room as well; see
	// policy.Guard. What is done to the bucket is done to them.
	guards []bucket.Take
}

// one finds the one bucket that a query names, and asks for approval to change
// it.
func (l *Limiter) one(ctx context.Context, q *BucketQuery, approve Approve) (*namedBucket, error) {
	found, skipped, err := l.find(ctx, q)
	if err != nil {
		return nil, err
	}
	switch {
	case len(found) == 0 && len(skipped) == 0:
		return nil, wrongQuery("no rule applies there, so there is no bucket")
	case len(found) == 0:
		return nil, wrongQuery("the query names no bucket: rule %q needs %s", skipped[0].Rule, skipped[0].Needs)
	case len(found) > 1:
		subjects := make([]string, len(found))
		for i := range found {
			subjects[i] = found[i].state.Subject
		}
		return nil, wrongQuery("the query names %d buckets, want one: say which subject, %s", len(found), strings.Join(subjects, " or "))
	}
	if approve != nil {
		if err := approve(found[0].state); err != nil {
			return nil, err
		}
	}
	return &found[0], nil
}

// find finds the buckets that a query names, and the rules whose buckets it does
// not.
func (l *Limiter) find(ctx context.Context, q *BucketQuery) (found []namedBucket, skipped []SkippedRule, err error) {
	match, every, err := l.matchOf(q.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	now := l.clock.Now()
	set := l.rules(now)
	if set == nil {
		return nil, nil, errors.New("no rules were loaded yet")
	}
	who, knows, err := l.whoOf(ctx, l.identities, q, l.place(match.ID))
	if err != nil {
		return nil, nil, err
	}
	if q.Unparsable && (q.Identifier != "" || knows != knowledge{}) {
		return nil, nil, wrongQuery("the query says whose bucket, want nothing of the kind: all requests whose identifier cannot be read share one")
	}
	identifier, none, _ := l.typed(match, q.Identifier, false)
	if none && q.Identifier != "" {
		return nil, nil, wrongQuery("the identifier is none that could be read in a body")
	}
	t := &trip{request: Request{Identifier: identifier, Unparsable: q.Unparsable}, match: match, who: who, set: set, now: now, cost: 1, limiter: l}
	t.applied = set.ResolveFor(nil, l.clock.Wall(t.now), match, who.Project, who.Tier, t)
	t.applied = slices.DeleteFunc(t.applied, func(a policy.Applied) bool {
		terms := set.Terms(a.Rule)
		if a.Level.EveryEndpoint() != every || q.Subject != nil && *q.Subject != terms.Subject {
			return true
		}
		if q.Unparsable {
			return terms.Subject != policy.SubjectIdentifier
		}
		needs := knows.lacks(terms.Subject)
		if needs != "" {
			skipped = append(skipped, SkippedRule{set.Rule(a.Rule).Title(), terms.Subject.String(), needs})
		}
		return needs != ""
	})
	l.name(t)
	l.guard(t)
	for i, a := range t.applied[:t.doubted] {
		if q.Unparsable && i < t.named {
			continue // the address's
		}
		n := namedBucket{take: t.takes[i], terms: set.Terms(a.Rule)}
		for k, g := range t.guards {
			if g.Of == i {
				n.guards = append(n.guards, t.takes[t.doubted+k])
			}
		}
		rule := set.Rule(a.Rule)
		n.state = BucketState{
			Rule: rule.Title(), Endpoint: q.Endpoint, Level: a.Level.String(), Subject: rule.Subject.String(),
			Whose: whose(rule.Subject, &who, q, l.region), Limit: rule.Limit, Per: rule.Per, Burst: rule.Burst, Mode: modeFor(a.Shadow).String(),
		}
		if n.state, err = l.look(ctx, &n); err != nil {
			return nil, nil, err
		}
		found = append(found, n)
	}
	return found, skipped, nil
}

// look reports a bucket as it is now.
func (l *Limiter) look(ctx context.Context, n *namedBucket) (BucketState, error) {
	now := l.clock.Now()
	take := [1]bucket.Take{n.take}
	take[0].Shape, take[0].Since, take[0].Before, take[0].Shadow = n.terms.Shape, n.terms.Since, n.terms.Before, false
	var pasts []rate.Past
	l.allowances.apply(now, take[:], &pasts)
	var one, none [1]bucket.Outcome
	if _, err := l.buckets.Peek(ctx, now, take[:], one[:]); err != nil {
		return BucketState{}, fmt.Errorf("look at the bucket: %w", err)
	}
	take[0].Cost = 0
	if _, err := l.buckets.Peek(ctx, now, take[:], none[:]); err != nil {
		return BucketState{}, fmt.Errorf("look at the bucket: %w", err)
	}
	state := n.state
	state.Remaining, state.ResetAfter, state.Wait = none[0].Remaining, none[0].ResetAfter, one[0].RetryAfter
	for i := range n.guards {
		held, err := l.lookAtGuard(ctx, now, n.guards[i])
		if err != nil {
			return BucketState{}, err
		}
		state.Remaining, state.Wait = min(state.Remaining, held.Remaining), max(state.Wait, held.RetryAfter)
	}
	state.Allowance = nil
	if own, ok := l.allowances.get(n.take.Key, now); ok {
		state.Allowance = &AllowanceState{own.tokens, time.Unix(0, own.until+l.ahead(now)).UTC()}
	}
	return state, nil
}

// lookAtGuard reports what a guard leaves of its bucket's budget, and when it
// has a token.
func (l *Limiter) lookAtGuard(ctx context.Context, now int64, guard bucket.Take) (bucket.Outcome, error) {
	guard.Shadow = false
	take, out := [1]bucket.Take{guard}, [1]bucket.Outcome{}
	if _, err := l.buckets.Peek(ctx, now, take[:], out[:]); err != nil {
		return bucket.Outcome{}, fmt.Errorf("look at the bucket: %w", err)
	}
	if out[0].Allowed {
		out[0].Remaining++ // which the look has taken off
	}
	return out[0], nil
}

// matchOf reads which endpoint a query means, and whether the bucket of all
// endpoints together.
func (l *Limiter) matchOf(text string) (m endpoint.Match, every bool, err error) {
	switch text {
	case "":
		return m, false, wrongQuery("endpoint is missing, want a template such as GET /v1/items/{id}, * or UNKNOWN")
	case policy.All:
		return endpoint.Match{Status: endpoint.Known}, true, nil
	case policy.UnknownEndpoint:
		return endpoint.Match{Status: endpoint.UnknownPath}, false, nil
	case policy.Default:
		return m, false, wrongQuery("endpoint is %q, want the endpoint meant: each one that the rule covers has a bucket of its own", text)
	}
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		return m, false, wrongQuery("%v", err)
	}
	id, ok := l.endpoints.Lookup(template)
	if !ok {
		near := ""
		if closest, ok := l.endpoints.Closest(template); ok {
			near = fmt.Sprintf(", such as %q", closest)
		}
		return m, false, wrongQuery("endpoint is %q, want an endpoint of the API%s", template, near)
	}
	return endpoint.Match{ID: id, Status: endpoint.Known}, false, nil
}

// knowledge is what a query tells of its subject.
type knowledge struct{ principal, project, address, identifier bool }

// whoOf makes of a query the principal that its requests would be resolved to.
func (l *Limiter) whoOf(ctx context.Context, from *identity.Resolver, q *BucketQuery, at *identity.Endpoint) (who identity.Principal, knows knowledge, err error) {
	knows.identifier = q.Identifier != ""
	evidence, names := q.Peer.IsValid() || q.Header != nil, q.KeyID != "" || q.Certificate != "" || q.Token != "" || q.Project != "" || q.Tier != "" || q.Address.IsValid()
	switch {
	case evidence && names:
		return who, knows, wrongQuery("the query has both evidence and names, want one of both: a peer and headers, or a key, certificate, token, project or address")
	case evidence:
		who = from.Resolve(ctx, identity.Evidence{Peer: q.Peer, Header: q.Header, Endpoint: at})
		if who.Rejected != identity.NotRejected {
			return who, knows, wrongQuery("the credential shown would be ignored, because %s: name its key or the address", who.Rejected)
		}
		knows.principal, knows.project, knows.address = true, true, who.Client.IsValid()
		return who, knows, nil
	}
	if q.Address.IsValid() {
		who = from.Resolve(ctx, identity.Evidence{Peer: q.Address})
		knows.address = true
	}
	switch {
	case q.KeyID != "" && q.Certificate != "", q.KeyID != "" && q.Token != "", q.Certificate != "" && q.Token != "":
		return who, knows, wrongQuery("the query names several principals, want one: a key, a certificate or a token's subject")
	case q.KeyID != "":
		who.Kind, who.ID = identity.APIKey, q.KeyID
		knows.principal = true
	case q.Certificate != "":
		who.Kind, who.ID = identity.Certificate, q.Certificate
		knows.principal = true
	case q.Token != "":
		who.Kind, who.ID = identity.Token, q.Token
		knows.principal = true
	case q.Project == "" && knows.address:
		knows.principal = true
	}
	who.Project, who.Tier = q.Project, q.Tier
	knows.project = q.Project != ""
	return who, knows, nil
}

// lacks says what else it takes to name the bucket of a subject, or "". What a
// request lacks is replaced by its address (see appendSubject), so an address
// names it as well.
func (k knowledge) lacks(s policy.Subject) string {
	switch s {
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

func needs(known bool, what string) string {
	if known {
		return ""
	}
	return what
}

// asked stands for the identifier that an operator asked for. Answers, logs and
// the audit name nobody's account.
const asked = "the identifier asked for"

// whose says in words whose bucket it is, as appendSubject decides it.
func whose(s policy.Subject, who *identity.Principal, q *BucketQuery, region func(netip.Addr) string) string {
	if q.Unparsable {
		return "all requests whose identifier cannot be read"
	}
	address := "address " + who.Prefix.String()
	if !who.Prefix.IsValid() {
		address = "requests without an address"
	} else if who.Prefix.IsSingleIP() {
		address = "address " + who.Prefix.Addr().String()
	}
	principal := address
	if who.Kind != identity.Address {
		principal = strings.ReplaceAll(who.Kind.String(), "_", " ") + " " + who.ID
		if who.Project != "" {
			principal += " of project " + who.Project
		}
	}
	switch {
	case s == policy.SubjectPrincipal:
		return principal
	case s == policy.SubjectPrincipalIP && who.Kind != identity.Address:
		return principal + " at " + address
	case s == policy.SubjectProject && who.Project != "":
		return "project " + who.Project
	case s == policy.SubjectRegion:
		return "region " + orUnknown(region(who.Client))
	case s == policy.SubjectEndpoint:
		return "everybody"
	case s == policy.SubjectIdentifier && q.Identifier != "":
		return asked
	case s == policy.SubjectIdentifierIP && q.Identifier != "":
		return asked + " at " + address
	}
	return address
}
