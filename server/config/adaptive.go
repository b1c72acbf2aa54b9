package config

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

// Adaptive are endpoints whose rates are lowered while the API behind is slow or fails. Endpoints and SLO are required.
type Adaptive struct {
	// Endpoints are some of openapi or routes: "GET /v1/search".
	Endpoints []string `yaml:"endpoints"`

	// SLO is the time within which 95 of 100 answers of such an endpoint are to begin.
	SLO time.Duration `yaml:"slo"`

	// Floor is the least part of what rules say that is in force, whatever the API does. Default 0.1.
	Floor float64 `yaml:"floor"`

	// AtOnce has limits on how many requests are under way follow the API as well, those of scope local. Default false.
	AtOnce bool `yaml:"at_once"`
}

// Settings are what a is for each of its endpoints.
func (a *Adaptive) Settings() adaptive.Settings {
	return adaptive.Settings{SLO: a.SLO, Floor: int(a.Floor*adaptive.Whole + 0.5), AtOnce: a.AtOnce}
}

// MaxAdaptive is at how many endpoints rates may be lowered: each is a value of a metric's label.
const MaxAdaptive = 256

// adaptive checks the list and fills in what its entries leave out; whether the registry has the endpoints is found
// when it is built.
func (c *checker) adaptive(conf *Config) {
	seen := map[string]bool{}
	for n := range conf.Adaptive {
		a := &conf.Adaptive[n]
		field := func(name string) string { return fmt.Sprintf("adaptive[%d].%s", n, name) }
		if len(a.Endpoints) == 0 {
			c.wrong(field("endpoints"), "", "an endpoint at least, such as GET /v1/search")
		}
		for _, endpoint := range a.Endpoints {
			if seen[endpoint] {
				c.wrong(field("endpoints"), endpoint, "each endpoint once")
			}
			seen[endpoint] = true
		}
		fill(&a.Floor, 0.1)
		c.duration(field("slo"), a.SLO, time.Millisecond, 30*time.Second)
		if !(a.Floor >= 0.01 && a.Floor <= 1) {
			c.wrong(field("floor"), fmt.Sprint(a.Floor), "0.01 to 1")
		}
	}
	if len(seen) > MaxAdaptive {
		c.wrong("adaptive", fmt.Sprintf("%d endpoints", len(seen)), fmt.Sprintf("at most %d", MaxAdaptive))
	}
	if len(conf.Adaptive) > 0 && !conf.Gateway() {
		c.wrong("adaptive", fmt.Sprintf("%d endpoints", len(seen)),
			"nothing: with listen none, nobody sees how long the API takes")
	}
}
