package config_test

import (
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

func TestDecisions(t *testing.T) {
	type c = config.Config
	for name, tc := range map[string]struct {
		change func(*c)
		want   string
	}{
		"beside a gateway": {func(c *c) { c.Decisions.Listen = "127.0.0.1:8082" }, ""},
		"alone": {func(c *c) { c.Listen, c.Upstream, c.Decisions.Listen = "none", "", "127.0.0.1:8082" },
			""},
		"alone, by gRPC": {func(c *c) { c.Listen, c.Upstream, c.Decisions.GRPC = "none", "", "127.0.0.1:8083" }, ""},
		"strict, alone": {func(c *c) { c.Decisions.Scope = "strict" },
			`decisions.scope is "strict", want store.redis beside it, or local`},
		"no scope": {func(c *c) { c.Decisions.Scope = "global" },
			`decisions.scope is "global", want local or strict`},
		"nobody asks": {func(c *c) { c.Decisions.RateLimit = []string{"a.yaml"} },
			`decisions.ratelimit is "a.yaml", want decisions.grpc beside it, where Envoy asks`},
		"descriptors alone": {func(c *c) {
			c.Listen, c.Upstream, c.Unknown, c.Decisions.GRPC, c.Decisions.RateLimit = "none", "", "reject",
				"127.0.0.1:8083", []string{"a.yaml"}
		}, ""},
		"limits in questions of nobody": {func(c *c) {
			c.Decisions.RateLimitOverrides = []string{"127.0.0.1"}
		}, `decisions.ratelimit_overrides is "127.0.0.1", want decisions.ratelimit beside it: nobody asks about descriptors`},
		"limits in questions of strangers": {func(c *c) {
			c.Decisions.GRPC, c.Decisions.RateLimit, c.Decisions.RateLimitOverrides = "127.0.0.1:8083",
				[]string{"a.yaml"}, []string{"10.0.0.0/8", "127.0.0.1", "x"}
		}, `decisions.ratelimit_overrides is "x", want a network such as 10.0.0.0/8 or an address` + "\n" +
			`decisions.ratelimit_overrides is "10.0.0.0/8", want a network that decisions.from, or grpc_from, has too: nobody else may ask`},
		"clients of Redis alone": {func(c *c) {
			c.Listen, c.Upstream, c.Unknown, c.Decisions.RESP = "none", "", "reject", "127.0.0.1:8084"
		}, ""},
		"a password for nobody": {func(c *c) { c.Decisions.RESPPasswordFile = "f" },
			`decisions.resp_password_file is "f", want decisions.resp beside it, where clients of Redis ask`},
		"both on one port": {func(c *c) {
			c.Decisions.Listen, c.Decisions.GRPC = "127.0.0.1:8082", "127.0.0.1:8082"
		}, `decisions.grpc is "127.0.0.1:8082", want another address than decisions.listen`},
		"ports of the system": {func(c *c) {
			c.Listen, c.Admin, c.Decisions.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		}, ""},
		"nothing to do": {func(c *c) {
			c.Listen, c.Upstream = "none", ""
		}, `listen is "none", want an address, or one of decisions.listen, grpc, resp and spoe beside it: there would be nothing to do`},
		"an API to nobody": {func(c *c) { c.Listen, c.Decisions.Listen = "none", "127.0.0.1:8082" },
			`upstream is "http://127.0.0.1:9000", want nothing: with listen none, no request is passed on`},
		"no upstream": {func(c *c) { c.Upstream, c.Decisions.Listen = "", "127.0.0.1:8082" },
			`upstream is "", want the URL of the API to protect, such as http://127.0.0.1:9000`},
		"the gateway's": {func(c *c) { c.Decisions.Listen = c.Listen },
			`decisions.listen is "127.0.0.1:8080", want another address than listen`},
		"the admin's": {func(c *c) { c.Decisions.Listen = c.Admin },
			`decisions.listen is "127.0.0.1:8081", want another address than admin`},
		"a port that there is not": {func(c *c) { c.Listen = "127.0.0.1:65536" },
			`listen is "127.0.0.1:65536", want a port from 0 to 65535 behind the host`},
		"no port": {func(c *c) { c.Decisions.Listen = "127.0.0.1" },
			`decisions.listen is "127.0.0.1", want HOST:PORT such as 127.0.0.1:8080`},
		"nobody may ask": {func(c *c) { c.Decisions.Listen, c.Decisions.From = "127.0.0.1:8082", nil },
			`decisions.from is "", want the networks of the proxies that may ask`},
		"everybody may ask": {func(c *c) {
			c.Decisions.From = []string{"0.0.0.0/0"}
		}, `decisions.from is "0.0.0.0/0", want the networks of your proxies: whoever is trusted chooses its own address`},
		"a list for nobody": {func(c *c) { c.Decisions.RESPFrom = []string{"10.0.0.1"} },
			`decisions.resp_from is "10.0.0.1", want decisions.resp beside it: nobody asks there`},
		"lists of their own": {func(c *c) {
			c.Decisions.SPOE, c.Decisions.SPOEFrom, c.Decisions.GRPC, c.Decisions.GRPCFrom = "127.0.0.1:8085",
				[]string{"x"}, "127.0.0.1:8083", []string{"10.0.0.1"}
		}, `decisions.spoe_from is "x", want a network such as 10.0.0.0/8 or an address`},
		"no network": {func(c *c) { c.Decisions.From = []string{"nginx"} },
			`decisions.from is "nginx", want a network such as 10.0.0.0/8 or an address`},
	} {
		conf := config.Default()
		conf.Upstream, conf.Unknown = "http://127.0.0.1:9000", "limit"
		tc.change(&conf)
		got := ""
		if err := conf.Complete(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
