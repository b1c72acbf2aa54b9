package metrics

var (
	descTold = describe("fleet_told",
		"1 if this replica's last word to the fleet was written down, 0 if others cannot see how it is.")
	descTellings = describe("fleet_tell_failures_total", "Words to the fleet that could not be written down.")
)

// fleetGauges tells of this replica in the fleet. What other replicas are is
// asked of the database, by headgate fleet, and not by every scrape of each.
type fleetGauges struct{ told func() (bool, uint64) }

func (g *fleetGauges) write(out series) {
	if g.told == nil {
		return
	}
	ok, failures := g.told()
	out.gauge(descTold, truth(ok))
	out.count(descTellings, failures)
}
