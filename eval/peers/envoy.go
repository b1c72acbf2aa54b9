package peers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// envoyConf is an Envoy before an API. %s are the port, hops, the actions by which descriptors are
// made, the filter, the API's port, and more clusters.
const envoyConf = `static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: %s } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          use_remote_address: true
          xff_num_trusted_hops: %d
          route_config:
            virtual_hosts:
            - name: api
              domains: ["*"]
              routes:
              - match: { path: "/nowhere" }
                direct_response: { status: 404 }
              - match: { prefix: "/" }
                route:
                  cluster: api
                  rate_limits:
                  - actions: [ %s ]
          http_filters:
%s
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: api
    connect_timeout: 1s
    load_assignment: { cluster_name: api, endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %s } } } } ] } ] }
%s`

func (p Place) envoy(filter, clusters string) (*Server, error) {
	hops, action := 0, "{ remote_address: {} }"
	if p.Hop {
		hops = 1
	}
	if p.Together {
		action = "{ generic_key: { descriptor_key: cell, descriptor_value: all } }"
	}
	return start(p.Dir, "bin/garden/venv/bin/envoy", "envoy.yaml", func(at string) string {
		return fmt.Sprintf(envoyConf, port(at), hops, action, filter, port(p.API), clusters)
	}, "-c", "envoy.yaml", "--concurrency", "1", "-l", "off", "--disable-hot-restart", "--base-id-path", "base-id",
		"--use-dynamic-base-id")
}

// EnvoyLocal starts an Envoy with its filter local_ratelimit, a token bucket for each descriptor.
// Those of addresses are made as they come, and the one that was not used for longest makes room:
// Envoy keeps 20 of a limit unless told otherwise.
func EnvoyLocal(p Place, most int) (*Server, error) {
	entry := "{ key: remote_address }"
	if p.Together {
		entry = "{ key: cell, value: all }"
	}
	bucket := fmt.Sprintf("{ max_tokens: %d, tokens_per_fill: %d, fill_interval: 1s }", p.Burst, p.Rate)
	dynamic := ""
	if most > 0 {
		dynamic = fmt.Sprintf("\n              max_dynamic_descriptors: %d", most)
	}
	return p.envoy(`          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: local
              token_bucket: { max_tokens: 1000000, tokens_per_fill: 1000000, fill_interval: 1s }
              filter_enabled: { default_value: { numerator: 100 } }
              filter_enforced: { default_value: { numerator: 100 } }`+dynamic+`
              descriptors:
              - entries: [ `+entry+` ]
                token_bucket: `+bucket, "")
}

// EnvoyGlobal starts an Envoy with its filter ratelimit, which asks envoyproxy/ratelimit at an address,
// of the domain "eval" (RateLimitRules).
func EnvoyGlobal(p Place, service string) (*Server, error) {
	return p.envoy(`          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: eval
              timeout: 1s
              failure_mode_deny: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service: { envoy_grpc: { cluster_name: ratelimit } }`, fmt.Sprintf(`  - name: ratelimit
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment: { cluster_name: ratelimit, endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %s } } } } ] } ] }
`, port(service)))
}

// HAProxy starts one with a stick table of some size, which counts requests in a sliding window and
// forgets who was not seen for its length.
func HAProxy(p Place, size string) (*Server, error) {
	key := "src"
	if p.Hop {
		key = "hdr_ip(x-forwarded-for,-1)"
	}
	if p.Together {
		key = "int(1)"
	}
	seconds := max(1, p.Burst/p.Rate)
	conf := strings.NewReplacer("KEY", key, "SIZE", size, "PERIOD", fmt.Sprintf("%ds", seconds), "MOST",
		fmt.Sprint(p.Rate*seconds), "API", p.API)
	kind, secure := "ipv6", ""
	if p.Certificate != "" {
		secure = " ssl crt " + p.Certificate
	}
	if p.Together {
		kind = "integer"
	}
	return start(p.Dir, "haproxy", "haproxy.cfg", func(at string) string {
		return conf.Replace("defaults\n  mode http\n  timeout connect 1s\n  timeout client 30s\n  timeout server " +
			"30s\nfrontend clients\n  bind " + at + secure + `
  stick-table type ` + kind + ` size SIZE expire PERIOD store http_req_rate(PERIOD)
  http-request deny deny_status 404 if { path /nowhere }
  http-request track-sc0 KEY
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt MOST }
  default_backend api
backend api
  server api API
`)
	}, "-db", "-q", "-f", "haproxy.cfg")
}

// API starts an nginx that is no limiter, but what stands behind one: it answers ok to everything,
// 16 KiB at /large, and 1 MiB at /stream.
func API(dir string) (*Server, error) {
	for name, lines := range map[string]int{"large": 1 << 10, "stream": 1 << 16} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("0123456789abcdef"), lines),
			0o644); err != nil {
			return nil, err
		}
	}
	return start(dir, "nginx", "nginx.conf", func(at string) string {
		return fmt.Sprintf(`daemon off;
worker_processes 1;
pid pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
	access_log off;
	keepalive_requests 100000000;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen %s;
		location / { return 200 "ok\n"; }
		location = /large { root %s; }
		location = /stream { root %[2]s; }
	}
}
`, at, dir)
	}, "-p", dir, "-c", "nginx.conf", "-e", "stderr")
}

// NginxBy starts one by a configuration, which conf makes for an address.
func NginxBy(dir string, conf func(at string) string) (*Server, error) {
	return start(dir, "nginx", "nginx.conf", conf, "-p", dir, "-c", "nginx.conf", "-e", "stderr")
}

// Nginx starts one with limit_req, for all clients together or each address.
func Nginx(p Place) (*Server, error) {
	if p.Hop {
		return nil, errOneByOne
	}
	key := "$binary_remote_addr"
	if p.Together {
		key = "$server_port"
	}
	return NginxBy(p.Dir, func(at string) string {
		if p.Certificate != "" {
			at += " ssl; ssl_certificate " + p.Certificate + "; ssl_certificate_key " + p.Certificate +
				"; ssl_protocols TLSv1.2 TLSv1.3"
		}
		return fmt.Sprintf(`daemon off;
worker_processes 1;
pid pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 100000000;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	limit_req_zone %s zone=one:10m rate=%dr/s;
	limit_req_status 429;
	upstream api { server %s; keepalive 128; keepalive_requests 100000000; }
	server {
		listen %s;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		location = /nowhere { return 404; }
		location / { limit_req zone=one burst=%d nodelay; proxy_pass http://api; }
	}
}
`, key, p.Rate, p.API, at, p.Burst-1)
	})
}
