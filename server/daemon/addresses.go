package daemon

import (
	"net"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/balancer"
	"github.com/headgate-io/headgate/server/config"
)

// addressOptions is how the client's address is found.
func addressOptions(c config.Config) (o identity.Options, err error) {
	if o.TrustedProxies, err = config.ParsePrefixes(c.TrustedProxies); err != nil {
		return o, err
	}
	if o.Strategy, err = identity.ParseStrategy(c.ClientAddress.Strategy); err != nil {
		return o, err
	}
	for _, value := range c.NAT64 {
		prefix, err := config.ParseNAT64(value)
		if err != nil {
			return o, err
		}
		o.NAT64 = append(o.NAT64, prefix)
	}
	o.ForwardedHeader, o.ProxyCount, o.ClientHeader = c.ForwardedHeader, c.ClientAddress.Proxies, c.ClientAddress.Header
	o.IPv4Bits, o.IPv6Bits = c.IPv4Prefix, c.IPv6Prefix
	return o, nil
}

// balanced lets balancers name their clients, if there are any. It goes right
// around the socket: TLS, if any, comes behind the PROXY header.
func (d *Daemon) balanced(l net.Listener) (net.Listener, error) {
	if l == nil || !d.conf.ProxyProtocol.On() {
		return l, nil
	}
	o, err := d.balancerOptions(d.conf.ProxyProtocol)
	if err != nil {
		return l, err
	}
	d.balancer = balancer.Listen(l, o)
	return d.balancer, nil
}

func (d *Daemon) balancerOptions(p config.ProxyProtocol) (balancer.Options, error) {
	from, err := config.ParsePrefixes(p.From)
	return balancer.Options{From: from, Required: p.Required, Timeout: p.Timeout, Named: d.holds.gate.Name}, err
}

// prepareBalancers has use believe others, where anybody is.
func (d *Daemon) prepareBalancers(p config.ProxyProtocol) (use func(), err error) {
	o, err := d.balancerOptions(p)
	return func() {
		if d.balancer != nil {
			d.balancer.Use(o)
		}
	}, err
}

// balancerStats tells the metrics of l, which may be nil.
func balancerStats(l *balancer.Listener) func() (uint64, map[string]uint64) {
	if l == nil {
		return nil
	}
	return func() (uint64, map[string]uint64) { return l.Accepted(), l.Refusals() }
}
