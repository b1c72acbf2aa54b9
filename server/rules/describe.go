package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Describe writes a change in a line: + for what is new, - for what goes, ~ for
// what is different then.
//
//	~ GET /v1/items/{id} project acme: limit 5 → 50, burst - → 100
//
// Of a row that is no rule it says what is wrong with it, and believes none of
// its values.
//
//	~ default: limit 5 → no rule (rps_limit is -4, want a whole number of 1 or more)
func Describe(c record.Change) string {
	switch {
	case c.Before == nil && c.After == nil:
		return describeTier(c)
	case c.Before == nil:
		return "+ " + place(*c.After) + ": " + side(*c.After, c.FaultAfter)
	case c.After == nil:
		return "- " + place(*c.Before) + ": " + side(*c.Before, c.FaultBefore)
	case c.FaultBefore != "" || c.FaultAfter != "":
		return "~ " + place(*c.After) + ": " + side(*c.Before, c.FaultBefore) + " → " + side(*c.After, c.FaultAfter)
	}
	var differences []string
	before, after := fields(*c.Before), fields(*c.After)
	for i, f := range before {
		if f.text != after[i].text {
			differences = append(differences, fmt.Sprintf("%s %s → %s", f.name, f.text, after[i].text))
		}
	}
	return "~ " + place(*c.After) + ": " + strings.Join(differences, ", ")
}

// side is one side of a change of which all is told.
func side(r policy.Rule, fault string) string {
	if fault != "" {
		return "no rule (" + fault + ")"
	}
	return strings.Join(values(r), ", ")
}

func describeTier(c record.Change) string {
	before, after := tier(c.TierBefore, c.FaultBefore), tier(c.TierAfter, c.FaultAfter)
	switch {
	case before == "":
		return fmt.Sprintf("+ project %s: %s", c.Project, after)
	case after == "":
		return fmt.Sprintf("- project %s: %s", c.Project, before)
	case c.FaultBefore == "" && c.FaultAfter == "":
		after = c.TierAfter
	}
	return fmt.Sprintf("~ project %s: %s → %s", c.Project, before, after)
}

// tier is one side of a change of tiers; empty: the project was in none.
func tier(name, fault string) string {
	switch {
	case fault != "":
		return "no tier (" + fault + ")"
	case name != "":
		return "tier " + name
	}
	return ""
}

// place names what a rule is for.
func place(r policy.Rule) string {
	text := r.Endpoint
	if r.Project != "" {
		text += " project " + r.Project
	}
	if r.Tier != "" {
		text += " tier " + r.Tier
	}
	switch {
	case r.Only != "" && !r.Mode.Limits():
		text += " of " + r.Only
	case r.Subject != policy.SubjectPrincipal:
		text += " per " + r.SubjectText()
	}
	if !r.Expires.IsZero() {
		text += " temporary"
	}
	return text
}

// field is a field of a rule as people read it.
type field struct {
	name, text string
	usual      bool // what it is in a rule that does not say
}

func fields(r policy.Rule) []field {
	limit := strconv.FormatInt(r.Limit, 10)
	if r.Per > time.Second || !r.Mode.Limits() || r.Algorithm == policy.Concurrency {
		limit = r.Rate()
	}
	return []field{
		{"limit", limit, !r.Mode.Limits()},
		whole("burst", r.Burst),
		{"algorithm", r.Algorithm.String(), r.Algorithm == policy.TokenBucket || r.Algorithm == policy.Concurrency},
		{"mode", r.Mode.String(), r.Mode == policy.Enforce},
		whole("enforce_percent", r.EnforcePercent),
		{"scope", r.Scope.String(), r.Scope == policy.Local},
		{"on_store_loss", r.OnStoreLoss.String(), r.OnStoreLoss == policy.LossClosed},
		{"count_when", orDash(r.CountWhen, string(r.CountWhen)), r.CountWhen == ""},
		{"penalty", orDash(r.Penalty, string(r.Penalty)), r.Penalty == ""},
		{"refusal", orDash(r.Refusal, string(r.Refusal)), r.Refusal == ""},
		{"priority", orDash(r.Priority, string(r.Priority)), r.Priority == ""},
		moment("expires", r.Expires),
		{"name", orDash(r.Name, strconv.Quote(r.Name)), r.Name == ""},
	}
}

func whole(name string, n int64) field {
	return field{name, orDash(n, strconv.FormatInt(n, 10)), n == 0}
}

func moment(name string, at time.Time) field {
	return field{name, orDash(at, at.UTC().Format(time.RFC3339)), at.IsZero()}
}

func orDash[T comparable](value T, text string) string {
	var zero T
	if value == zero {
		return "-"
	}
	return text
}

func values(r policy.Rule) (texts []string) {
	for _, f := range fields(r) {
		if !f.usual {
			texts = append(texts, f.name+" "+f.text)
		}
	}
	return texts
}
