package config

import (
	"reflect"
	"slices"
	"strings"
)

// reloadable are the settings, or groups of them, that a process takes over while it runs. All others need a restart.
var reloadable = []string{
	"openapi", "openapi_strict", "routes", "costs", "priority", "count_when", "websockets", "grpc_streams",
	"identifiers", "language_models", "batches", "mcp", "bytes", "graphql", "adaptive",
	"endpoint", "burst_percent",
	"unknown", "no_rule", "bad_credentials", "credentials", "max_wait", "max_waiters",
	"api_keys.header", "api_keys.bearer", "api_keys.query", "api_keys.strip", "api_keys.prefixes", "api_keys.imported",
	"tokens", "origins", "signed_agents", "tls", "decisions.tls",
	"trusted_proxies", "forwarded_header", "client_address", "ipv4_prefix", "ipv6_prefix", "nat64_prefixes",
	"region_files", "proxy_protocol",
	"clients.max_connections", "clients.max_connections_per_address", "clients.max_requests_per_address",
	"clients.patience", "clients.min_rate", "clients.stream_idle_timeout", "clients.max_headers",
	"clients.max_target_bytes", "clients.body_memory",
	"upstream", "upstream_timeout", "upstream_client", "upstream_servers", "upstream_tls", "upstream_health",
	"pass_override_headers", "headers", "settle.header", "settle.bytes_per_token", "settle.timeout",
	"admin_token_file", "admin_auth", "admin_calls", "developers", "decision_log", "traces", "warnings",
	"anomalies.window", "anomalies.weights", "anomalies.tiers",
	"decisions.from", "decisions.grpc_from", "decisions.resp_from", "decisions.spoe_from",
	"decisions.ratelimit_overrides", "shutdown_timeout", "log.level",
}

// ReloadableSettings are those, and groups, that a process takes over while it runs.
func ReloadableSettings() []string { return slices.Clone(reloadable) }

// Reloadable reports whether a process takes a setting over while it runs, such as headers.legacy.
func Reloadable(setting string) bool {
	return slices.ContainsFunc(reloadable, func(name string) bool {
		return setting == name || strings.HasPrefix(setting, name+".")
	})
}

// Reloaded returns c with what next says of settings that are Reloadable. It reports which of those changed, and which
// others of next do not count until a restart. Both are complete. Whether a listener speaks TLS, or the PROXY protocol,
// is for a restart, as those who connect to the one do not understand the other; with what certificate, and with whom,
// is not. Neither is which regions there are, but whether there are any is.
func (c Config) Reloaded(next Config) (merged Config, changed, restart []string) {
	merged = c
	switched := map[string]bool{
		"tls":            c.TLS.On() != next.TLS.On(),
		"decisions.tls":  (c.Decisions.TLS == DecisionsTLS{}) != (next.Decisions.TLS == DecisionsTLS{}),
		"proxy_protocol": c.ProxyProtocol.On() != next.ProxyProtocol.On(),
		"region_files":   (len(c.RegionFiles) > 0) != (len(next.RegionFiles) > 0),
	}
	var visit func(name string, to, from reflect.Value)
	visit = func(name string, to, from reflect.Value) {
		if to.Kind() != reflect.Struct {
			switch {
			case reflect.DeepEqual(to.Interface(), from.Interface()) ||
				to.Kind() == reflect.Slice && to.Len()+from.Len() == 0:
			case Reloadable(name) && !switched[name] && !switched[name[:max(0, strings.LastIndexByte(name, '.'))]]:
				changed = append(changed, name)
				to.Set(from)
			default:
				restart = append(restart, name)
			}
			return
		}
		for i := range to.NumField() {
			tag, options, _ := strings.Cut(to.Type().Field(i).Tag.Get("yaml"), ",")
			switch {
			case options == "inline":
				visit(name, to.Field(i), from.Field(i))
			case name == "":
				visit(tag, to.Field(i), from.Field(i))
			default:
				visit(name+"."+tag, to.Field(i), from.Field(i))
			}
		}
	}
	visit("", reflect.ValueOf(&merged).Elem(), reflect.ValueOf(next))
	return merged, changed, restart
}
