package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/policy"
)

// Priority says of which class requests are, beside what rules say of those that they apply to: critical, high, normal
// or low.
type Priority struct {
	// Endpoints are the classes of requests to endpoints, such as "GET /v1/reports": low; UNKNOWN is for those that
	// match none. Default none.
	Endpoints map[string]string `yaml:"endpoints"`

	// Tiers are the classes of callers by their tiers, such as gold: high. Default none.
	Tiers map[string]string `yaml:"tiers"`

	// Claim is the claim, one of tokens.claims, by which a token says the class of its holder's requests. Default none.
	Claim string `yaml:"claim"`
}

func (c *checker) priority(conf *Config) {
	classes := func(setting string, said map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(said)) {
			field := setting + "[" + name + "]"
			if name == "" || strings.TrimSpace(name) != name {
				c.wrong(field, name, "a name")
			}
			if _, ok := policy.ParseClass(said[name]); !ok {
				c.wrong(field, said[name], "critical, high, normal or low")
			}
		}
	}
	classes("priority.endpoints", conf.Priority.Endpoints)
	classes("priority.tiers", conf.Priority.Tiers)
	if claim := conf.Priority.Claim; claim != "" && !slices.Contains(conf.Tokens.Claims, claim) {
		want := "one of tokens.claims, of which there are none"
		if len(conf.Tokens.Claims) > 0 {
			want = fmt.Sprintf("one of tokens.claims: %s", strings.Join(conf.Tokens.Claims, ", "))
		}
		c.wrong("priority.claim", claim, want)
	}
}
