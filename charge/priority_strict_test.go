//go:build unix

package charge_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestReplicasShareBudgetsByClass: two replicas with one store together give each class what one would.
func TestReplicasShareBudgetsByClass(t *testing.T) {
	server := redistest.Start(t)
	templates, rules := classed(policy.Rule{Limit: 10, Per: 24 * time.Hour, Burst: 100, Scope: policy.Strict,
		Priority: "high:20,low:10"})
	replicas := []*trial.Bench{replica(t, server, templates, rules), replica(t, server, templates, rules)}
	take := func(class string, want int) {
		t.Helper()
		for n := 0; ; n++ {
			if d := replicas[n%2].Get("/" + class); !d.Allowed {
				if n != want {
					t.Fatalf("%d of class %s pass, want %d: %v", n, class, want, d.Reason)
				}
				return
			}
		}
	}
	take("low", 35+10)
	take("high", 25+20)
	take("low", 0)
}
