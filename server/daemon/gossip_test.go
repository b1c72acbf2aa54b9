package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// Three gateways without a store keep one limit: what one admits the others know within a moment,
// and one that comes later as well.
func TestGatewaysKeepALimitByGossip(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "gossip.secret")
	if err := os.WriteFile(secret, []byte("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	first := fmt.Sprintf("127.0.0.1:%d", port)
	rules := []policy.Rule{{Endpoint: "default", Limit: 30, Per: time.Hour, Scope: policy.Gossip}}
	start := func(listen string, join ...string) *process {
		return newProcess(t, rules, func(c *config.Config) {
			c.Gossip.Listen, c.Gossip.Join, c.Gossip.SecretFile = listen, join, secret
		})
	}
	// until waits for what the metrics or an explanation of a gateway must say.
	until := func(p *process, path, says string) {
		t.Helper()
		eventually(t, path+" says "+says, func() bool {
			_, body := call(t, "GET", p.admin+path, "")
			return strings.Contains(body, says)
		})
	}
	const explain = "/v1/explain?method=GET&target=%2Fv1%2Fitems%2F2"
	get := func(p *process, times, want int) {
		t.Helper()
		for i := range times {
			if code, _ := call(t, "GET", p.gate+"/v1/items/1", ""); code != want {
				t.Fatalf("request %d of %d is answered %d, want %d", i+1, times, code, want)
			}
		}
	}

	a := start(first)
	b := start("127.0.0.1:0", first)
	until(a, "/metrics", "headgate_gossip_replicas 2\n")
	until(b, "/metrics", "headgate_gossip_replicas 2\n")
	get(a, 20, 200)
	until(b, explain, `"remaining":9,`) // and one that is looked at
	get(b, 10, 200)
	get(b, 1, 429)
	// Not "remaining":0, which is true one token early: an explanation counts the request it is about.
	until(a, explain, `"verdict":{"allowed":false,`)
	get(a, 1, 429)

	c := start("127.0.0.1:0", first)
	until(c, "/metrics", "headgate_gossip_replicas 3\n")
	until(c, "/metrics", "headgate_gossip_joining 0\n")
	get(c, 1, 429)
	until(c, "/metrics", `headgate_envelope_burst_tokens{rule="default",scope="gossip"} 90`)
}
