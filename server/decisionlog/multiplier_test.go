package decisionlog_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/decisionlog"
)

// TestLinesOfALoweredRate: they say to what part the rate of a rule is lowered, the least where there are several, and
// nothing where it is what the rule says.
func TestLinesOfALoweredRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := decisionlog.New(decisionlog.Options{Write: &out, Caller: hashed, PerSecond: 10, Admitted: 1})
		if err != nil {
			t.Fatal(err)
		}
		table := &adaptive.Table{}
		l := limiterWith(t, time.Now, log.Observe, func(o *headgate.Options) { o.Adaptive = table },
			policy.Rule{Endpoint: policy.Default, Limit: 2},
			policy.Rule{Endpoint: policy.All, Subject: policy.SubjectEndpoint, Limit: 100},
			policy.Rule{Endpoint: policy.Default, Limit: 100,
				Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)})
		l.Check(context.Background(), request("a"))
		const at = "GET /v1/items/{id}"
		now := time.Now().UnixNano()
		table.Use(map[string]adaptive.Settings{at: {SLO: time.Second, Floor: adaptive.Whole / 4, AtOnce: true}}, now)
		for range 13 { // to a quarter of rates, and two of how many at once
			for caller := range uint64(60) {
				table.Named(at).Sent(now, caller)
				table.Named(at).Answered(now, caller, 2*time.Second, false)
			}
			table.Named(at).Refused(false, true)
			now += int64(2 * time.Second)
		}
		time.Sleep(time.Duration(now - time.Now().UnixNano()))
		l.Check(context.Background(), request("a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		log.Run(ctx)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || strings.Contains(lines[0], "multiplier") ||
			!strings.Contains(lines[1], `"multiplier":0.2509765625,"at_once":0.330078125`) {
			t.Errorf("%s", out.String())
		}
	})
}
