package policy

import "fmt"

// checkScattered reports rules that every replica counts by itself although
// there is a store to count them in. It says so of the first and counts the
// others: where one is, most often all are.
func (c *review) checkScattered() {
	if !c.o.Shared {
		return
	}
	c.ofAll(Warning, "scattered", "scope", text(Local.String()),
		`"lease" or "strict", because each of k replicas admits the limit by itself`,
		func(r *row) bool { return c.isScattered(r) && !r.subject.underWay() })
	if !c.o.OneByOne {
		c.ofAll(Warning, "scattered", "scope", text(Local.String()),
			`"strict" or "lease", because each of k replicas has as many under way as the limit says`,
			func(r *row) bool { return c.isScattered(r) && r.subject.underWay() })
	}
}

// checkOneByOne says what is lost in a store that decides over one bucket at a time.
func (c *review) checkOneByOne() {
	if !c.o.OneByOne {
		return
	}
	c.ofAll(Warning, "as_strict", "scope", "",
		`"strict", which it is: the store has CL.THROTTLE alone, so that every request asks it and nothing is leased or reported`,
		func(r *row) bool { return r.scope == Lease || r.scope == Sync })
	c.ofAll(Note, "one_by_one", "scope", text(Strict.String()),
		`store.kind "scripts" where a request that another limit denies is to cost nothing here, or tokens are to be given back, granted or reset: CL.THROTTLE does neither`,
		func(r *row) bool { return r.scope == Strict })
}

// ofAll says what the first sound rule with a limit should be for which something is true, and of how many it is
// true. Without a value that of the field is the rule's scope.
func (c *review) ofAll(severity Severity, code, field, value, want string, is func(*row) bool) {
	first, count := -1, 0
	for n := range c.rows {
		if !is(&c.rows[n]) {
			continue
		}
		if count++; first < 0 {
			first = n
		}
	}
	if count == 0 {
		return
	}
	if value == "" {
		value = text(c.rows[first].scope.String())
	}
	if count > 1 {
		want += fmt.Sprintf("; %d rules in all", count)
	}
	c.rule(severity, int(c.indexes[first]), code, field, value, want)
}

// isScattered reports whether r could be counted in the store and is not. Guards,
// which count addresses or unknown endpoints, are well placed where requests
// arrive.
func (c *review) isScattered(r *row) bool {
	subject, _ := r.subject.Counts()
	guards := subject == SubjectIP || subject == SubjectSite || r.endpoint == rowUnknown
	if r.scope != Local || guards || r.algorithm != TokenBucket && r.algorithm != LeakyBucket && !r.subject.underWay() {
		return false
	}
	return c.set.live(r, c.wall)
}

// underWay reports whether rules of a subject limit how many requests are under way.
func (s Subject) underWay() bool {
	_, what := s.Counts()
	return what == CountsUnderWay
}
