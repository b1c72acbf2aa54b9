package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/server/config"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]struct {
		bytes   config.Bytes
		written string
	}{
		"65536": {1 << 16, "64KiB"}, "64KiB": {1 << 16, "64KiB"}, "64 MiB": {1 << 26, "64MiB"},
		"1GB": {1e9, "1000000000B"}, "3GiB": {3 << 30, "3GiB"},
		"0": {0, "0"}, "100B": {100, "100B"}, "2TB": {2e12, "1953125000KiB"},
	} {
		var b config.Bytes
		if err := b.Set(text); err != nil || b != want.bytes || b.String() != want.written {
			t.Errorf("Set(%q) = %d, %v, written %q, want %d and %q", text, b, err, b.String(), want.bytes, want.written)
		}
	}
	for _, text := range []string{"", "MiB", "1.5GiB", "-1", "-1KiB", "9000000000000000000MiB", "1 Mib", "many"} {
		var b config.Bytes
		if err := b.Set(text); err == nil || !strings.Contains(err.Error(), "no amount of memory") {
			t.Errorf("Set(%q) = %v, %v, want a refusal", text, b, err)
		}
	}
}

func TestSizeAndSettlementInAFile(t *testing.T) {
	c, err := read(t,
		whole+"max_bytes: 64MiB\nsettle: {header: X-Cost, bytes_per_token: 4}\ncosts: {GET /v1/quota: 0}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.MaxBytes != 64<<20 || !c.Settle.On() || c.Settle.Timeout != 5*time.Minute || c.Settle.MaxOutstanding != 1<<16 {
		t.Errorf("config = %+v", c)
	}
	if c := config.Default(); c.Settle.On() {
		t.Errorf("requests pay afterwards by default: %+v", c.Settle)
	}
	for text, want := range map[string]string{
		"max_bytes: 1KiB":                         `max_bytes is "1KiB", want 64KiB or more`,
		"max_bytes: 1MiB\nmax_buckets: 100":       `max_bytes is "1MiB", want max_buckets left out`,
		"count_when: {GET /a: [404, 9xx]}":        `count_when[GET /a] is "404 9xx", want statuses from 200 to 599, or 2xx, 3xx, 4xx or 5xx`,
		"count_when: {GET /a: []}":                `count_when[GET /a] is "", want statuses from 200 to 599`,
		"settle: {header: a b}":                   `settle.header is "a b"`,
		"settle: {bytes_per_token: -1}":           `settle.bytes_per_token is "-1"`,
		"settle: {header: X-Cost, timeout: 48h}":  `settle.timeout is "48h0m0s"`,
		"settle: {header: X, max_outstanding: 0}": `settle.max_outstanding is "0"`,
	} {
		c, err := read(t, whole+text+"\n")
		if err == nil {
			err = c.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := read(t, whole+"max_bytes: lots\n"); err == nil ||
		!strings.Contains(err.Error(), `max_bytes is "lots", want an amount of memory such as 64MiB`) {
		t.Errorf("max_bytes: lots = %v", err)
	}
}

func TestSmallestTableIsTheTables(t *testing.T) {
	c := config.Default()
	c.Upstream, c.Routes, c.MaxBytes = "http://127.0.0.1:9000", []string{"r"}, memory.MinBytes
	if err := c.Complete(); err != nil {
		t.Errorf("the smallest table is refused: %v", err)
	}
	if _, err := memory.New(memory.Options{MaxBytes: int64(c.MaxBytes)}); err != nil {
		t.Error(err)
	}
}
