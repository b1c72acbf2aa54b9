package policy

import (
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// warnIdle reports what a rule says and nothing comes of: a rule that never applies, a field that changes nothing
// where it stands, and a share of subjects where there is one.
func (c *ruleCheck) warnIdle(i int, r *Rule) {
	if !r.Mode.Limits() {
		return // a field too many is an error there
	}
	of, what := r.Subject.Counts()
	method, _, _ := strings.Cut(r.Endpoint, " ")
	stream := endpoint.OfMessages(method) && !endpoint.OfBodies(method)
	if stream && what == CountsUnderWay {
		c.rule(Warning, i, "unreachable", "subject", text(r.SubjectText()), text(r.Whose())+
			", or a rule for the request that opens the stream, which has the one place of all its messages; "+
			"this one never applies")
		return
	}
	idle := func(field, value, want string) { c.rule(Warning, i, "no_effect", field, value, want) }
	if stream && r.CountWhen != "" {
		idle("count_when", text(string(r.CountWhen)),
			"none, because messages of a stream have no answers: all of them count")
	}
	if terms, _ := r.Refusal.Terms(); stream && terms != nil && terms.Media != "" {
		idle("refusal", text(string(r.Refusal)),
			`"503" or "without fields" alone, because the end of a stream has no body`)
	}
	if r.EnforcePercent == 0 || r.EnforcePercent == 100 || r.Mode == Shadow {
		return // which percent_in_shadow is for
	}
	one := ""
	switch {
	case of == SubjectEndpoint:
		one = "everybody"
	case of == SubjectProject && r.Project != "":
		one = "the project"
	default:
		return
	}
	idle("enforce_percent", number(r.EnforcePercent), "none or mode shadow, because "+one+" is one subject of "+
		text(r.SubjectText())+": the rule denies all requests over its limit, or none")
}

// WantUntimed says what limit a rule should have that was written with a time (ParseLimit); "" if one is right.
// Requests under way are so many at once, and a time would be taken for how long their places are kept.
func (r *Rule) WantUntimed() string {
	if !r.Subject.underWay() {
		return ""
	}
	return number(r.Limit) + ", because so many requests are under way at once for each " + r.Whose() +
		", and none in a time; or subject " + text(r.Whose()) + " for a rate"
}
