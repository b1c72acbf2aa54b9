package headgate

import (
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// keyOf names the bucket of t.subject under a rule at an endpoint. For processes
// that share it, endpoints go by their templates: their numbers are those of one
// table.
func (l *Limiter) keyOf(t *trip, rule uint64, at uint32) key.Key {
	switch {
	case l.names == nil:
		return l.keys.Key(rule, at, t.subject)
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
