package config

import (
	"fmt"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/gateway/upstream"
)

// Servers says which servers answer for Upstream, and how requests get there.
type Servers struct {
	// Client is what sends requests on: own (default), which speaks HTTP/1.1 and costs least, or
	// net/http, which is Go's. WebSockets, and servers that choose HTTP/2 under TLS, have net/http
	// in any case.
	Client string `yaml:"upstream_client"`

	// Servers are where connections go: HOST:PORT or unix:PATH. Default the host of upstream.
	Servers []UpstreamServer `yaml:"upstream_servers"`

	// TLS says more about connections to an upstream with https.
	TLS UpstreamTLS `yaml:"upstream_tls"`

	// Health asks the servers how they are.
	Health UpstreamHealth `yaml:"upstream_health"`
}

// UpstreamServer is one of the servers behind the gateway.
type UpstreamServer struct {
	// Address is HOST:PORT or unix:PATH.
	Address string `yaml:"address"`

	// Weight is its part of the requests beside that of the others. Default 1.
	Weight int `yaml:"weight"`
}

// UpstreamTLS is how the gateway speaks TLS with the API.
type UpstreamTLS struct {
	// ServerName is the name in the servers' certificates, and the one asked for (SNI). Default the
	// host of upstream.
	ServerName string `yaml:"server_name"`

	// CAFile holds the certificates of those who sign the servers', in PEM. Default those of the system.
	CAFile string `yaml:"ca_file"`

	// CertFile and KeyFile hold the certificate of the gateway, for servers that ask for one, and its key. They are
	// read for every connection. Both or none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// UpstreamHealth is how servers are asked.
type UpstreamHealth struct {
	// Path is what is asked for by GET, such as /healthz: 200 to 399 says that the server is well.
	// Default none: nothing.
	Path string `yaml:"path"`

	// Interval is the time between two questions to a server, Timeout how long an answer may take.
	// Default 5s and 2s.
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
}

func defaultServers() Servers {
	return Servers{Client: "own", Health: UpstreamHealth{Interval: 5 * time.Second, Timeout: 2 * time.Second}}
}

// servers checks what upstream is behind.
func (c *checker) servers(conf *Config) {
	s := &conf.Upstreams
	c.oneOf("upstream_client", s.Client, "own", "net/http")
	complete := make([]UpstreamServer, 0, len(s.Servers))
	seen := map[string]bool{}
	for i, server := range s.Servers {
		field := func(name string) string { return fmt.Sprintf("upstream_servers[%d].%s", i, name) }
		if err := upstream.CheckAddress(server.Address); err != nil {
			c.wrong(field("address"), server.Address, "HOST:PORT, or unix: and the path of a socket")
		}
		if seen[server.Address] {
			c.wrong(field("address"), server.Address, "another one than before, or one of them with a larger weight")
		}
		seen[server.Address] = true
		fill(&server.Weight, 1)
		c.between(field("weight"), int64(server.Weight), 1, upstream.MaxWeight)
		complete = append(complete, server)
	}
	if len(complete) > 0 {
		s.Servers = complete
	}
	base, err := url.Parse(conf.Upstream)
	secure := err == nil && base.Scheme == "https"
	for _, file := range []struct{ field, value string }{
		{"upstream_tls.server_name", s.TLS.ServerName}, {"upstream_tls.ca_file", s.TLS.CAFile},
		{"upstream_tls.cert_file", s.TLS.CertFile}, {"upstream_tls.key_file", s.TLS.KeyFile},
	} {
		if file.value != "" && !secure {
			c.wrong(file.field, file.value, "nothing: upstream is not https")
		}
	}
	switch {
	case s.TLS.CertFile != "" && s.TLS.KeyFile == "":
		c.wrong("upstream_tls.key_file", "", "the file with the key of upstream_tls.cert_file")
	case s.TLS.CertFile == "" && s.TLS.KeyFile != "":
		c.wrong("upstream_tls.cert_file", "", "the file with the certificate of upstream_tls.key_file")
	}
	if s.Health.Path != "" && !upstream.ValidPath(s.Health.Path) {
		c.wrong("upstream_health.path", s.Health.Path, "a path such as /healthz")
	}
	c.duration("upstream_health.interval", s.Health.Interval, 100*time.Millisecond, time.Hour)
	c.duration("upstream_health.timeout", s.Health.Timeout, time.Millisecond, time.Minute)
}
