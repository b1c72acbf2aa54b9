package daemon

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/hold"
)

// holds bounds what clients hold of each listener. Each has connections of its
// own, so that those of the gateway never keep the others from answering.
type holds struct {
	gate, admin, asked *hold.Limiter
	upstream           int           // connections to the API
	silence            time.Duration // that a request may be served in
	most               int           // connections of those who ask in each other way
}

// mostSilence is how long a request may be served without a byte in either direction.
func mostSilence(c *config.Config) time.Duration {
	return c.UpstreamTimeout + c.MaxWait + c.Clients.Patience
}

// bears says whether requests that take as long as c lets them are not cut off for their silence, whose bound stays.
func (h *holds) bears(c *config.Config) error {
	if need := mostSilence(c); need > h.silence {
		return fmt.Errorf("upstream_timeout is %v and max_wait is %v: with clients.patience that is %v, want at "+
			"most %v, after which a silent connection ends, or a restart",
			c.UpstreamTimeout, c.MaxWait, need, h.silence)
	}
	return nil
}

// newHolds divides the descriptors of this process.
func (d *Daemon) newHolds() (h holds, err error) {
	c, budget := d.conf.Clients, hold.Divide(hold.Descriptors())
	if err := CheckBudget(c, budget); err != nil {
		return h, err
	}
	balancers, err := config.ParsePrefixes(d.conf.ProxyProtocol.From)
	if err != nil {
		return h, err
	}
	o := hold.Options{
		MaxConnections: c.MaxConnections, MaxPerAddress: c.MaxPerAddress,
		MaxRequestsPerAddress: c.MaxRequestsPerAddress,
		MaxStreams:            c.MaxStreams, MaxHeaders: c.MaxHeaders, MaxHeaderBytes: int(c.MaxHeaderBytes),
		MaxTarget:   int(c.MaxTargetBytes),
		HeadTimeout: c.HeadTimeout, Idle: c.IdleTimeout, Pace: hold.Pace{Patience: c.Patience, MinRate: c.MinRate},
		// Silence that the gateway imposes itself is nobody's fault.
		StreamIdle: max(c.StreamIdle, mostSilence(&d.conf)),
		Plain:      !d.conf.TLS.On() && !d.conf.ProxyProtocol.On(), Log: d.log.With("listener", "gateway"),
		Group: func(a netip.Addr) netip.Prefix { return d.parts.who().Group(a) },
		Exempt: func(a netip.Addr) bool {
			if d.parts.who().Trusts(a) {
				return true
			}
			for _, b := range balancers {
				if b.Contains(a) {
					return true
				}
			}
			return false
		},
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = budget.Clients
		if d.conf.Decisions.On() {
			o.MaxConnections = max(1, budget.Clients*3/4)
		}
	}
	h.silence = o.StreamIdle
	share := min(budget.PerAddress, max(1, o.MaxConnections/8))
	if o.MaxPerAddress == 0 {
		o.MaxPerAddress = share
	}
	if o.MaxRequestsPerAddress == 0 {
		o.MaxRequestsPerAddress = share
	}
	o.MaxRequests = o.MaxConnections
	h.gate, h.upstream = hold.New(o), o.MaxConnections

	// Operators' requests are as slow as a database, and come from few addresses.
	o.MaxConnections, o.MaxPerAddress, o.MaxRequests, o.MaxRequestsPerAddress = budget.Admin, budget.Admin,
		budget.Admin, budget.Admin
	o.Plain, o.Log = true, d.log.With("listener", "admin")
	o.Group = func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	o.Exempt = func(netip.Addr) bool { return false }
	h.admin = hold.New(o)

	// Those who ask are few, and each asks for many clients.
	most := 2 * budget.Clients
	if d.conf.Gateway() { // whose clients may need two each
		most = max(1, budget.Admin/2, 2*(budget.Clients-h.upstream))
	}
	most = max(1, most/4) // by HTTP, and as many by gRPC, as clients of Redis and as HAProxy
	h.most, o.MaxConnections, o.MaxPerAddress, o.MaxRequests, o.MaxRequestsPerAddress = most, most, most, most, most
	o.Plain, o.Log = d.conf.Decisions.TLS == config.DecisionsTLS{}, d.log.With("listener", "decisions")
	h.asked = hold.New(o)
	return h, nil
}

// CheckBudget says whether the descriptors suffice for what is configured.
func CheckBudget(c config.Clients, b hold.Budget) error {
	if c.MaxConnections > b.Clients {
		return fmt.Errorf("clients.max_connections is %d, want at most %d: the process may open %d descriptors "+
			"(ulimit -n), keeps some for itself, and each client may need another one to the API",
			c.MaxConnections, b.Clients, b.Descriptors)
	}
	return nil
}

// heldStats tells of each listener that is open what clients hold of it.
func (d *Daemon) heldStats() map[string]hold.Stats {
	all := map[string]hold.Stats{"admin": d.holds.admin.Stats()}
	if d.conf.Gateway() {
		all["gateway"] = d.holds.gate.Stats()
	}
	if d.conf.Decisions.Listen != "" {
		all["decisions"] = d.holds.asked.Stats()
	}
	return all
}

// held puts l behind a Limiter, if it is open.
func (l *listener) held(by *hold.Limiter) {
	if l.Listener != nil {
		l.Listener = by.Listen(l.Listener)
		by.Prepare(l.server)
	}
}
