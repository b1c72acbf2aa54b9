package charge

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge/internal/subject"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// A bucket is named by its rule, by the endpoint unless the rule is for all of them together, and by whoever the rule
// counts: in this process by a key that it alone knows, and for others by one that all of them can work out.

// name turns the rules that apply into attempts on named buckets.
func (pl *Planner) name(p *Plan) {
	named := len(p.applied)
	if p.Unparsable || p.caller.Who.Flooded() {
		p.addUnreadable()
	}
	p.grow(len(p.applied))
	for i, a := range p.applied {
		terms := p.Set.Terms(a.Rule)
		p.locate(a.Rule, terms.Subject)
		kind := Own
		if i < named {
			p.bytes = p.caller.Append(p.bytes[:0], terms.Subject)
		} else {
			p.bytes = subject.AppendUnreadable(p.bytes[:0], terms.Subject)
			kind = Unreadable
		}
		p.Charges[p.first+i] = Charge{Applied: a, Kind: kind, Principal: uint8(p.principal),
			Place: p.from + i, id: terms.ID, Concurrent: terms.Concurrent, most: p.most(&terms)}
		var window rate.Shape
		if terms.Calendar {
			window = pl.calendarWindow(p, a.Rule, &terms)
		}
		// Written where it stays: a take is too large to be copied for nothing.
		take := &p.Takes[p.from+i]
		take.Reach, take.Place = pl.reach(&terms), 0
		if pl.Shared(terms.Scope) {
			take.Key = pl.nameOf(p, terms.ID, a.Level)
			if take.Tag = 0; terms.Scope != policy.Gossip { // which no store keeps with others
				take.Tag = pl.tagOf(p, terms.Subject)
			}
			if terms.Concurrent {
				take.Place = pl.place()
			}
		} else {
			take.Key = pl.keys.Key(terms.ID, p.endpointOf(a.Level), p.bytes)
		}
		take.Shape, take.Since = terms.Shape, terms.Since
		if terms.Calendar {
			// Each period has a bucket of its own, which began full: no limit from before it matters, and of
			// one that changes within it the count stays.
			take.Shape, take.Since, take.Before = window, 0, nil
		} else if take.Before != terms.Before { // mostly both are nil, and storing a pointer costs more than looking
			take.Before = terms.Before
		}
		if lowered := lowered(p.Lowered, &terms, a.Level); take.Lowered != lowered {
			take.Lowered = lowered
		}
		take.Cost, take.Shadow, take.MaxWait, take.Kept = p.Charges[p.first+i].cost(p.Cost), a.Shadow, 0, 0
		p.Concurrent = p.Concurrent || terms.Concurrent
		p.Waits = p.Waits || terms.Shape.Algorithm == rate.LeakyBucket
	}
	pl.Allowances.apply(p.Now, p.Takes[p.from:], &p.pasts)
}

// place numbers a place. 0 is none.
func (pl *Planner) place() uint32 {
	for {
		if n := pl.places.Add(1); n != 0 {
			return n
		}
	}
}

// addUnreadable makes every rule by identifier apply a second time, to what all requests share whose identifier nobody
// can read. The address's budget alone would be one more for each address that tries the same account. The same goes
// for rules by principal where a token or signature was not verified because its address has sent too many bad ones:
// it may be a good one, shown from one such address after another.
func (p *Plan) addUnreadable() {
	who := p.caller.Who
	unverified := who.Flooded() && who.Kind == identity.Address
	for _, a := range p.applied[:len(p.applied):len(p.applied)] {
		switch p.Set.Terms(a.Rule).Subject {
		case policy.SubjectIdentifier:
			if p.Unparsable {
				p.applied = append(p.applied, a)
			}
		case policy.SubjectPrincipal, policy.SubjectPrincipalIP, policy.SubjectProject, policy.SubjectClaim:
			if unverified {
				p.applied = append(p.applied, a)
			}
		}
	}
}

// reach is how far the bucket of a rule reaches. One that other processes would
// have to know the name of is local where there are no names.
func (pl *Planner) reach(terms *policy.Terms) bucket.Reach {
	if terms.Scope == policy.Local || terms.Scope.Named() && pl.names == nil {
		return 0
	}
	return bucket.NewReach(bucket.Scope(terms.Scope), bucket.Loss(terms.OnStoreLoss))
}

// everyEndpoint stands in a key for the endpoint of a "*" rule, whose one
// bucket all endpoints share.
const everyEndpoint = ^uint64(0)

// endpointOf is the endpoint that the key of a rule's bucket says. It is no endpoint.ID: buckets outlive tables.
func (p *Plan) endpointOf(level policy.Level) uint64 {
	if level.EveryEndpoint() {
		return everyEndpoint
	}
	return p.Endpoints.Number(p.Match.ID)
}

// nameOf names the bucket of p.bytes under a rule, for processes that share it.
// Endpoints go by their templates: their numbers are those of one table.
func (pl *Planner) nameOf(p *Plan, rule uint64, level policy.Level) key.Key {
	switch {
	case level.EveryEndpoint():
		return pl.names.Name(rule, policy.All, p.bytes)
	case p.Match.ID == endpoint.Unknown:
		return pl.names.Name(rule, policy.UnknownEndpoint, p.bytes)
	}
	return pl.names.Name(rule, p.Endpoints.Template(p.Match.ID).String(), p.bytes)
}

// tagOf says which buckets a shared one is kept with. It spends p.bytes.
func (pl *Planner) tagOf(p *Plan, s policy.Subject) uint16 {
	if together, ok := p.caller.AppendNeighbours(p.bytes[:0], s); ok {
		p.bytes = together
	}
	return pl.names.Tag(p.bytes)
}

// CallerKey names the caller of a charge under its rule, whatever the rule counts by.
func (p *Plan) CallerKey(of int) key.Key {
	c := &p.Charges[of]
	p.bytes = p.Of(int(c.Principal)).AppendSubject(p.bytes[:0])
	return p.planner.keys.Key(^c.id, p.endpointOf(c.Level), p.bytes)
}

// locate finds out the region, a parameter or a claim, for a rule that goes by it.
func (p *Plan) locate(rule policy.RuleID, s policy.Subject) {
	switch s {
	case policy.SubjectRegion:
		p.Region = p.planner.region(p.caller.Who.Client)
		p.caller.Region = p.Region
	case policy.SubjectPath:
		p.caller.Parameter, _ = p.ParameterOf(rule)
	case policy.SubjectClaim:
		p.caller.Claim, _ = p.ClaimOf(rule, p.principal)
	}
}

// ParameterOf is the value that the request gives the path parameter which a rule counts by; see
// endpoint.Table.Parameter. It is false where it gives none.
func (p *Plan) ParameterOf(rule policy.RuleID) (value string, ok bool) {
	name := p.Set.SubjectName(rule)
	if value, ok = p.named("path:", name); ok || p.Endpoints == nil {
		return value, ok
	}
	return p.Endpoints.Parameter(p.Match.ID, p.Target, name)
}

// ClaimOf is the value of the claim which a rule counts by, of one principal's token. It is false where it has none.
func (p *Plan) ClaimOf(rule policy.RuleID, principal int) (value string, ok bool) {
	name := p.Set.SubjectName(rule)
	if value, ok = p.named("claim:", name); ok {
		return value, ok
	}
	return p.Of(principal).Claim(name)
}

func (p *Plan) named(kind, name string) (value string, ok bool) {
	if p.Named == nil {
		return "", false
	}
	value, ok = p.Named[kind+name]
	return value, ok
}

// join has the principal that was charged last share the buckets that others
// are charged to as well. Where the two say differently what a bucket holds,
// the smaller counts.
func (p *Plan) join() {
	kept := p.from
	for i := p.first; i < len(p.Charges); i++ {
		c := &p.Charges[i]
		take := &p.Takes[c.Place]
		at := sameBucket(p.Takes[:kept], take.Key)
		if at < 0 {
			p.Takes[kept] = *take
			c.Place, kept = kept, kept+1
			continue
		}
		own := &p.Takes[at]
		if take.Shape.Capacity < own.Shape.Capacity {
			own.Shape, own.Since, own.Before = take.Shape, take.Since, take.Before
		}
		own.Shadow = own.Shadow && take.Shadow
		c.Place, c.Joined = at, true
	}
	p.Takes = p.Takes[:kept]
}

func sameBucket(takes []bucket.Take, k key.Key) int {
	for i := range takes {
		if takes[i].Key == k {
			return i
		}
	}
	return -1
}
