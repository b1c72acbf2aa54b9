package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	descTold = describe("fleet_told",
		"1 if this replica's last word to the fleet was written down, 0 if others cannot see how it is.")
	descTellings = describe("fleet_tell_failures_total", "Words to the fleet that could not be written down.")
)

// fleetGauges tells of this replica in the fleet. What other replicas are is
// asked of the database, by headgate fleet, and not by every scrape of each.
type fleetGauges struct{ told func() (bool, uint64) }

func (g *fleetGauges) Describe(out chan<- *prometheus.Desc) {
	out <- descTold
	out <- descTellings
}

func (g *fleetGauges) Collect(out chan<- prometheus.Metric) {
	if g.told == nil {
		return
	}
	ok, failures := g.told()
	out <- prometheus.MustNewConstMetric(descTold, prometheus.GaugeValue, truth(ok))
	out <- prometheus.MustNewConstMetric(descTellings, prometheus.CounterValue, float64(failures))
}
