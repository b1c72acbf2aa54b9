package daemon_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

var queue = []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: 60e9, Burst: 9,
	Algorithm: policy.LeakyBucket}}

// tells asks for the metrics until they hold a line.
func (p *process) tells(t *testing.T, line string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, page := call(t, "GET", p.admin+"/metrics", "")
		if strings.Contains(page, "\n"+line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the metrics lack %s:\n%s", line, ours(page))
		}
	}
}

func TestRequestsWaitAsLongAsTheConfigurationSays(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, 59 * time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			p := newProcess(t, queue, func(c *config.Config) { c.MaxWait = wait })
			p.get(t, 200, 429, 429) // the second would wait a minute, less what passed
			p.tells(t, "headgate_waiters 0")
			p.tells(t, "headgate_waiters_capacity 1024")
		})
	}
}

func TestAsManyRequestsWaitAsTheConfigurationSays(t *testing.T) {
	p := newProcess(t, queue, func(c *config.Config) { c.MaxWait, c.MaxWaiters = time.Hour, 1 })
	p.get(t, 200)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "GET", p.gate+"/v1/items/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		left <- err
	}()
	p.tells(t, "headgate_waiters 1")
	p.tells(t, "headgate_waiters_capacity 1")
	p.get(t, 429, 429) // though the queue has room for eight
	leave()
	if err := <-left; err == nil {
		t.Error("the first was answered, want it to wait for a minute")
	}
	p.tells(t, "headgate_waiters 0")
}

func TestMetricsTellOfLogs(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 2, Per: 3600e9,
		Algorithm: policy.SlidingLog}})
	p.tells(t, "headgate_logs 0")
	p.tells(t, "headgate_logs_capacity 65536")
	p.get(t, 200, 200, 429)
	p.tells(t, "headgate_logs 1")
	p.tells(t, "headgate_buckets 0")
}
