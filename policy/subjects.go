package policy

import (
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// unseen reports whether the process cannot tell apart what r counts by. For an
// identifier that depends on the endpoint: rules for several are taken to mean
// those where it is read.
func (c *ruleCheck) unseen(r *Rule, at *place) bool {
	of, _ := r.Subject.Counts()
	switch {
	case of == SubjectClaim && len(c.o.Claims) > 0:
		return !slices.Contains(c.o.Claims, r.SubjectName())
	case of == SubjectPath && (at.number == rowDefault || at.number == rowAll):
		return !c.hasParameter(r.SubjectName())
	}
	if of != SubjectIdentifier && of != SubjectIdentifierIP || len(c.o.Identified) == 0 {
		return slices.Contains(c.o.Unseen, of)
	}
	return r.Endpoint != Default && r.Endpoint != All && !slices.Contains(c.o.Identified, endpoint.ID(at.number))
}

// wantSeen says what subject the process could tell apart.
func wantSeen(r *Rule) string {
	switch of, _ := r.Subject.Counts(); of {
	case SubjectPath:
		return "a parameter that some endpoint has; where it has none, the address stands in"
	case SubjectClaim:
		return "a claim that tokens are read for (tokens.claims); for others, the caller stands in"
	}
	return "one that this process can tell apart: without regions all callers share one bucket, and where no " +
		"identifier is read the address stands in"
}

// wantName says which parameter or claim a limit should count by, or which subject
// should have no name behind it; "" if nothing is wrong.
func (c *ruleCheck) wantName(r *Rule, at *place) string {
	if !r.Subject.Named() {
		if r.Only == "" {
			return ""
		}
		return "a subject without a name behind it; one network or caller is for mode allow or block"
	}
	if read := (Rule{}); read.SetSubject(r.Only) != nil || read.Subject != r.Subject {
		return wantSubject
	}
	of, what := r.Subject.Counts()
	if of != SubjectPath || at.want != "" || at.number == rowDefault || at.number == rowAll ||
		c.isOrphan(at.number) {
		return ""
	}
	if at.number == rowUnknown {
		return `one that requests without an endpoint have, such as "ip"`
	}
	have := slices.Collect(c.o.Endpoints.Template(endpoint.ID(at.number)).Parameters())
	if slices.Contains(have, r.SubjectName()) {
		return ""
	}
	if len(have) == 0 {
		return "another subject, because no parameter of the endpoint has a segment of the path for itself"
	}
	for i := range have {
		have[i] = text(countedTexts[what] + pathParameter + ":" + have[i])
	}
	return strings.Join(have, " or ")
}
