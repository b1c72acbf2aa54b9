package metrics

import (
	"github.com/headgate-io/headgate/server/revert"
)

// RevertStatus is what became of changes of the rules under auto_revert.
type RevertStatus struct {
	revert.Stats
	InForce bool // the rules in force are those from before a change that was taken back
}

var (
	descReverts = describe("auto_reverts_total", "Changes of the rules that turned callers away, by what became "+
		"of them: reverted, conflict (somebody was faster), mixed (another change since is not at fault), failed "+
		"(to be tried again).", "outcome")
	descTrials   = describe("auto_revert_endpoints", "Endpoints that are watched because their rules changed.")
	descRestored = describe("auto_revert_in_force",
		"1 while the rules in force are those from before a change that was taken back.")
)

// revertGauges tells of auto_revert; it has no series where that is off.
type revertGauges struct{ status func() RevertStatus }

func (g *revertGauges) write(out series) {
	if g.status == nil {
		return
	}
	s := g.status()
	for outcome, n := range map[string]uint64{
		"reverted": s.Stats.Reverted,
		"conflict": s.Conflicts,
		"mixed":    s.Mixed,
		"failed":   s.Failed,
	} {
		out.count(descReverts, n, outcome)
	}
	out.gauge(descTrials, float64(s.Trials))
	out.gauge(descRestored, truth(s.InForce))
}
