package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/body"
)

// Batch is one endpoint whose requests may hold many, which cost and count as many as they hold. A body whose parts
// cannot be counted is refused. Endpoint is required.
type Batch struct {
	// Endpoint is one of openapi or routes: "POST /rpc".
	Endpoint string `yaml:"endpoint"`

	// Field is the field of an object in whose array the requests are, requests for $batch of OData; also a path,
	// "data.requests". Default none: the body is an array, or one request.
	Field string `yaml:"field"`

	// Batches says what happens to a body that holds more than one: count (default), or refuse.
	Batches string `yaml:"batches"`

	// MaxParts is how many there may be. Default 100.
	MaxParts int `yaml:"max_parts"`

	// MaxBytes is the longest body that is read. Default 1MiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// ReadTimeout is how long that may take to arrive. Default 10s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
}

// MCP is one endpoint that takes messages of the Model Context Protocol, whose methods and tools may have endpoints of
// their own. Endpoint is required.
type MCP struct {
	// Endpoint is one of openapi or routes, without parameters: "POST /mcp".
	Endpoint string `yaml:"endpoint"`

	// MaxBytes is the longest body that is read. Default 1MiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// ReadTimeout is how long that may take to arrive. Default 10s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
}

// Parts is where they are, as package body has it.
func (b Batch) Parts() body.Batch {
	return body.Batch{Name: b.Field, MaxParts: b.MaxParts, MaxBytes: int(b.MaxBytes)}
}

// calls checks the lists and fills in what their entries leave out; whether the registry has the endpoints
// is found when it is built.
func (c *checker) calls(conf *Config) {
	defer c.bodies(conf)
	for n := range conf.Batches {
		b := &conf.Batches[n]
		field := func(name string) string { return fmt.Sprintf("batches[%d].%s", n, name) }
		c.text(field("endpoint"), b.Endpoint, "an endpoint such as POST /rpc")
		c.once(field("endpoint"), b.Endpoint)
		fill(&b.Batches, "count")
		fill(&b.MaxParts, body.DefaultParts)
		fill(&b.MaxBytes, body.DefaultBatchBytes)
		fill(&b.ReadTimeout, 10*time.Second)
		c.oneOf(field("batches"), b.Batches, "count", "refuse")
		c.between(field("max_parts"), int64(b.MaxParts), 1, body.MostParts)
		c.size(field("max_bytes"), b.MaxBytes, 64, body.MostBatchBytes)
		c.duration(field("read_timeout"), b.ReadTimeout, time.Millisecond, 10*time.Minute)
		if _, err := body.NewCounter(body.Batch{Name: b.Field}); err != nil {
			c.wrong(field("field"), b.Field, "the name of a field such as requests, or a path of up to 4 such as "+
				"data.requests")
		}
	}
	for n := range conf.MCP {
		m := &conf.MCP[n]
		field := func(name string) string { return fmt.Sprintf("mcp[%d].%s", n, name) }
		c.text(field("endpoint"), m.Endpoint, "an endpoint such as POST /mcp")
		c.once(field("endpoint"), m.Endpoint)
		fill(&m.MaxBytes, body.DefaultBatchBytes)
		fill(&m.ReadTimeout, 10*time.Second)
		c.size(field("max_bytes"), m.MaxBytes, 64, body.MostBatchBytes)
		c.duration(field("read_timeout"), m.ReadTimeout, time.Millisecond, 10*time.Minute)
	}
	if len(conf.MCP) > 0 && !conf.Gateway() {
		c.wrong("mcp", fmt.Sprintf("%d endpoints", len(conf.MCP)), "nothing: with listen none, no body is seen")
	}
	if len(conf.Batches) > 0 && !conf.Gateway() {
		c.wrong("batches", fmt.Sprintf("%d endpoints", len(conf.Batches)),
			"nothing: with listen none, no body is seen; say what a request costs where it is asked about")
	}
}

// bodies checks that one address has room for the longest body that is read.
func (c *checker) bodies(conf *Config) {
	longest := Bytes(0)
	for _, b := range conf.Batches {
		longest = max(longest, b.MaxBytes)
	}
	for _, m := range conf.MCP {
		longest = max(longest, m.MaxBytes)
	}
	for _, m := range conf.LanguageModels {
		longest = max(longest, m.MaxBytes)
	}
	for _, g := range conf.GraphQL {
		longest = max(longest, cmp.Or(g.MaxBytes, body.DefaultBatchBytes))
	}
	for _, i := range conf.Identifiers {
		longest = max(longest, i.MaxBytes)
	}
	if room := conf.Clients.BodyMemory; room < 2*longest {
		c.wrong("clients.body_memory", room.String(), fmt.Sprintf("%v or more, twice the longest max_bytes", 2*longest))
	}
}
