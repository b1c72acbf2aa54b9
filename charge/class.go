package charge

import "github.com/headgate-io/headgate/policy"

// ClassSource says what a request has its class from.
type ClassSource uint8

// What a request may have its class from. All of it is configuration, or verified.
const (
	ByNothing  ClassSource = iota // nothing says anything of it, or of one of its principals
	ByRule                        // that applies to it and is not in shadow
	ByEndpoint                    // policy.ClassesBy.Endpoints
	ByTier                        // policy.ClassesBy.Tiers, of the principal's tier
	ByScore                       // the same, of the tier by which the principal pays as well (Request.Also)
	ByClaim                       // policy.ClassesBy.Claim
	ByProgram                     // Request.Said
)

// ClassBy is what a request has its class from.
type ClassBy struct {
	Source    ClassSource
	Principal int // whose rule, tier or claim it is: 0 is Request.Who, n is Request.Others[n-1]
	Charge    int // for ByRule, in Plan.Charges
}

// findClass finds the request's class: the lowest of those that it would have with each of its principals alone, so
// that no further credential makes it more urgent. With one principal that is the lowest that anything says of it, and
// policy.Normal if nothing does.
func (p *Plan) findClass() {
	ofEndpoint := p.Set.ClassOfEndpoint(p.Match.ID)
	for n := range 1 + len(p.Others) {
		class, by := p.callerClass(n)
		switch {
		case n == 0:
			p.CallerClass = class
		case class != p.CallerClass:
			p.CallerClass = max(said(p.CallerClass), said(class))
		}
		if ofEndpoint > class {
			class, by = ofEndpoint, ClassBy{Source: ByEndpoint}
		}
		for i := range p.Charges {
			c := &p.Charges[i]
			terms := p.Set.PriorityOf(c.Rule)
			if terms != nil && terms.Class > class && int(c.Principal) == n && !c.Shadow {
				class, by = terms.Class, ClassBy{ByRule, n, i}
			}
		}
		if class == policy.Unclassed {
			by = ClassBy{Principal: n}
		}
		if class = said(class); class > p.Class {
			p.Class, p.ClassBy = class, by
		}
	}
}

// said is a class, or what a request is of that nothing says anything of.
func said(c policy.Class) policy.Class {
	if c == policy.Unclassed {
		return policy.Normal
	}
	return c
}

// callerClass is the lowest class that is said of a principal, or of the request by the program, whatever it asks for;
// policy.Unclassed if nothing is.
func (p *Plan) callerClass(principal int) (class policy.Class, by ClassBy) {
	who := p.Of(principal)
	class = min(p.Said, policy.Low)
	by.Source, by.Principal = ByProgram, principal
	if c := p.Set.ClassOfTier(who.Project, who.Tier); c > class {
		class, by.Source = c, ByTier
	}
	if len(p.Also) > principal {
		if c := p.Set.ClassOfTier("", p.Also[principal]); c > class {
			class, by.Source = c, ByScore
		}
	}
	if name := p.Set.ClassClaim(); name != "" {
		value, _ := who.Claim(name)
		if c, _ := policy.ParseClass(value); c > class {
			class, by.Source = c, ByClaim
		}
	}
	return class, by
}
