package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// onceEach lets every client in once.
var onceEach = []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}}

// status sends bytes and then a request with the given lines, and returns the
// status, or 0 if the connection is closed without one.
func (p *process) status(t *testing.T, before string, lines ...string) int {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	request := before + "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n"
	for _, line := range lines {
		request += line + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return 0
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// TestStrategies: each finds the client where it should, and no client gets a
// second budget by what it writes itself.
func TestStrategies(t *testing.T) {
	loopback := func(c *config.Config) { c.TrustedProxies = []string{"127.0.0.0/8"} }
	type step struct {
		lines []string
		want  int
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		steps  []step
	}{
		"no proxy": {func(*config.Config) {}, []step{
			{[]string{"X-Forwarded-For: 1.1.1.1"}, 200}, {[]string{"X-Forwarded-For: 2.2.2.2"}, 429},
			{[]string{"CF-Connecting-IP: 3.3.3.3"}, 429},
			{[]string{"X-Middleware-Subrequest: middleware"}, 429}, {[]string{"X-PAN-AUTHCHECK: off"}, 429},
			{[]string{"X-Real-IP: 127.0.0.1"}, 429},
		}},
		"trusted ranges": {loopback, []step{
			{[]string{"X-Forwarded-For: 1.1.1.1"}, 200}, {[]string{"X-Forwarded-For: 6.6.6.6, 1.1.1.1"}, 429},
			{[]string{"x-forwarded-for: 2.2.2.2"}, 200},
			// A field of the connection all the same counts; one with underscores does not.
			{[]string{"X-Forwarded-For: 3.3.3.3", "Connection: X-Forwarded-For"}, 200},
			{[]string{"X-Forwarded-For: 3.3.3.3"}, 429},
			{[]string{"X_Forwarded_For: 4.4.4.4"}, 200}, {[]string{"X_Forwarded_For: 5.5.5.5"}, 429},
		}},
		"trusted count": {func(c *config.Config) {
			c.ClientAddress = config.ClientAddress{Strategy: "trusted_count", Proxies: 2}
		}, []step{
			{[]string{"X-Forwarded-For: 1.1.1.1, 9.9.9.9"}, 200},
			{[]string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 1.1.1.1, 9.9.9.8"}, 429},
			// the peer's, all three
			{[]string{"X-Forwarded-For: 7.7.7.7"}, 200}, {[]string{"X-Forwarded-For: 8.8.8.8"}, 429}, {nil, 429},
		}},
		"single header": {func(c *config.Config) {
			loopback(c)
			c.ClientAddress = config.ClientAddress{Strategy: "single_header", Header: "CF-Connecting-IP"}
		}, []step{
			{[]string{"CF-Connecting-IP: 1.1.1.1", "X-Forwarded-For: 6.6.6.6"}, 200},
			{[]string{"cf-connecting-ip: 1.1.1.1", "X-Forwarded-For: 7.7.7.7"}, 429},
			// the peer's, both
			{[]string{"CF-Connecting-IP: 2.2.2.2", "CF-Connecting-IP: 3.3.3.3"}, 200},
			{[]string{"X-Forwarded-For: 8.8.8.8"}, 429},
			{[]string{"CF-Connecting-IP: 4.4.4.4", "Connection: CF-Connecting-IP"}, 200},
			{[]string{"CF-Connecting-IP: 4.4.4.4"}, 429},
		}},
		"IPv4 by network": {func(c *config.Config) { loopback(c); c.IPv4Prefix = 24 }, []step{
			{[]string{"X-Forwarded-For: 1.1.1.1"}, 200}, {[]string{"X-Forwarded-For: 1.1.1.200"}, 429},
			{[]string{"X-Forwarded-For: 1.1.2.1"}, 200},
		}},
		"NAT64": {func(c *config.Config) { loopback(c); c.NAT64 = []string{"2001:db8:64::/96"} }, []step{
			{[]string{"X-Forwarded-For: 2001:db8:64::1.1.1.1"}, 200},
			{[]string{"X-Forwarded-For: 2001:db8:64::1.1.1.1"}, 429},
			{[]string{"X-Forwarded-For: 2001:db8:64::1.1.1.2"}, 200},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, onceEach, c.change)
			for i, s := range c.steps {
				if got := p.status(t, "", s.lines...); got != s.want {
					t.Errorf("request %d, %q = %d, want %d", i, s.lines, got, s.want)
				}
			}
		})
	}
}

// TestProxyProtocol: the balancer names the peer, whose headers are judged like
// any other's.
func TestProxyProtocol(t *testing.T) {
	from := func(address string) string { return "PROXY TCP4 " + address + " 192.0.2.1 4660 80\r\n" }
	p := newProcess(t, onceEach, func(c *config.Config) {
		c.ProxyProtocol.From = []string{"127.0.0.1"}
		c.TrustedProxies = []string{"10.0.0.0/8"}
	})
	for i, s := range []struct {
		before string
		lines  []string
		want   int
	}{
		{from("203.0.113.1"), nil, 200},
		{from("203.0.113.1"), nil, 429},
		{from("203.0.113.2"), nil, 200},
		{from("203.0.113.2"), []string{"X-Forwarded-For: 6.6.6.6"}, 429}, // no trusted proxy
		// An L7 proxy behind the L4 balancer.
		{from("10.0.0.7"), []string{"X-Forwarded-For: 6.6.6.6, 203.0.113.3"}, 200},
		{from("10.0.0.8"), []string{"X-Forwarded-For: 7.7.7.7, 203.0.113.3"}, 429},
		// The balancer's own, or of a client that it does not know.
		{"PROXY UNKNOWN\r\n", nil, 200},
		{"PROXY UNKNOWN\r\n", []string{"X-Forwarded-For: 6.6.6.6"}, 429},
		{"", nil, 0},
		{"PROXY nonsense\r\n", nil, 0},
		{from("203.0.113.4") + from("203.0.113.5"), nil, 400}, // the second is the client's
	} {
		if got := p.status(t, s.before, s.lines...); got != s.want {
			t.Errorf("request %d, %q with %q = %d, want %d", i, s.before, s.lines, got, s.want)
		}
	}
	_, page := call(t, "GET", p.admin+"/metrics", "")
	for _, want := range []string{
		"headgate_proxy_protocol_connections_total 9\n",
		`headgate_proxy_protocol_refused_total{reason="no_header"} 1`,
		`headgate_proxy_protocol_refused_total{reason="bad_header"} 1`,
		`headgate_proxy_protocol_refused_total{reason="not_balancer"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics do not say %s", want)
		}
	}
}

// TestProxyProtocolOfStrangers: a header from elsewhere is closed on, or no
// HTTP; it is never believed.
func TestProxyProtocolOfStrangers(t *testing.T) {
	for required, want := range map[bool][]int{true: {0, 0, 0}, false: {400, 200, 429}} {
		p := newProcess(t, onceEach, func(c *config.Config) {
			c.ProxyProtocol.From, c.ProxyProtocol.Required = []string{"10.0.0.0/8"}, required
		})
		for i, before := range []string{"PROXY TCP4 203.0.113.1 192.0.2.1 4660 80\r\n", "", ""} {
			if got := p.status(t, before); got != want[i] {
				t.Errorf("required %v, request %d, %q = %d, want %d", required, i, before, got, want[i])
			}
		}
	}
}

// TestRegions: rules count by the table's regions, and the table follows its
// file, unless that is faulty.
func TestRegions(t *testing.T) {
	t.Parallel() // it waits for looks at the file, a second apart
	file := filepath.Join(t.TempDir(), "regions.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("203.0.113.0,203.0.113.127,DE\n203.0.113.128,203.0.113.255,FR\n")
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour,
		Subject: policy.SubjectRegion}}, func(c *config.Config) {
		c.TrustedProxies, c.RegionFiles, c.NAT64 = []string{"127.0.0.0/8"}, []string{file}, []string{"2001:db8:64::/96"}
	})
	for i, s := range []struct {
		client string
		want   int
	}{{"203.0.113.1", 200}, {"203.0.113.2", 429}, {"2001:db8:64::203.0.113.3", 429}, {"203.0.113.200", 200},
		{"198.51.100.1", 200}, {"2001:db8::1", 429}, {"127.0.0.1", 429}} {
		if got := p.status(t, "", "X-Forwarded-For: "+s.client); got != s.want {
			t.Errorf("request %d from %s = %d, want %d", i, s.client, got, s.want)
		}
	}
	explained := func(client string) string {
		_, body := call(t, "GET", fmt.Sprintf("%s/v1/explain?method=GET&target=/v1/items/1&peer=%s", p.admin, client),
			"")
		return body
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after a minute still not: %s", what)
			}
		}
	}
	metric := func(line string) func() bool {
		return func() bool {
			_, page := call(t, "GET", p.admin+"/metrics", "")
			return strings.Contains(page, line+"\n")
		}
	}
	if body := explained("203.0.113.1"); !strings.Contains(body, `"region":"DE"`) {
		t.Errorf("explain = %s, want region DE", body)
	}
	if body := explained("198.51.100.1"); !strings.Contains(body, `"region":"unknown"`) {
		t.Errorf("explain = %s, want region unknown", body)
	}
	if _, body := call(t, "GET", p.admin+"/v1/policies", ""); strings.Contains(body, "unseen") {
		t.Errorf("GET /v1/policies = %s, want no warning that regions are not seen", body)
	}

	write("203.0.113.0,203.0.113.255,NL\n")
	until("the new table is in force", func() bool {
		return strings.Contains(explained("203.0.113.1"),
			`"region":"NL"`)
	})
	write("203.0.113.0,203.0.113.255,NL\nnonsense\n")
	until("the faulty file is counted", metric("headgate_region_reload_failures_total 1"))
	if body := explained("203.0.113.1"); !strings.Contains(body, `"region":"NL"`) {
		t.Errorf("with a faulty file explain = %s, want region NL as before", body)
	}
	if !metric("headgate_region_reload_ok 0")() || !metric("headgate_region_ranges 1")() {
		t.Error("the metrics do not say that the last good table is in force")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until("the missing file is counted", metric("headgate_region_reload_failures_total 2"))
	write("203.0.113.0,203.0.113.255,BE\n")
	until("the mended file is in force", func() bool {
		return strings.Contains(explained("203.0.113.1"),
			`"region":"BE"`)
	})
	if !metric("headgate_region_reload_ok 1")() {
		t.Error("the metrics do not say that the newest files are in force")
	}
}
