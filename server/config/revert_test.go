package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

func TestAutoRevert(t *testing.T) {
	for text, want := range map[string]config.AutoRevert{
		"": {For: 30 * time.Second, MinRequests: 100, MinCallers: 2, Watch: 10 * time.Minute},
		"auto_revert: {share: 50%}": {Share: 50, For: 30 * time.Second, MinRequests: 100, MinCallers: 2,
			Watch: 10 * time.Minute},
		"auto_revert:\n  share: 99%\n  for: 1s\n  min_requests: 20\n  min_callers: 5\n  watch: 2s": {99, time.Second,
			20, 5, 2 * time.Second},
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err != nil || c.AutoRevert != want || c.AutoRevert.On() != (text != "") {
			t.Errorf("%q: %+v with %v, want %+v", text, c.AutoRevert, err, want)
		}
		if w := c.Warnings(); len(w) != 0 {
			t.Errorf("%q: warnings %v, want none", text, w)
		}
	}
}

func TestAutoRevertFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{share: 50}":                          `line 4: auto_revert.share is "50", want a share from 1% to 99%, such as 50%`,
		"{share: 0%}":                          `auto_revert.share is "0%", want a share`,
		"{share: 100%}":                        `auto_revert.share is "100%", want a share`,
		"{share: 050%}":                        `auto_revert.share is "050%", want a share`,
		"{share: 0.5}":                         `auto_revert.share is "0.5", want a share`,
		"{share: -5%}":                         `auto_revert.share is "-5%", want a share`,
		"{share: 50, sahre: 1}":                `auto_revert.share is "50", want a share from 1% to 99%, such as 50%`,
		"{sahre: 50%}":                         `auto_revert.sahre is no setting`,
		"{for: 1m}":                            `auto_revert.share is "", want a share such as 50%`,
		"{share: 50%, for: 1ms}":               `auto_revert.for is "1ms", want 500ms to 1h0m0s`,
		"{share: 50%, for: 6m}":                `auto_revert.watch is "10m0s", want twice auto_revert.for, 12m0s, or more`,
		"{share: 50%, watch: 25h}":             `auto_revert.watch is "25h0m0s", want 1s to 24h0m0s`,
		"{share: 50%, min_requests: 0}":        `auto_revert.min_requests is "0", want 1 to 1000000000`,
		"{share: 50%, min_callers: 0}":         `auto_revert.min_callers is "0", want 1 to 32`,
		"{share: 50%, min_callers: 33}":        `auto_revert.min_callers is "33", want 1 to 32`,
		"{share: 50%}\ndb_table: limits":       `auto_revert.share is "50%", want none with db_table`,
		"{share: 50%}\nreplica_name: a b":      `replica_name is "a b", want 1 to 100 letters`,
		"{share: 50%}\nreplica_interval: 1ms":  `replica_interval is "1ms", want 100ms to 1h0m0s`,
		"{share: 50%}\nreplica_interval: -5s":  `replica_interval is "-5s", want 100ms to 1h0m0s`,
		"{share: 50%}\nreplica_interval: soon": `soon`,
	} {
		c, err := read(t, whole+"auto_revert: "+text+"\n")
		if err == nil {
			err = c.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAutoRevertWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"{share: 50%, min_callers: 1}":   "one client that sends too much takes back",
		"{share: 50%, min_requests: 19}": "so few requests are chance",
		"{share: 19%}":                   "what it was written against",
	} {
		c, err := read(t, whole+"auto_revert: "+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0].String(), want) {
			t.Errorf("%s: warnings %v, want %q", text, w, want)
		}
	}
}
