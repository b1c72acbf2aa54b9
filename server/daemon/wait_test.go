package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

var queue = []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Hour, Burst: 9,
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
	for _, wait := range []time.Duration{0, time.Second, 59 * time.Minute} {
		t.Run(wait.String(), func(t *testing.T) {
			p := newProcess(t, queue, func(c *config.Config) { c.MaxWait = wait })
			p.get(t, 200, 429, 429) // the second would wait an hour, less what passed
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
		t.Error("the first was answered, want it to wait for an hour")
	}
	p.tells(t, "headgate_waiters 0")
}

// TestWhoLeavesBeforeItsTurnIsWrittenDown: the decision log has a line of each caller that left while its request
// waited, and who came in its place is admitted again when the log is replayed, whether rules count answers or not, and
// beside a rule that is tried in shadow and a budget for all.
func TestWhoLeavesBeforeItsTurnIsWrittenDown(t *testing.T) {
	for name, counts := range map[string]string{"all answers": "", "some answers": "2xx"} {
		t.Run(name, func(t *testing.T) {
			rules := slices.Clone(queue)
			rules[0].Per, rules[0].Burst = 20*time.Minute, 3 // so that the third waits for less than an hour
			rules = append(rules,
				policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Hour, Name: "tried",
					Mode: policy.Shadow, Subject: policy.SubjectIP},
				policy.Rule{Endpoint: policy.All, Limit: 5, Per: time.Hour, Name: "all"})
			if counts != "" {
				if err := rules[0].CountWhen.UnmarshalText([]byte(counts)); err != nil {
					t.Fatal(err)
				}
			}
			var conf config.Config
			dir := t.TempDir()
			written, routes := filepath.Join(dir, "decisions.log"), filepath.Join(dir, "routes.txt")
			if err := os.WriteFile(routes, []byte("GET /v1/items/{id}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Run("a gateway", func(t *testing.T) { // whose end writes the last lines
				p := newProcess(t, rules, func(c *config.Config) {
					c.MaxWait, c.Routes = time.Hour, []string{routes}
					c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = written, 1000, 1
					conf = *c
				})
				var all sync.WaitGroup
				come := func(nth int) (leave func()) {
					ctx, leave := context.WithCancel(t.Context())
					all.Go(func() {
						r, err := http.NewRequestWithContext(ctx, "GET", p.gate+"/v1/items/1", nil)
						if err != nil {
							t.Error(err)
							return
						}
						if answer, err := http.DefaultClient.Do(r); err == nil {
							t.Errorf("a request that waits was answered by %d", answer.StatusCode)
							_ = answer.Body.Close()
						}
					})
					p.tells(t, fmt.Sprintf("headgate_waiters %d", nth))
					return leave
				}
				p.get(t, 200)
				first, second := come(1), come(2)
				p.get(t, 429) // there are three places, and one is where the first request was
				first()
				p.tells(t, "headgate_waiters 1")
				third := come(2) // in its place
				p.get(t, 429)
				second()
				third()
				all.Wait()
				p.tells(t, "headgate_waiters 0")
			})
			text, err := os.ReadFile(written)
			if err != nil {
				t.Fatal(err)
			}
			left := 0
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, `"decision":"denied","reason":"abandoned","rule":"`) {
					left++
				}
			}
			if left != 3 {
				t.Errorf("%d callers left by the log, want 3:\n%s", left, text)
			}
			got, side, limiter := decidedAgain(t, conf, rules, written)
			if got.Unread != 0 || got.Requests != 6 || side.Different != 0 || side.Same != 6 {
				t.Errorf("%d requests, %d decided as then, %d otherwise, not read %v; want 6 as then:\n%s",
					got.Requests, side.Same, side.Different, got.Faults, text)
			}
			if s := limiter.Reservations(); s.Outstanding > 1 { // of the first, if answers count
				t.Errorf("%d requests hold something, want none that waits", s.Outstanding)
			}
		})
	}
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
