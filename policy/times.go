package policy

import (
	"fmt"
	"time"
)

// Times is what callers are told who are refused and share a bucket, for advice about rules.
type Times struct {
	// SameMoment says that all of them are told when the bucket has room.
	SameMoment bool

	// UpTo is how far ahead each is given a time of its own. 0: no advice.
	UpTo time.Duration

	// Reserves says that this process also keeps the tokens for these times.
	Reserves bool
}

// checkTimes reports rules whose buckets callers share, and whose times are of little use to them.
// It says so of the first and counts the others.
func (c *review) checkTimes() {
	t := c.o.Times
	told := func(severity Severity, code, field, value, want string, is func(r *row) bool) {
		c.ofAll(severity, code, field, value, want, func(r *row) bool {
			return r.writtenMode() == Enforce && r.subject.ManyCallers() && !r.subject.underWay() && is(r)
		})
	}
	if t.SameMoment {
		told(Note, "same_moment", "retry_after", text("truth"),
			`"spaced", because callers who share this bucket are told the same moment, and all come then`,
			func(*row) bool { return true })
	}
	if t.UpTo > 0 {
		told(Note, "far_times", "limit", "less than a token in "+duration(t.UpTo),
			fmt.Sprintf("a token in %s at least, or callers who come at random: no caller is given a time further "+
				"ahead, and the others are told the same moment", duration(t.UpTo)),
			func(r *row) bool {
				l := c.set.limits[r.limit]
				return l.Per > t.UpTo && l.Per/time.Duration(l.Tokens) > t.UpTo
			})
	}
	if t.Reserves {
		told(Warning, "not_kept", "scope", "",
			`"lease", or retry_after "spaced": tokens are kept by the gateway that reserved them, and others admit their callers meanwhile`,
			func(r *row) bool { return c.o.Shared && (r.scope == Strict || r.scope == Sync) })
	}
}

// ManyCallers reports whether a bucket of the subject is used by callers who are told apart otherwise.
func (s Subject) ManyCallers() bool {
	switch of, _ := s.Counts(); of {
	case SubjectProject, SubjectRegion, SubjectEndpoint, SubjectSite, SubjectPath, SubjectClaim:
		return true
	}
	return false
}
