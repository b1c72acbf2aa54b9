package config

import (
	"fmt"
	"strings"

	of "github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
)

// ByteCount has the requests to some endpoints cost the bytes of their bodies, and of those of their answers.
// Endpoints is required.
type ByteCount struct {
	// Endpoints are some of openapi or routes: "GET /v1/files/{name}".
	Endpoints []string `yaml:"endpoints"`

	// Count says whose bodies count: those of both (default), of requests or of answers.
	Count string `yaml:"count"`

	// BytesPerToken makes a token of so many bytes, or part of them, of a request with its answer. Default 1.
	BytesPerToken Bytes `yaml:"bytes_per_token"`

	// AtEnd is what happens to a body whose caller has no more: run (default) passes it on and has it owed, cut ends
	// it.
	AtEnd string `yaml:"at_end"`
}

var directions = map[string]httplimit.Direction{
	"both": httplimit.OfBoth, "requests": httplimit.OfRequests, "answers": httplimit.OfAnswers,
}

// Counted is b, which is complete, as the gateway has it.
func (b ByteCount) Counted() *httplimit.Bytes {
	return &httplimit.Bytes{Of: directions[b.Count], PerToken: int64(b.BytesPerToken)}
}

// byteCounts checks the list and fills in what its entries leave out; whether the registry has the endpoints is found
// when it is built.
func (c *checker) byteCounts(conf *Config) {
	for n := range conf.Bytes {
		b := &conf.Bytes[n]
		field := func(name string) string { return fmt.Sprintf("bytes[%d].%s", n, name) }
		if len(b.Endpoints) == 0 {
			c.wrong(field("endpoints"), "", "an endpoint at least, such as GET /v1/files/{name}")
		}
		for _, endpoint := range b.Endpoints {
			c.once(field("endpoints"), endpoint)
			if method, _, _ := strings.Cut(endpoint, " "); of.OfMessages(method) {
				c.wrong(field("endpoints"), endpoint, "the endpoint of requests, since messages have bytes_per_token "+
					"where they are counted")
			}
		}
		fill(&b.Count, "both")
		fill(&b.BytesPerToken, 1)
		fill(&b.AtEnd, "run")
		c.oneOf(field("count"), b.Count, "both", "requests", "answers")
		c.oneOf(field("at_end"), b.AtEnd, "run", "cut")
		c.size(field("bytes_per_token"), b.BytesPerToken, 1, 1<<40)
	}
	if len(conf.Bytes) > 0 && !conf.Gateway() {
		c.wrong("bytes", fmt.Sprintf("%d entries", len(conf.Bytes)),
			"nothing: with listen none, no body is seen; say what a request costs where it is asked about")
	}
}
