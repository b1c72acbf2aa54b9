package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-io/headgate/server/hold"
)

var (
	descConnections    = describe("connections", "Connections of clients.", "listener")
	descMaxConnections = describe("connections_max", "Connections of clients that there may be.", "listener")
	descConnAddresses  = describe("connections_addresses", "Client addresses that hold a connection.", "listener")
	descUnderWay       = describe("requests_under_way", "Requests under way.", "listener")
	descHeld           = describe("held_too_much_total",
		"Connections and requests that were refused or ended for what they held.", "listener", "reason")
)

// holdGauges reads what clients hold when the page is asked for.
type holdGauges struct{ stats func() map[string]hold.Stats }

func (g *holdGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descConnections, descMaxConnections, descConnAddresses,
		descUnderWay, descHeld} {
		out <- d
	}
}

func (g *holdGauges) Collect(out chan<- prometheus.Metric) {
	if g.stats == nil {
		return
	}
	for listener, s := range g.stats() {
		gauge := func(d *prometheus.Desc, v int) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), listener)
		}
		gauge(descConnections, s.Connections)
		gauge(descMaxConnections, s.MaxConnections)
		gauge(descConnAddresses, s.Addresses)
		gauge(descUnderWay, s.Requests)
		for reason, n := range s.Ended {
			out <- prometheus.MustNewConstMetric(descHeld, prometheus.CounterValue, float64(n), listener, reason)
		}
	}
}
