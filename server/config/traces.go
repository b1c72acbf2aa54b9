package config

import "net/url"

// Traces says which requests are told to a collector of OpenTelemetry; see docs/traces.md.
type Traces struct {
	// Endpoint is the URL of the collector, which takes OTLP over HTTP, such as
	// http://127.0.0.1:4318/v1/traces. Default none: no request is traced.
	Endpoint string `yaml:"endpoint"`

	// OneIn has one request in so many traced, drawn at random, 1 to 1000000. Default 1000.
	OneIn int `yaml:"one_in"`

	// PerSecond is how many requests a second are traced at most, 1 to 100000. Default 100.
	PerSecond int `yaml:"per_second"`

	// HeadersFile is a file with fields for the collector, NAME: VALUE a line, such as
	// Authorization. Default none.
	HeadersFile string `yaml:"headers_file"`
}

// On reports whether requests are traced.
func (t Traces) On() bool { return t.Endpoint != "" }

func (c *checker) traces(t Traces) {
	c.between("traces.one_in", int64(t.OneIn), 1, 1_000_000)
	c.between("traces.per_second", int64(t.PerSecond), 1, 100_000)
	if !t.On() {
		if t.HeadersFile != "" {
			c.wrong("traces.headers_file", t.HeadersFile, "none, or traces.endpoint set: they are for the collector")
		}
		return
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		shown := "no URL of that kind"
		if err == nil {
			shown = u.Redacted()
		}
		c.wrong("traces.endpoint", shown,
			"a URL such as http://127.0.0.1:4318/v1/traces; credentials belong in traces.headers_file")
	}
}
