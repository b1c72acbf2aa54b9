package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// checker collects what is wrong.
type checker struct {
	errs []error

	// reader is the setting that reads the bodies of an endpoint, as one alone can.
	reader map[string]string

	// asked, if set, hears which values a setting may have, for the schema.
	asked func(field string, may values)
}

// values are those that a setting may have: one of some, or all from low to high.
type values struct {
	oneOf     []string
	low, high any // int64 or time.Duration
}

func (c *checker) ask(field string, may values) {
	if c.asked != nil {
		c.asked(field, may)
	}
}

func (c *checker) wrong(field, value, want string) {
	c.errs = append(c.errs, fmt.Errorf("%s is %q, want %s", field, value, want))
}

func (c *checker) address(field, value string) {
	host, port, err := net.SplitHostPort(value)
	if err != nil || port == "" {
		c.wrong(field, value, "HOST:PORT such as 127.0.0.1:8080")
		return
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		c.wrong(field, value, "a port from 0 to 65535 behind the host")
	}
	if host == "" {
		c.wrong(field, value, "a host before the port; 0.0.0.0 to listen on every address")
	}
}

func (c *checker) upstream(value string) {
	if value == "" {
		c.wrong("upstream", value, "the URL of the API to protect, such as http://127.0.0.1:9000")
		return
	}
	u, err := url.Parse(value)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		c.wrong("upstream", value, "http://HOST or https://HOST with no query")
	case u.User != nil:
		c.wrong("upstream", u.Redacted(), "no user name or password: credentials belong to the client")
	}
}

func (c *checker) endpoints(conf *Config) {
	if len(conf.OpenAPI)+len(conf.Routes) == 0 && conf.Unknown != "limit" && !conf.CountsAlone() &&
		!conf.Decisions.Admission.Enabled {
		c.wrong("openapi", "", "at least one document, by --openapi or --routes: without endpoints every request "+
			"is unknown and rejected, unless --unknown limit puts them all on one budget")
	}
}

func (c *checker) oneOf(field, value string, allowed ...string) {
	c.ask(field, values{oneOf: allowed})
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	last := len(allowed) - 1
	c.wrong(field, value, strings.Join(allowed[:last], ", ")+" or "+allowed[last])
}

func (c *checker) text(field, value, want string) {
	if value == "" {
		c.wrong(field, value, want)
	}
}

// fieldName is a token of RFC 9110 section 5.6.2.
var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (c *checker) between(field string, value, low, high int64) {
	c.ask(field, values{low: low, high: high})
	if value < low || value > high {
		c.wrong(field, fmt.Sprint(value), fmt.Sprintf("%d to %d", low, high))
	}
}

// size is between for an amount of memory, which is written as people write it.
func (c *checker) size(field string, value, low, high Bytes) {
	c.ask(field, values{low: int64(low), high: int64(high)})
	if value < low || value > high {
		c.wrong(field, value.String(), fmt.Sprintf("%v to %v", low, high))
	}
}

// once checks that no other setting, nor this one, reads the bodies of an endpoint already.
func (c *checker) once(field, endpoint string) {
	if endpoint == "" {
		return // which is said of it
	}
	if other, ok := c.reader[endpoint]; ok {
		c.wrong(field, endpoint, "each endpoint once: "+other+" has it")
		return
	}
	if c.reader == nil {
		c.reader = map[string]string{}
	}
	c.reader[endpoint] = field
}

func (c *checker) duration(field string, value, low, high time.Duration) {
	c.ask(field, values{low: low, high: high})
	if value < low || value > high {
		c.wrong(field, value.String(), fmt.Sprintf("%v to %v", low, high))
	}
}
