package endpoint

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
		if d += distance(path, wantedPath, least-d); d < least {
			closest, least = candidate, d
		}
	}
	return closest, closest != Template{}
}

// distance returns how many bytes must be inserted, deleted or replaced to make a of b (Levenshtein), or limit if
// it is that or more.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least >= limit {
			return limit
		}
	}
	return min(row[len(b)], limit)
}
