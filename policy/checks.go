package policy

import (
	"slices"

	"github.com/headgate-io/headgate/internal/edits"
)

// Check is one kind of Problem.
type Check struct {
	Code     string
	Severity Severity
}

// checks are all kinds of problem that Compile and Lint report, that the reader of
// a file does, and that an approval of a request may have, in the order in which docs/lint.md explains them.
var checks = []Check{
	{"file", Error}, {"endpoint", Error}, {"limit", Error}, {"per", Error}, {"burst", Error},
	{"project", Error}, {"tier", Error}, {"subject", Error}, {"algorithm", Error}, {"mode", Error},
	{"scope", Error}, {"on_store_loss", Error}, {"count_when", Error}, {"penalty", Error}, {"refusal", Error},
	{"priority", Error}, {"expires", Error}, {"name", Error}, {"enforce_percent", Error},
	{"duplicate", Error}, {"projects", Error}, {"ignore", Error},
	{"cost", Error}, {"costs", Error}, {"burst_percent", Error}, {"too_many_names", Error},

	{"no_default", Warning}, {"no_unknown", Warning}, {"no_endpoint", Warning}, {"unreachable", Warning},
	{"expired", Warning}, {"void", Warning}, {"above_guard", Warning}, {"unseen", Warning}, {"unshared", Warning},
	{"scattered", Warning}, {"as_strict", Warning}, {"no_effect", Warning},
	{"unused_store_loss", Warning}, {"not_kept", Warning}, {"every_request", Warning}, {"some_answers", Warning},
	{"lockout", Warning}, {"path_alone", Warning}, {"unused_identifier", Warning},
	{"priority_below_cost", Warning}, {"tier_without_rule", Warning}, {"secret_in_name", Warning},
	{"not_higher", Warning}, {"unfollowed", Warning},

	{"above_address_guard", Note}, {"burst_high", Note}, {"burst_low", Note}, {"window_edge", Note},
	{"expires_soon", Note}, {"redundant", Note}, {"percent_in_shadow", Note},
	{"penalty_in_shadow", Note}, {"penalty_for_addresses", Note}, {"penalty_per_replica", Note},
	{"priority_unused", Note}, {"priority_in_shadow", Note}, {"class_without_rule", Note}, {"tier_unused", Note},
	{"login_open", Note}, {"message_unruled", Note}, {"listeners_open", Note}, {"batch_above_burst", Note},
	{"price_above_burst", Note}, {"metered_by_others", Note},
	{"one_by_one", Note}, {"same_moment", Note}, {"far_times", Note},
	{"unjudged", Note}, {"unused_ignore", Note},
}

// Checks lists every kind of problem. Codes keep their meaning from version to
// version.
func Checks() []Check { return slices.Clone(checks) }

// FindCheck returns the check with a code. The error names the code that was
// probably meant.
func FindCheck(code string) (Check, error) {
	codes := make([]string, len(checks))
	for i, k := range checks {
		if k.Code == code {
			return k, nil
		}
		codes[i] = k.Code
	}
	want := "the code of a check"
	if near := closest(code, codes); near != "" {
		want += "; the closest is " + text(near)
	}
	return Check{}, Problem{Code: "ignore", Rule: -1, Field: "code", Value: text(code), Want: want}
}

// maxNear bounds the work of closest: the length of a text, and how many it is
// compared with.
const maxNear = 64

// closest returns the text of a list that is at most two edits (and no more
// than half of it) from s, or "".
func closest(s string, of []string) string {
	best, distance := "", 1+min(2, len(s)/2)
	if len(s) > maxNear {
		return ""
	}
	for _, t := range of[:min(len(of), maxNear)] {
		if len(t) > maxNear || t == s {
			continue
		}
		if d := edits.Distance(s, t, distance); d < distance {
			best, distance = t, d
		}
	}
	return best
}
