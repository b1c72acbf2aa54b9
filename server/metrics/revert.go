package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

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

func (g *revertGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descReverts, descTrials, descRestored} {
		out <- d
	}
}

func (g *revertGauges) Collect(out chan<- prometheus.Metric) {
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
		out <- prometheus.MustNewConstMetric(descReverts, prometheus.CounterValue, float64(n), outcome)
	}
	out <- prometheus.MustNewConstMetric(descTrials, prometheus.GaugeValue, float64(s.Trials))
	out <- prometheus.MustNewConstMetric(descRestored, prometheus.GaugeValue, truth(s.InForce))
}
