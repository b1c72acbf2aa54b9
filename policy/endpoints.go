package policy

import (
	"errors"

	"github.com/headgate-io/headgate/endpoint"
)

// EndpointsOf is the table of what rules name, for a program that has no other list of its
// endpoints, and the rules with those that are for everything else: without them a path that nobody
// thought of would have no limit. Targets that two servers may read differently are refused
// (endpoint.Strictest), but for a slash at the end. What is wrong is said of all rules, and the table is of the others.
func EndpointsOf(rules []Rule) (*endpoint.Table, []Rule, error) {
	var templates []endpoint.Template
	var errs []error
	seen, unknown := map[string]bool{}, false
	for _, r := range rules {
		switch r.Endpoint {
		case Default, All:
			continue
		case UnknownEndpoint:
			unknown = true
			continue
		}
		template, err := endpoint.ParseTemplate(r.Endpoint)
		if err != nil {
			errs = append(errs, err)
		} else if !seen[template.String()] { // several rules may be for one
			seen[template.String()] = true
			templates = append(templates, template)
		}
	}
	if !unknown {
		for _, r := range rules {
			if r.Endpoint == Default {
				r.Endpoint, r.Name, unknown = UnknownEndpoint, Default, true
				rules = append(rules, r)
			}
		}
	}
	if !unknown {
		errs = append(errs, errors.New(`none is for everything else, want one more, such as "default 20/s"`))
	}
	profile := endpoint.Strictest()
	profile.Refuse &^= endpoint.RefuseTrailingSlash
	table, err := endpoint.Compile(templates, profile)
	return table, rules, errors.Join(append(errs, err)...)
}
