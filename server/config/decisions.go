package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decisions is the door for proxies that ask before they pass a request on; see
// docs/decisions.md.
type Decisions struct {
	// Listen is where they ask over HTTP, as nginx, Traefik, Caddy, HAProxy and
	// Envoy do. Default none.
	Listen string `yaml:"listen"`

	// GRPC is where Envoy asks by its filters over gRPC. Default none.
	GRPC string `yaml:"grpc"`

	// RateLimit are configurations of envoyproxy/ratelimit, files or folders: then
	// Envoy's filter ratelimit may ask at GRPC too. Default none.
	RateLimit []string `yaml:"ratelimit"`

	// RateLimitMerge has a domain that stands in several of these files have the descriptors of all,
	// as MERGE_DOMAIN_CONFIG does there. Default false: it is an error.
	RateLimitMerge bool `yaml:"ratelimit_merge"`

	// RateLimitOverrides are the networks of those, among From, whose questions by the filter ratelimit may
	// set limits themselves, any for anything. Default none: limits in questions are ignored.
	RateLimitOverrides []string `yaml:"ratelimit_overrides"`

	// RateLimitFields adds what headers chooses to what that filter answers clients: RateLimit and RateLimit-Policy, if
	// nothing else is said there. Default false.
	RateLimitFields bool `yaml:"ratelimit_fields"`

	// RateLimitMetadata tells that filter the descriptors of its question again, and what became of each,
	// as dynamic metadata for Envoy's access logs and other filters. Default false.
	RateLimitMetadata bool `yaml:"ratelimit_metadata"`

	// RESP is where clients of Redis ask, by CL.THROTTLE and HG.CHECK. Default none.
	RESP string `yaml:"resp"`

	// RESPPasswordFile holds the password that they have to say, in its first line.
	// Default none.
	RESPPasswordFile string `yaml:"resp_password_file"`

	// SPOE is where HAProxy asks by its filter spoe. Default none.
	SPOE string `yaml:"spoe"`

	// Admission has API servers of Kubernetes ask at Listen too, by a webhook.
	Admission Admission `yaml:"admission"`

	// Scope says where the counters of RateLimit and CL.THROTTLE are: local, in this
	// process; or strict, in the store that gateways share. Default local.
	Scope string `yaml:"scope"`

	// QuotaTTL is how long Envoy's filter rate_limit_quota may use what it was lent of
	// limits of RateLimit. Whole seconds, 4s to 1m; default 5s. Longer is a wider bound
	// and fewer questions to a shared store (docs/rlqs.md).
	QuotaTTL time.Duration `yaml:"quota_ttl"`

	// From are the networks of those that may ask. Default 127.0.0.0/8 and ::1.
	From []string `yaml:"from"`

	// GRPCFrom, RESPFrom and SPOEFrom are in the place of From for those listeners. Default From's.
	GRPCFrom []string `yaml:"grpc_from"`
	RESPFrom []string `yaml:"resp_from"`
	SPOEFrom []string `yaml:"spoe_from"`

	// TLS makes all of these listeners speak TLS. Default plain.
	TLS DecisionsTLS `yaml:"tls"`
}

// Admission is the door for API servers of Kubernetes; see docs/kubernetes.md.
type Admission struct {
	// Enabled answers them at /admission, and declares the endpoints of what they ask about. Default false.
	Enabled bool `yaml:"enabled"`

	// Groups are those groups of users that are projects, so that rules can be made for them. A user in several is in
	// the one that is named first. Default none.
	Groups []string `yaml:"groups"`

	// Timeout bounds a decision. It is to be less than the webhook's timeoutSeconds. Default 800ms.
	Timeout time.Duration `yaml:"timeout"`
}

func (c *checker) admission(conf *Config) {
	a := conf.Decisions.Admission
	c.duration("decisions.admission.timeout", a.Timeout, 10*time.Millisecond, 29*time.Second)
	for i, group := range a.Groups {
		if group == "" || len(group) > 255 || slices.Index(a.Groups, group) < i {
			c.wrong("decisions.admission.groups["+strconv.Itoa(i)+"]", group,
				"the name of a group of users, 1 to 255 bytes, once")
		}
	}
	const enabled = "decisions.admission.enabled"
	switch {
	case !a.Enabled:
		if len(a.Groups) > 0 {
			c.wrong("decisions.admission.groups", strings.Join(a.Groups, ", "), enabled+" beside it: nobody asks")
		}
	case conf.Decisions.Listen == "":
		c.wrong(enabled, "true", "decisions.listen beside it, where API servers ask")
	case conf.Gateway():
		c.wrong(enabled, "true", "listen none beside it: what API servers ask about has endpoints of its own, which "+
			"a gateway would pass on")
	case conf.Decisions.TLS == DecisionsTLS{} && !Loopback(conf.Decisions.Listen):
		c.wrong(enabled, "true", "decisions.tls.cert_file and key_file beside it: API servers ask over TLS alone")
	}
}

// DecisionsTLS makes the listeners of Decisions speak TLS, 1.2 or later. Files are read anew when
// they change.
type DecisionsTLS struct {
	// CertFile and KeyFile hold the certificate of Decisions, with its chain, and its key, in PEM.
	// Both or none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`

	// ClientCAFile holds the certificates of those who sign the certificates of those who may ask, in
	// PEM: then nobody is answered without one, wherever it comes from. Default none.
	ClientCAFile string `yaml:"client_ca_file"`
}

// Files are t as the gateway's own would be.
func (t DecisionsTLS) Files() TLS {
	files := TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCAFile: t.ClientCAFile, ClientAuth: "none"}
	if t.ClientCAFile != "" {
		files.ClientAuth = "require"
	}
	return files
}

func defaultDecisions() Decisions {
	return Decisions{From: []string{"127.0.0.0/8", "::1/128"}, Scope: "local", QuotaTTL: 5 * time.Second,
		Admission: Admission{Timeout: 800 * time.Millisecond}}
}

// A Listener is where questions are asked.
type Listener struct{ Setting, Address string }

// Listeners are those that are on.
func (d Decisions) Listeners() []Listener {
	all := []Listener{
		{"decisions.listen", d.Listen}, {"decisions.grpc", d.GRPC}, {"decisions.resp", d.RESP},
		{"decisions.spoe", d.SPOE},
	}
	return slices.DeleteFunc(all, func(l Listener) bool { return l.Address == "" })
}

// Lists are the networks of those that may ask, by the setting where they stand. What is left out
// is as decisions.from.
func (d Decisions) Lists() map[string][]string {
	lists := map[string][]string{
		"decisions.from":      d.From,
		"decisions.grpc_from": d.GRPCFrom,
		"decisions.resp_from": d.RESPFrom,
		"decisions.spoe_from": d.SPOEFrom,
	}
	maps.DeleteFunc(lists, func(setting string, list []string) bool {
		return setting != "decisions.from" && len(list) == 0
	})
	return lists
}

// MayAsk are the networks of those that may ask at the listener of a setting such as decisions.grpc.
func (d Decisions) MayAsk(listener string) []string {
	if own, ok := d.Lists()[listener+"_from"]; ok {
		return own
	}
	return d.From
}

// On reports whether anybody may ask.
func (d Decisions) On() bool { return len(d.Listeners()) > 0 }

// NoGateway as Listen leaves the gateway out, beside Decisions.
const NoGateway = "none"

// Gateway reports whether there is one.
func (c *Config) Gateway() bool { return c.Listen != NoGateway }

// CountsAlone reports whether requests are not asked about, but descriptors or keys
// of Redis alone, so that no endpoint need be known.
func (c *Config) CountsAlone() bool {
	d := c.Decisions
	return !c.Gateway() && d.Listen == "" && d.SPOE == "" && (len(d.RateLimit) > 0 || d.RESP != "" && d.GRPC == "")
}

// listeners checks where this process listens.
func (c *checker) listeners(conf *Config) {
	named := append([]Listener{{"listen", conf.Listen}, {"admin", conf.Admin}}, conf.Decisions.Listeners()...)
	for i, l := range named {
		if l.Setting == "listen" && !conf.Gateway() {
			continue
		}
		c.address(l.Setting, l.Address)
		for _, other := range named[:i] {
			if other.Address == l.Address && !strings.HasSuffix(l.Address, ":0") {
				c.wrong(l.Setting, l.Address, "another address than "+other.Setting)
			}
		}
	}
	switch {
	case conf.Gateway():
		c.upstream(conf.Upstream)
	case !conf.Decisions.On():
		c.wrong("listen", conf.Listen,
			"an address, or one of decisions.listen, grpc, resp and spoe beside it: there would be nothing to do")
	case conf.Upstream != "":
		c.wrong("upstream", conf.Upstream, "nothing: with listen none, no request is passed on")
	}
	if conf.Decisions.On() && len(conf.Decisions.From) == 0 {
		c.wrong("decisions.from", "", "the networks of the proxies that may ask")
	}
	lists := conf.Decisions.Lists()
	for _, setting := range slices.Sorted(maps.Keys(lists)) {
		c.prefixes(setting, lists[setting])
		if listener, own := strings.CutSuffix(setting, "_from"); own && !slices.ContainsFunc(conf.Decisions.Listeners(),
			func(l Listener) bool { return l.Setting == listener }) {
			c.wrong(setting, strings.Join(lists[setting], ", "), listener+" beside it: nobody asks there")
		}
	}
	c.oneOf("decisions.scope", conf.Decisions.Scope, "local", "strict")
	if conf.Decisions.Scope == "strict" && !conf.Store.On() {
		c.wrong("decisions.scope", "strict", "store.redis beside it, or local")
	}
	if ttl := conf.Decisions.QuotaTTL; ttl < 4*time.Second || ttl > time.Minute || ttl%time.Second != 0 {
		c.wrong("decisions.quota_ttl", ttl.String(), "whole seconds, 4s to 1m")
	}
	if conf.Decisions.RESPPasswordFile != "" && conf.Decisions.RESP == "" {
		c.wrong("decisions.resp_password_file", conf.Decisions.RESPPasswordFile,
			"decisions.resp beside it, where clients of Redis ask")
	}
	switch t := conf.Decisions.TLS; {
	case t == DecisionsTLS{}:
	case t.CertFile == "":
		c.wrong("decisions.tls.cert_file", "", "the file with the certificate of the listeners of decisions")
	case t.KeyFile == "":
		c.wrong("decisions.tls.key_file", "", "the file with the key of decisions.tls.cert_file")
	case !conf.Decisions.On():
		c.wrong("decisions.tls.cert_file", t.CertFile, "one of decisions.listen, grpc, resp and spoe beside it")
	}
	c.admission(conf)
	c.descriptors(conf.Decisions)
}

// descriptors checks how Envoy's filter ratelimit is answered.
func (c *checker) descriptors(d Decisions) {
	if len(d.RateLimit) > 0 && d.GRPC == "" {
		c.wrong("decisions.ratelimit", strings.Join(d.RateLimit, ", "), "decisions.grpc beside it, where Envoy asks")
	}
	for _, o := range []struct {
		setting, value string
		on             bool
	}{
		{"decisions.ratelimit_merge", "true", d.RateLimitMerge},
		{"decisions.ratelimit_overrides", strings.Join(d.RateLimitOverrides, ", "), len(d.RateLimitOverrides) > 0},
		{"decisions.ratelimit_fields", "true", d.RateLimitFields},
		{"decisions.ratelimit_metadata", "true", d.RateLimitMetadata},
	} {
		if o.on && len(d.RateLimit) == 0 {
			c.wrong(o.setting, o.value, "decisions.ratelimit beside it: nobody asks about descriptors")
		}
	}
	c.prefixes("decisions.ratelimit_overrides", d.RateLimitOverrides)
	from, err := ParsePrefixes(d.MayAsk("decisions.grpc"))
	if err != nil {
		return
	}
	for _, value := range d.RateLimitOverrides {
		p, err := ParsePrefix(value)
		if err == nil && !slices.ContainsFunc(from, p.Overlaps) {
			c.wrong("decisions.ratelimit_overrides", value,
				"a network that decisions.from, or grpc_from, has too: nobody else may ask")
		}
	}
}

// warn says what a decision service cannot do.
func (d Decisions) warn(c *Config, warn func(field string, value any, format string, args ...any)) {
	if !d.On() {
		return
	}
	if c.Settle.On() {
		warn("decisions", "on",
			"settle has no effect on what proxies ask about: the API's answer does not come this way")
	}
	if len(c.CountWhen) > 0 {
		warn("decisions", "on", "count_when has no effect on what proxies ask about, so all of it counts: the "+
			"API's answer does not come this way")
	}
	for i := range c.Identifiers {
		warn("decisions", "on", "bodies do not come this way: of what proxies ask about, rules by identifier count "+
			"the address, and identifiers[%d] has no effect", i)
	}
}
