package rules_test

import (
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/store"
)

// TestDescribeWhatIsNoRule: of a row that is no rule, what stands in Before and
// After is not believed.
func TestDescribeWhatIsNoRule(t *testing.T) {
	const fault = "rps_limit is -7, want a whole number of 1 or more"
	rule := &policy.Rule{Endpoint: "default", Project: "acme", Limit: 1}
	for want, c := range map[string]store.Change{
		"+ default project acme: no rule, " + fault:                 {After: rule, Fault: fault},
		"- default project acme: no rule, " + fault:                 {Before: rule, Fault: fault},
		"~ default project acme: no rule before or after, " + fault: {Before: rule, After: rule, Fault: fault},
	} {
		if got := rules.Describe(c); got != want {
			t.Errorf("Describe(%+v) = %q, want %q", c, got, want)
		}
	}
}
