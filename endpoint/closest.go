package endpoint

import "github.com/headgate-io/headgate/internal/edits"

// Closest returns the template of the table that resembles the given one most, for a "did you mean" in an error
// message; none when nothing is near. Near means: the same path with another method, or a path in which at most one
// letter in four has to change. It compares with every template, so it is not for the path of a request.
func (t *Table) Closest(template Template) (Template, bool) {
	wanted := shape(template, t.profile.CaseInsensitive)
	wantedPath := wanted[template.space:]
	var closest Template
	least := len(wantedPath)/4 + 2 // one for the method
	for _, candidate := range t.templates {
		path := shape(candidate, t.profile.CaseInsensitive)[candidate.space:]
		d := 0
		if candidate.Method() != template.Method() {
			d = 1
		}
		if d += edits.Distance(path, wantedPath, least-d); d < least {
			closest, least = candidate, d
		}
	}
	return closest, closest != Template{}
}
