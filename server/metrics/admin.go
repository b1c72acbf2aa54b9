package metrics

import (
	"strconv"
	"time"
)

// AdminTokenStatus is the state of the admin tokens in force.
type AdminTokenStatus struct {
	Tokens   int
	Failures uint64
	Stale    time.Duration // since they were last known to be current
}

// ObserveCall counts a call of the admin listener. Both labels have few values:
// operation is one of a table, and of status only the class is told.
func (m *Meter) ObserveCall(operation string, status int) {
	m.calls.WithLabelValues(operation, strconv.Itoa(status/100)+"xx").Inc()
}

// CallUnrecorded counts a call that changed nothing and could not be written
// down.
func (m *Meter) CallUnrecorded() { m.unrecorded.Inc() }

var (
	descAdminTokens        = describe("admin_tokens", "Admin tokens in force, revoked and expired ones too.")
	descAdminTokenFailures = describe("admin_token_reload_failures_total",
		"Reloads of the admin tokens that failed and left the last good ones in force.")
	descAdminTokensStale = describe("admin_tokens_staleness_seconds",
		"Time since the admin tokens were last known to be current.")
)

// adminGauges reads the state of the admin tokens when the page is asked for.
type adminGauges struct{ status func() AdminTokenStatus }

func (g *adminGauges) write(out series) {
	if g.status == nil {
		return
	}
	s := g.status()
	out.gauge(descAdminTokens, float64(s.Tokens))
	out.count(descAdminTokenFailures, s.Failures)
	out.gauge(descAdminTokensStale, s.Stale.Seconds())
}
