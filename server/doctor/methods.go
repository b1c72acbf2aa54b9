package doctor

import (
	"net/http"

	"github.com/headgate-io/headgate/endpoint"
)

// checkMethods says where a POST may become another method behind the gateway.
// Rails, Laravel and Symfony let _method in a query or a form replace the method
// of a POST; the gateway leaves out the headers that do so, but passes queries
// and bodies as they came.
func checkMethods(r *Report, table *endpoint.Table, unknownPass bool) {
	posts, others := map[string]bool{}, map[string]endpoint.Template{}
	for _, t := range table.All() {
		switch t.Method() {
		case http.MethodPost:
			posts[t.Path()] = true
		case http.MethodPut, http.MethodPatch, http.MethodDelete:
			if old, ok := others[t.Path()]; !ok || t.String() < old.String() {
				others[t.Path()] = t
			}
		}
	}
	var first *endpoint.Template
	for path, t := range others {
		if (posts[path] || unknownPass) && (first == nil || t.String() < first.String()) {
			first = &t
		}
	}
	if first != nil {
		r.add(Finding{Setting: "endpoints", Value: first.String(), Level: Note,
			Wrong: "Rails, Laravel and Symfony serve it to a POST of the same path with _method in its query or " +
				"form, which pays as a POST",
			Set: "_method switched off in such a framework"})
	}
}
