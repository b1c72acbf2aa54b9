package doctor

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/hold"
)

// checkClients says what clients may hold that is dangerous, with the
// descriptors that this process, and so probably the gateway, may open.
func checkClients(r *Report, c config.Config, b hold.Budget) {
	v := c.Clients
	note := func(setting string, value any, wrong, set string) {
		r.add(Finding{Setting: setting, Value: fmt.Sprint(value), Level: Note, Wrong: wrong, Set: set})
	}
	if err := daemon.CheckBudget(v, b); err != nil {
		r.add(Finding{
			Setting: "clients.max_connections",
			Value:   fmt.Sprint(v.MaxConnections),
			Level:   Failure,
			Wrong:   err.Error(),
			Set:     "0, or a higher ulimit -n",
		})
	}
	total := v.MaxConnections
	if total == 0 {
		total = b.Clients
	}
	if total < 256 {
		note("clients.max_connections", total, fmt.Sprintf("few clients at a time: the process may open %d descriptors",
			b.Descriptors), "ulimit -n to 65536 or more (LimitNOFILE of systemd)")
	}
	if v.MaxPerAddress > total/2 {
		note("clients.max_connections_per_address", v.MaxPerAddress,
			fmt.Sprintf("two addresses can hold all of the %d connections", total), "an eighth of them, or 0")
	}
	if v.MaxRequestsPerAddress > total/2 {
		note("clients.max_requests_per_address", v.MaxRequestsPerAddress,
			fmt.Sprintf("two addresses can have all of the %d requests under way", total), "an eighth of them, or 0")
	}
	if v.Patience > 2*time.Minute {
		note("clients.patience", v.Patience, "a client that does nothing holds a request for as long", "20s")
	}
	if v.MinRate < 100 {
		note("clients.min_rate", v.MinRate, "a client may take hours over a body of a megabyte", "500")
	}
	if v.HeadTimeout > time.Minute {
		note("clients.head_timeout", v.HeadTimeout,
			"a client that sends no request holds a connection for as long", "10s")
	}
	if v.StreamIdle > 24*time.Hour {
		note("clients.stream_idle_timeout", v.StreamIdle, "clients that are long gone hold connections for as long",
			"10m, with pings in your WebSockets")
	}
	if v.MaxHeaders > 1000 {
		note("clients.max_headers", v.MaxHeaders, "thousands of fields cost more than many requests", "128")
	}
	if v.MaxTargetBytes > 64<<10 {
		note("clients.max_target_bytes", v.MaxTargetBytes, "long paths cost more than many requests", "8KiB")
	}
}

// checkEngine says what reads requests, and why.
func checkEngine(r *Report, c config.Config) {
	if chosen, why := c.ChosenEngine(); c.Gateway() {
		r.add(Finding{Setting: "engine", Value: chosen + ": " + why, Level: OK})
	}
}
