package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/policy"
)

// Bytes is an amount of memory as people write it: "64MiB", "1GB", "65536".
type Bytes int64

// units from the longest suffix to the shortest, so that "MiB" is not read as
// "B".
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalText reads a whole number and a unit.
func (b *Bytes) UnmarshalText(text []byte) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		*b = Bytes(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is no amount of memory, want a whole number and KiB, MiB, GiB, KB, MB or GB", text)
}

// String writes the amount in the largest unit that divides it.
func (b Bytes) String() string {
	if b == 0 {
		return "0" // by which help knows a flag without a default
	}
	for _, u := range []string{"GiB", "MiB", "KiB"} {
		for _, unit := range units {
			if unit.suffix == u && int64(b)%unit.bytes == 0 {
				return strconv.FormatInt(int64(b)/unit.bytes, 10) + u
			}
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Set and Type make Bytes a flag.
func (b *Bytes) Set(text string) error { return b.UnmarshalText([]byte(text)) }

// Type is what help calls the flag's value.
func (b *Bytes) Type() string { return "bytes" }

// minBytes is memory.MinBytes; a test holds them together.
const minBytes = 1 << 16

func (c *checker) bytes(conf *Config) {
	switch {
	case conf.MaxBytes == 0:
	case conf.MaxBytes < minBytes:
		c.wrong("max_bytes", conf.MaxBytes.String(), Bytes(minBytes).String()+" or more")
	case conf.MaxBuckets != Default().MaxBuckets:
		c.wrong("max_bytes", conf.MaxBytes.String(), "max_buckets left out, since both say the size of one table")
	}
}

// Status is a status of an answer, "401", or a class of them, "4xx".
type Status string

// Statuses reads them.
func Statuses(list []Status) (*policy.Statuses, error) {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return policy.ParseStatuses(texts...)
}

// countWhen looks at statuses. Whether there are such endpoints is known with them.
func (c *checker) countWhen(conf *Config) {
	for _, endpoint := range slices.Sorted(maps.Keys(conf.CountWhen)) {
		field := "count_when[" + endpoint + "]"
		if _, err := Statuses(conf.CountWhen[endpoint]); err != nil {
			c.wrong(field, strings.Trim(fmt.Sprint(conf.CountWhen[endpoint]), "[]"),
				"statuses from 200 to 599, or 2xx, 3xx, 4xx or 5xx")
		}
		if slices.ContainsFunc(conf.Identifiers,
			func(i Identifier) bool { return i.Endpoint == endpoint && i.Count == "failures" }) {
			c.wrong(field, "set", "nothing: identifiers has count: failures for the endpoint, and failure_statuses")
		}
	}
}

func (c *checker) settle(s Settle) {
	if !headerName(s.Header) {
		c.wrong("settle.header", s.Header, "the name of a header such as X-Headgate-Cost")
	}
	c.between("settle.bytes_per_token", s.BytesPerToken, 0, math.MaxInt64)
	c.duration("settle.timeout", s.Timeout, 1e6, 24*3600e9)
	c.between("settle.max_outstanding", int64(s.MaxOutstanding), 1, 1<<24)
}

// headerName reports whether name is empty or a token (RFC 9110 §5.6.2).
func headerName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return true
}
