package headgate

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// reaches notes how far the bucket of a take reaches, for a rule that is not
// local, and reports whether other processes have to know its name. Where there
// are no names for others, nothing is shared.
func (l *Limiter) reaches(take *bucket.Take, terms *policy.Terms) bool {
	if terms.Scope.Shared() && l.names == nil {
		return false
	}
	take.Reach = bucket.NewReach(bucket.Scope(terms.Scope), bucket.Loss(terms.OnStoreLoss))
	return terms.Scope.Shared()
}

// nameOf names the bucket of t.subject under a rule at an endpoint, for processes
// that share it. Endpoints go by their templates: their numbers are those of one
// table.
func (l *Limiter) nameOf(t *trip, rule uint64, at uint32) key.Key {
	switch {
	case at == everyEndpoint:
		return l.names.Name(rule, policy.All, t.subject)
	}
	return l.names.Name(rule, l.templates[at], t.subject)
}

// tagOf keeps the buckets of one project, key or address together, so that one
// decision finds them in one place; what all share is where t.subject says, which
// it spends.
func (l *Limiter) tagOf(t *trip, s policy.Subject) uint16 {
	switch s {
	case policy.SubjectPrincipal, policy.SubjectProject, policy.SubjectPrincipalIP:
		if t.who.Project != "" {
			t.subject = appendText(append(t.subject[:0], tagProject), t.who.Project)
		} else {
			t.subject = t.who.AppendSubject(t.subject[:0])
		}
	}
	return l.names.Tag(t.subject)
}

// templates are the texts of all endpoints by endpoint.ID.
func templates(endpoints *endpoint.Table) []string {
	all := make([]string, endpoints.Len()+1)
	all[endpoint.Unknown] = policy.UnknownEndpoint
	for id, template := range endpoints.All() {
		all[id] = template.String()
	}
	return all
}
