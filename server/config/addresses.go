package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/identity"
)

// ClientAddress says how the client's address is found behind proxies; see
// docs/addresses.md.
type ClientAddress struct {
	// Strategy is trusted_ranges (default), trusted_count or single_header.
	Strategy string `yaml:"strategy"`

	// Proxies is how many proxies stand in front, for trusted_count.
	Proxies int `yaml:"proxies"`

	// Header holds the client's address, for single_header.
	Header string `yaml:"header"`
}

// ProxyProtocol says from whom the PROXY protocol is accepted on the gateway's
// listener.
type ProxyProtocol struct {
	// From are the networks of the balancers that begin each connection with a
	// PROXY header, version 1 or 2. Default none: the protocol is off.
	From []string `yaml:"from"`

	// Required closes every connection without such a header from such a
	// network. Default true.
	Required bool `yaml:"required"`

	// Timeout bounds the wait for the header. Default 5s.
	Timeout time.Duration `yaml:"timeout"`
}

// On reports whether anybody may send the header.
func (p ProxyProtocol) On() bool { return len(p.From) > 0 }

func defaultProxyProtocol() ProxyProtocol {
	return ProxyProtocol{Required: true, Timeout: 5 * time.Second}
}

// addresses checks all that says where a request comes from.
func (c *checker) addresses(conf *Config) {
	c.prefixes("trusted_proxies", conf.TrustedProxies)
	c.prefixes("proxy_protocol.from", conf.ProxyProtocol.From)
	if p, d := conf.ProxyProtocol, defaultProxyProtocol(); !p.On() && (p.Required != d.Required ||
		p.Timeout != d.Timeout) {
		c.wrong("proxy_protocol.from", "", "the networks of the balancers: without them the protocol is off")
	}
	c.duration("proxy_protocol.timeout", conf.ProxyProtocol.Timeout, time.Millisecond, time.Minute)
	c.between("ipv4_prefix", int64(conf.IPv4Prefix), 1, 32)
	for i, value := range conf.NAT64 {
		if _, err := ParseNAT64(value); err != nil {
			c.wrong("nat64_prefixes", value, err.Error())
		}
		if slices.Contains(conf.NAT64[:i], value) {
			c.wrong("nat64_prefixes", value, "each prefix once")
		}
	}
	if len(conf.NAT64) > 16 {
		c.wrong("nat64_prefixes", fmt.Sprint(len(conf.NAT64), " prefixes"), "16 or fewer")
	}
	for i, file := range conf.RegionFiles {
		if file == "" || slices.Contains(conf.RegionFiles[:i], file) {
			c.wrong("region_files", file, "the path of a file, each once")
		}
	}
	c.strategy(conf)
}

func (c *checker) strategy(conf *Config) {
	how := conf.ClientAddress
	strategy, err := identity.ParseStrategy(how.Strategy)
	if err != nil {
		c.wrong("client_address.strategy", how.Strategy, "trusted_ranges, trusted_count or single_header")
		return
	}
	switch {
	case strategy == identity.TrustedCount:
		c.between("client_address.proxies", int64(how.Proxies), 1, 64)
	case how.Proxies != 0:
		c.wrong("client_address.proxies", fmt.Sprint(how.Proxies), "none: only strategy trusted_count counts proxies")
	}
	switch {
	case strategy != identity.SingleHeader && how.Header != "":
		c.wrong("client_address.header", how.Header,
			"none: only strategy single_header reads it; forwarded_header is for the others")
	case strategy == identity.SingleHeader:
		if err := identity.CheckClientHeader(how.Header); err != nil {
			c.wrong("client_address.header", how.Header, err.Error())
		}
		if strings.EqualFold(how.Header, conf.Keys.Header) {
			c.wrong("client_address.header", how.Header, "another one than api_keys.header")
		}
		if len(conf.TrustedProxies) == 0 {
			c.wrong("trusted_proxies", "",
				fmt.Sprintf("the networks whose %s is true: from anybody else it is the client's own choice",
					how.Header))
		}
	}
}

func (c *checker) prefixes(field string, values []string) {
	for _, value := range values {
		prefix, err := ParsePrefix(value)
		switch {
		case err != nil:
			c.wrong(field, value, "a network such as 10.0.0.0/8 or an address")
		case prefix.Bits() == 0:
			c.wrong(field, value, "the networks of your proxies: whoever is trusted chooses its own address")
		}
	}
}

// ParsePrefixes reads networks that were checked.
func ParsePrefixes(values []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, len(values))
	for i, value := range values {
		var err error
		if prefixes[i], err = ParsePrefix(value); err != nil {
			return nil, err
		}
	}
	return prefixes, nil
}

// ParseNAT64 reads a prefix behind which a translator puts IPv4 addresses. The
// error says what would be right.
func ParseNAT64(value string) (netip.Prefix, error) {
	prefix, _ := netip.ParsePrefix(value)
	return prefix, identity.CheckNAT64(prefix)
}

// Warning is a setting that is right by itself and dangerous all the same.
type Warning struct {
	Field, Value string
	Wrong        string // what follows from it
	Strangers    bool   // whoever likes chooses its own address
}

func (w Warning) String() string { return fmt.Sprintf("%s %s: %s", w.Field, w.Value, w.Wrong) }

// Warnings lists what is to be set with open eyes only. c is complete.
func (c *Config) Warnings() (all []Warning) {
	warn := func(field string, value any, format string, args ...any) {
		all = append(all, Warning{Field: field, Value: fmt.Sprint(value), Wrong: fmt.Sprintf(format, args...)})
	}
	trusted, _ := ParsePrefixes(c.TrustedProxies)
	balancers, _ := ParsePrefixes(c.ProxyProtocol.From)
	if how := c.ClientAddress; how.Strategy == identity.TrustedCount.String() && len(trusted) == 0 {
		warn("client_address.strategy", how.Strategy, "trusted_proxies is empty, so whoever reaches this listener "+
			"other than through %d proxies chooses its own address", how.Proxies)
	}
	lists := []struct {
		field    string
		prefixes []netip.Prefix
	}{{"trusted_proxies", trusted}, {"proxy_protocol.from", balancers}}
	asking := c.Decisions.Lists()
	for _, field := range slices.Sorted(maps.Keys(asking)) {
		lists = append(lists, lists[0])
		lists[len(lists)-1].field = field
		lists[len(lists)-1].prefixes, _ = ParsePrefixes(asking[field])
	}
	for _, list := range lists {
		for _, p := range list.prefixes {
			if p.Addr().IsLoopback() {
				continue
			}
			if p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16 {
				warn(list.field, p, "more than any network of proxies: whoever has one of its addresses chooses "+
					"whose budget it spends")
				all[len(all)-1].Strangers = true
			}
		}
	}
	for _, b := range balancers {
		if i := slices.IndexFunc(trusted, b.Overlaps); i >= 0 {
			warn("proxy_protocol.from", b, "trusted_proxies has %v: the forwarding headers of a connection whose "+
				"client the balancer does not name are believed as the balancer's own", trusted[i])
		}
	}
	if c.ProxyProtocol.On() && !c.ProxyProtocol.Required {
		warn("proxy_protocol.required", false,
			"whoever reaches this listener past the balancer is served, as its own address")
	}
	if c.IPv6Prefix > 64 {
		warn("ipv6_prefix", c.IPv6Prefix, "whoever has a /64, as every host has, has %s budgets", many(c.IPv6Prefix-64))
	}
	if c.IPv6Prefix < 32 {
		warn("ipv6_prefix", c.IPv6Prefix, "all customers of a provider share one budget")
	}
	if c.IPv4Prefix < 24 {
		warn("ipv4_prefix", c.IPv4Prefix, "%s addresses share one budget", many(32-c.IPv4Prefix))
	}
	c.AutoRevert.warn(warn)
	c.Decisions.warn(c, warn)
	return all
}

func many(bits int) string {
	if bits > 32 {
		return fmt.Sprintf("2^%d", bits)
	}
	return fmt.Sprint(uint64(1) << bits)
}
