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
	upstream           int // connections to the API, at the start
	most               int // connections of those who ask in each way
	budget             hold.Budget
}

// mostSilence is how long a request may be served without a byte in either direction.
func mostSilence(c *config.Config) time.Duration {
	return c.UpstreamTimeout + c.MaxWait + c.Clients.Patience
}

// newHolds divides the descriptors of this process.
func (d *Daemon) newHolds() (h holds, err error) {
	budget := hold.Divide(hold.Descriptors())
	if err := CheckBudget(d.conf.Clients, budget); err != nil {
		return h, err
	}
	o, err := d.gateHold(&d.conf, budget)
	if err != nil {
		return h, err
	}
	h.upstream, h.budget = o.MaxConnections, budget
	h.gate = hold.New(o)

	// Operators' requests are as slow as a database, and come from few addresses.
	o = d.adminHold(o, budget)
	h.admin = hold.New(o)

	// Those who ask are few, and each asks for many clients.
	most := 2 * budget.Clients
	if d.conf.Gateway() { // whose clients may need two each
		most = max(1, budget.Admin/2, 2*(budget.Clients-h.upstream))
	}
	h.most = max(1, most/4) // by HTTP, and as many by gRPC, as clients of Redis and as HAProxy
	h.asked = hold.New(d.askedHold(o, h.most))
	return h, nil
}

// gateHold is what clients of the gateway may hold.
func (d *Daemon) gateHold(conf *config.Config, budget hold.Budget) (hold.Options, error) {
	c := conf.Clients
	balancers, err := config.ParsePrefixes(conf.ProxyProtocol.From)
	if err != nil {
		return hold.Options{}, err
	}
	o := hold.Options{
		MaxConnections: c.MaxConnections, MaxPerAddress: c.MaxPerAddress,
		MaxRequestsPerAddress: c.MaxRequestsPerAddress,
		MaxStreams:            c.MaxStreams, MaxHeaders: c.MaxHeaders, MaxHeaderBytes: int(c.MaxHeaderBytes),
		MaxTarget:   int(c.MaxTargetBytes),
		HeadTimeout: c.HeadTimeout, Idle: c.IdleTimeout, Pace: hold.Pace{Patience: c.Patience, MinRate: c.MinRate},
		// Silence that the gateway imposes itself is nobody's fault.
		StreamIdle: max(c.StreamIdle, mostSilence(conf)),
		Plain:      !conf.TLS.On() && !conf.ProxyProtocol.On(), Log: d.log.With("listener", "gateway"),
		Group: func(a netip.Addr) netip.Prefix { return d.parts.who().Group(a) },
		Exempt: func(a netip.Addr) bool {
			return d.parts.who().Trusts(a) || networks(balancers).have(a)
		},
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = budget.Clients
		if conf.Decisions.On() {
			o.MaxConnections = max(1, budget.Clients*3/4)
		}
	}
	share := min(budget.PerAddress, max(1, o.MaxConnections/8))
	if o.MaxPerAddress == 0 {
		o.MaxPerAddress = share
	}
	if o.MaxRequestsPerAddress == 0 {
		o.MaxRequestsPerAddress = share
	}
	o.MaxRequests = o.MaxConnections
	return o, nil
}

// adminHold is what operators may hold, where clients of the gateway may hold o.
func (d *Daemon) adminHold(o hold.Options, budget hold.Budget) hold.Options {
	o.MaxConnections, o.MaxPerAddress = budget.Admin, budget.Admin
	o.MaxRequests, o.MaxRequestsPerAddress = budget.Admin, budget.Admin
	o.Plain, o.Log = true, d.log.With("listener", "admin")
	o.Group = func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	o.Exempt = func(netip.Addr) bool { return false }
	return o
}

// askedHold is what those who ask over HTTP may hold, so many connections at most, where operators may hold o.
func (d *Daemon) askedHold(o hold.Options, most int) hold.Options {
	o.MaxConnections, o.MaxPerAddress, o.MaxRequests, o.MaxRequestsPerAddress = most, most, most, most
	o.Plain, o.Log = d.conf.Decisions.TLS == config.DecisionsTLS{}, d.log.With("listener", "decisions")
	return o
}

// prepareHolds has use put in force what clients may hold by a configuration, for what comes from
// then on. It returns how many connections to the API that takes.
func (d *Daemon) prepareHolds(conf *config.Config) (upstream int, use func(), err error) {
	h := &d.holds
	if err := CheckBudget(conf.Clients, h.budget); err != nil {
		return 0, nil, err
	}
	o, err := d.gateHold(conf, h.budget)
	if err != nil {
		return 0, nil, err
	}
	// Those who ask in other ways than HTTP keep what they were given at the start.
	if most := max(h.upstream, h.budget.Clients-2*h.most); conf.Decisions.On() && o.MaxConnections > most {
		return 0, nil, fmt.Errorf(
			"clients.max_connections is %d, want at most %d, or a restart: "+
				"those who ask for decisions have the other descriptors of this process",
			o.MaxConnections,
			most,
		)
	}
	return o.MaxConnections, func() {
		h.gate.Use(o)
		o := d.adminHold(o, h.budget)
		h.admin.Use(o)
		h.asked.Use(d.askedHold(o, h.most))
	}, nil
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
