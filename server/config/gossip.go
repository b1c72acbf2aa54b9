package config

import (
	"fmt"
	"net"
	"reflect"
	"strconv"
	"time"
)

// Gossip has gateways keep limits of scope gossip in step without a store. See docs/gossip.md.
type Gossip struct {
	// Listen is the address, HOST:PORT, where other gateways are heard, by UDP and
	// TCP. Default none: such limits are local.
	Listen string `yaml:"listen"`

	// Advertise is the address that others are told. Default the one of Listen, or
	// this machine's where Listen is every address.
	Advertise string `yaml:"advertise"`

	// Join are addresses of other gateways, HOST:PORT; of a name all its addresses
	// are tried. Default none: this one waits for others to join.
	Join []string `yaml:"join"`

	// SecretFile holds the secret that all gateways share: buckets are named under
	// it, and what they tell each other is encrypted. Default store.secret_file, or
	// the secret_file of the whole.
	SecretFile string `yaml:"secret_file"`

	// Interval is how often each tells all others what it admitted, the same at all
	// gateways. Default 50ms.
	Interval time.Duration `yaml:"interval"`

	// Forget is how long a gateway that fell silent counts: its part of every limit
	// is left to it. Default 10m.
	Forget time.Duration `yaml:"forget"`

	// MostPercent is how much of a limit one other gateway is believed to have
	// admitted. Default 100.
	MostPercent int `yaml:"most_percent"`
}

// On reports whether gateways tell each other what they admitted.
func (g *Gossip) On() bool { return g.Listen != "" }

func defaultGossip() Gossip {
	return Gossip{Interval: 50 * time.Millisecond, Forget: 10 * time.Minute, MostPercent: 100}
}

func (c *checker) gossip(g Gossip) {
	if !g.On() {
		if !reflect.DeepEqual(g, defaultGossip()) {
			c.wrong("gossip.listen", "",
				"the address where other gateways are heard, such as 10.0.0.5:7946, or gossip left out")
		}
		return
	}
	address := func(setting, value string) {
		_, port, err := net.SplitHostPort(value)
		if _, errPort := strconv.ParseUint(port, 10, 16); err != nil || errPort != nil {
			c.wrong(setting, value, "HOST:PORT such as 10.0.0.5:7946")
		}
	}
	address("gossip.listen", g.Listen)
	if g.Advertise != "" {
		address("gossip.advertise", g.Advertise)
	}
	for i, a := range g.Join {
		address(fmt.Sprintf("gossip.join[%d]", i), a)
	}
	c.duration("gossip.interval", g.Interval, 10*time.Millisecond, 10*time.Second)
	c.duration("gossip.forget", g.Forget, 10*time.Second, 24*time.Hour)
	c.between("gossip.most_percent", int64(g.MostPercent), 1, 100)
}
