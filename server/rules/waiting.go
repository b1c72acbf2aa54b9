package rules

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// StandsIn reports whether a rule is a temporary one because of which the lasting
// rule in its place changes nothing at a time. One that is only tried, in shadow
// or for a share, leaves the lasting rule in force.
func StandsIn(r policy.Rule, at time.Time) bool {
	return r.Expires.After(at) && r.Mode == policy.Enforce && r.EnforcePercent == 0
}

// mostWaiting is how many rules Waiting names.
const mostWaiting = 20

// Waiting tells of each lasting rule that a change touches without effect, as a
// temporary one stands in for it. What the change touches is said, or is what is
// different in after if that is nil.
func Waiting(before, after policy.Document, said []record.RuleKey, at time.Time) (texts []string) {
	standIns := map[record.RuleKey]policy.Rule{}
	for _, r := range after.Rules {
		if StandsIn(r, at) {
			standIns[lastingOf(record.KeyOf(r))] = r
		}
	}
	if len(standIns) == 0 {
		return nil
	}
	if said == nil {
		said = touched(before, after, standIns)
	}
	more := 0
	for _, key := range said {
		switch r, waits := standIns[key]; {
		case !waits:
		case len(texts) == mostWaiting:
			more++
		default:
			texts = append(texts,
				fmt.Sprintf("the change of the %v has no effect yet: a temporary rule stands in for it until %s, %s",
					key, r.Expires.UTC().Format(time.RFC3339), r.Rate()))
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("the same of %d more rules", more))
	}
	return texts
}

func lastingOf(k record.RuleKey) record.RuleKey {
	k.Temporary = false
	return k
}

// touched are the lasting rules among some that are others in after, or gone.
func touched(before, after policy.Document, among map[record.RuleKey]policy.Rule) (keys []record.RuleKey) {
	was := map[record.RuleKey]policy.Rule{}
	for _, r := range before.Rules {
		if key := record.KeyOf(r); !key.Temporary {
			if _, asked := among[key]; asked {
				was[key] = r
			}
		}
	}
	for _, r := range after.Rules {
		key := record.KeyOf(r)
		if _, asked := among[key]; !asked || key.Temporary {
			continue
		}
		if old, there := was[key]; !there || old != r {
			keys = append(keys, key)
		}
		delete(was, key)
	}
	for _, r := range before.Rules { // in their order
		if _, gone := was[record.KeyOf(r)]; gone {
			keys = append(keys, record.KeyOf(r))
		}
	}
	return keys
}
