package rules_test

import (
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// TestDescribeWhatIsNoRule: of a row that is no rule, what stands in Before and
// After is not believed.
func TestDescribeWhatIsNoRule(t *testing.T) {
	const fault = "rps_limit is -7, want a whole number of 1 or more"
	rule := &policy.Rule{Endpoint: "default", Project: "acme", Limit: 1}
	const other = "mode is \"x\", want enforce or shadow"
	const noTier = "tier is a blob of 1 bytes, want a text"
	for want, c := range map[string]record.Change{
		"+ default project acme: no rule (" + fault + ")": {After: rule, FaultAfter: fault},
		"- default project acme: no rule (" + fault + ")": {Before: rule, FaultBefore: fault},
		"~ default project acme: limit 1 → no rule (" + fault + ")": {Before: rule, After: rule,
			FaultAfter: fault},
		"~ default project acme: no rule (" + fault + ") → limit 1": {Before: rule, After: rule,
			FaultBefore: fault},
		"~ default project acme: no rule (" + fault + ") → no rule (" + other + ")": {Before: rule, After: rule,
			FaultBefore: fault, FaultAfter: other},
		"+ project acme: no tier (" + noTier + ")": {Project: "acme", FaultAfter: noTier},
		"- project acme: no tier (" + noTier + ")": {Project: "acme", FaultBefore: noTier},
		"~ project acme: tier gold → no tier (" + noTier + ")": {Project: "acme", TierBefore: "gold",
			FaultAfter: noTier},
		"~ project acme: no tier (" + noTier + ") → tier gold": {Project: "acme", FaultBefore: noTier,
			TierAfter: "gold"},
		"~ project acme: tier free → gold": {Project: "acme", TierBefore: "free", TierAfter: "gold"},
	} {
		if got := rules.Describe(c); got != want {
			t.Errorf("Describe(%+v) = %q, want %q", c, got, want)
		}
	}
}
