package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

func read(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Read(path)
}

const whole = `
upstream: http://127.0.0.1:9000
routes: [routes.txt]
`

func TestDefaultsStandWhereAFileIsSilent(t *testing.T) {
	c, err := read(t,
		whole+"upstream_timeout: 5s\nendpoint: {case_insensitive: true}\ncosts: {POST /v1/exports: 10}\n"+
			"count_when: {GET /a: [404, 5xx]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8080" || c.Admin != "127.0.0.1:8081" || c.UpstreamTimeout != 5*time.Second ||
		c.Refresh != 250*time.Millisecond || c.Endpoint.CaseInsensitive == nil || !*c.Endpoint.CaseInsensitive ||
		c.Endpoint.EncodedSlash != "" ||
		!c.Headers.RateLimit || c.Costs["POST /v1/exports"] != 10 ||
		!slices.Equal(c.CountWhen["GET /a"], []config.Status{"404", "5xx"}) || c.MaxBuckets != 1<<20 {
		t.Errorf("config = %+v", c)
	}
	if c.SecretFile != "headgate.db.secret" || c.LastGood != "headgate.db.last-good.json" {
		t.Errorf("files beside the database: %q, %q", c.SecretFile, c.LastGood)
	}
}

func TestOverrideHeaders(t *testing.T) {
	for name, good := range map[string]bool{
		"X-HTTP-Method-Override": true,
		"x-forwarded-prefix":     true,
		"X-Forwarded-For":        false,
		"X-Own":                  false,
		"X-Method-Override: a":   false,
	} {
		c, err := read(t, whole+"pass_override_headers: ['"+name+"']\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); (err == nil) != good ||
			err != nil && !strings.Contains(err.Error(), "pass_override_headers[0]") {
			t.Errorf("pass_override_headers with %q: %v, want it accepted: %v", name, err, good)
		}
	}
}

func TestReadIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":  {"upstraem: http://x", "line 1: upstraem is no setting, did you mean upstream?"},
		"nested unknown": {"log: {levle: info}", "log.levle is no setting, did you mean log.level?"},
		"given twice":    {"listen: a\nlisten: b", "already"},
		"wrong kind":     {"max_buckets: many", "many"},
		"not a duration": {"refresh: fast", "fast"},
		"two documents":  {"listen: a\n---\nlisten: b", "more than one YAML document"},
		"no YAML":        {"\t: [", "begins with a tab, want spaces"},
	} {
		if _, err := read(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "config.Config") {
			t.Errorf("%s: Read = %v, want it to say %q in our words", name, err, c.want)
		}
	}
}

// A zero that was written is no default: who writes 0 means something by it,
// and must be told.
func TestCompleteNamesEveryFault(t *testing.T) {
	c, err := read(t, `
listen: ""
admin: 0.0.0.0:8081
upstream: http://user:hidden@api
max_buckets: 0
ipv6_prefix: 0
burst_percent: 0
refresh: 0s
no_rule: maybe
trusted_proxies: [10.0.0.0/8, nonsense]
headers: {legacy: both}
log: {format: xml, level: loud}
api_keys: {header: "", bearer: false}
db: ""
`)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Complete()
	if err == nil {
		t.Fatal("Complete succeeds, want every fault")
	}
	for _, want := range []string{
		`listen is ""`, `admin is "0.0.0.0:8081"`, "no user name or password", `max_buckets is "0"`,
		`ipv6_prefix is "0"`,
		`burst_percent is "0"`, `refresh is "0s"`, `no_rule is "maybe"`, `trusted_proxies is "nonsense"`,
		`headers.legacy is "both"`,
		`log.format is "xml"`, `log.level is "loud"`, `api_keys.header is ""`, `db is ""`, `openapi is ""`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Errorf("the error shows a password:\n%v", err)
	}
}

func TestParsePrefix(t *testing.T) {
	for value, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.1.2.3/8": "10.0.0.0/8", "192.0.2.1": "192.0.2.1/32", "::1": "::1/128",
		"::ffff:10.0.0.0/104": "10.0.0.0/8", "fe80::1%eth0": "fe80::1/128", "::ffff:1.2.3.4": "1.2.3.4/32",
	} {
		if got, err := config.ParsePrefix(value); err != nil || got.String() != want {
			t.Errorf("ParsePrefix(%q) = %v, %v, want %s", value, got, err, want)
		}
	}
	for _, value := range []string{"", "10.0.0.0/33", "host", "::ffff:0.0.0.0/64"} {
		if got, err := config.ParsePrefix(value); err == nil {
			t.Errorf("ParsePrefix(%q) = %v, want an error", value, got)
		}
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "127.9.9.9:1": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "192.0.2.1:1": false, "localhost.example:1": false,
	} {
		if got := config.Loopback(address); got != want {
			t.Errorf("Loopback(%q) = %v, want %v", address, got, want)
		}
	}
}
