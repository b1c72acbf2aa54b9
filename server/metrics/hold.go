package metrics

import (
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

func (g *holdGauges) write(out series) {
	if g.stats == nil {
		return
	}
	for listener, s := range g.stats() {
		out.gauge(descConnections, float64(s.Connections), listener)
		out.gauge(descMaxConnections, float64(s.MaxConnections), listener)
		out.gauge(descConnAddresses, float64(s.Addresses), listener)
		out.gauge(descUnderWay, float64(s.Requests), listener)
		for reason, n := range s.Ended {
			out.count(descHeld, n, listener, reason)
		}
	}
}
