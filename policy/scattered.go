package policy

import "fmt"

// checkScattered reports rules that every replica counts by itself although
// there is a store to count them in. It says so of the first and counts the
// others: where one is, most often all are.
func (c *review) checkScattered() {
	if !c.o.Shared {
		return
	}
	first, count := -1, 0
	for i := range c.doc.Rules {
		if c.broken[i] || !c.isScattered(&c.doc.Rules[i]) {
			continue
		}
		if count++; first < 0 {
			first = i
		}
	}
	if count == 0 {
		return
	}
	want := `"lease" or "strict", because each of k replicas admits the limit by itself`
	if count > 1 {
		want += fmt.Sprintf("; %d rules in all", count)
	}
	c.rule(Warning, first, "scattered", "scope", text(Local.String()), want)
}

// isScattered reports whether r could be counted in the store and is not. Guards,
// which count addresses or unknown endpoints, are well placed where requests
// arrive.
func (c *review) isScattered(r *Rule) bool {
	guards := r.Subject == SubjectIP || r.Subject == SubjectSite || r.Endpoint == UnknownEndpoint
	if r.Scope != Local || guards || r.Algorithm != TokenBucket && r.Algorithm != LeakyBucket {
		return false
	}
	expires := expiry(r.Expires)
	return expires == 0 || expires > c.wall
}
