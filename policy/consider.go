package policy

import (
	"fmt"
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
// Consider tells it for a caller who is among nobody's share; see ConsiderFor.
func (s *Set) Consider(now int64, m endpoint.Match, project, tier string) []Considered {
	return s.ConsiderFor(now, m, project, tier, nobody{})
}

type nobody struct{}

func (nobody) Chosen(RuleID) bool { return false }

// ConsiderFor tells the story of ResolveFor.
func (s *Set) ConsiderFor(now int64, m endpoint.Match, project, tier string, chooser Chooser) []Considered {
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
		subject := Subject(bits.TrailingZeros32(uint32(present)))
		var ruling, tried string // the level that rules the subject, and the one on trial, once there is one
		for level := first; level <= last; level++ {
			if level == LevelAllProject {
				ruling, tried = "", ""
			}
			found, standsFor := s.atPlace(at[level], subject)
			if len(found) == 0 {
				out = append(out, Considered{Subject: subject, Level: level, Why: s.absent(level, project, tier)})
			}
			for _, id := range found {
				c := Considered{Subject: subject, Level: level, Rule: id, Found: true}
				r := &s.rows[id]
				share := ""
				if r.mode == partly {
					share = fmt.Sprintf("enforced for %d %%: this caller is ", r.percent)
				}
				switch {
				case !s.live(r, now):
					c.Why = "expired at " + s.Rule(id).Expires.Format(time.RFC3339)
				case ruling == level.String() && len(found) == 2:
					c.Why = "the temporary rule stands in its place"
				case ruling != "":
					c.Why = "the rule at " + ruling + " is more specific"
				case r.mode == Enforce || r.mode == partly && chooser.Chosen(id):
					c.Applies, c.Why = true, "the most specific rule"
					ruling = level.String()
					if level.EveryEndpoint() {
						c.Why = "applies in addition"
					}
					if share != "" {
						c.Why += ", " + share + "among them"
					}
					if len(found) == 2 && id != standsFor {
						c.Why += fmt.Sprintf("; until %s in place of the lasting %s",
							s.Rule(id).Expires.Format(time.RFC3339), limitText(s.limits[s.rows[standsFor].limit]))
					}
				case tried != "":
					c.Why = "the rule in shadow at " + tried + " is more specific"
				default:
					c.Applies, c.Why = true, "in shadow: counts beside the rule that holds"
					if share != "" {
						c.Why = share + "not among them, and it counts beside the rule that holds"
					}
					tried = level.String()
				}
				out = append(out, c)
			}
		}
	}
	return out
}

// atPlace finds the rules of a group that have a subject, the temporary first,
// and which of two is the lasting one.
func (s *rules) atPlace(g group, subject Subject) (found []RuleID, lasting RuleID) {
	id, ok := s.of(g, subject)
	if !ok {
		return nil, 0
	}
	if over, pair := s.temporary(id); pair {
		return []RuleID{over, id}, id
	}
	return []RuleID{id}, id
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
