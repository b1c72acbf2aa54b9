package policy

import (
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/endpoint"
)

// Considered is one place where a rule was looked for, and what came of it.
type Considered struct {
	Subject Subject
	Level   Level
	Rule    RuleID // when Found
	Found   bool   // there is a rule, whether or not it applies
	Applies bool
	Why     string // for people
}

// Consider tells the story of Resolve: for every subject that the document
// limits, every level that was looked at, in order. What applies is what
// Resolve returns.
func (s *Set) Consider(now int64, m endpoint.Match, project, tier string) []Considered {
	var at [levels]group
	s.locate(&at, m, project, tier)
	first, last := LevelEndpointProject, LevelAll
	if m.Status != endpoint.Known {
		first, last = LevelUnknown, LevelUnknown
	}
	present := s.present
	if present == 0 {
		present = 1 << SubjectPrincipal
	}
	var out []Considered
	for ; present != 0; present &= present - 1 {
		subject := Subject(bits.TrailingZeros8(present))
		var ruling, tried string // the level that rules the subject, and the one on trial, once there is one
		for level := first; level <= last; level++ {
			if level == LevelAllProject {
				ruling, tried = "", ""
			}
			c := Considered{Subject: subject, Level: level}
			c.Rule, c.Found = s.of(at[level], subject)
			switch {
			case !c.Found:
				c.Why = s.absent(level, project, tier)
			case !s.live(&s.rows[c.Rule], now):
				c.Why = "expired at " + s.Rule(c.Rule).Expires.Format(time.RFC3339)
			case ruling != "":
				c.Why = "the rule at " + ruling + " is more specific"
			case s.rows[c.Rule].mode == Shadow && tried != "":
				c.Why = "the rule in shadow at " + tried + " is more specific"
			case s.rows[c.Rule].mode == Shadow:
				c.Applies, c.Why = true, "in shadow: counts beside the rule that holds"
				tried = level.String()
			default:
				c.Applies, c.Why = true, "the most specific rule"
				ruling = level.String()
				if level.EveryEndpoint() {
					c.Why = "applies in addition"
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// absent says why a level has no rule for a request.
func (s *Set) absent(level Level, project, tier string) string {
	switch {
	case level.ofProject() && project == "":
		return "the request has no project"
	case level.ofTier() && tier == "" && s.Tier(project) == "":
		return "the request has no tier"
	}
	return "no rule"
}
