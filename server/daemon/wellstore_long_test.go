//go:build long

package daemon_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestAStoreThatIsWellDeniesNobody: on a machine whose processors are all taken many times over, requests with room
// under every shared scope are served while the store is there, if they may wait for it; and where they may wait for
// 5 ms alone, the only ones that are answered with 503 are those which the metrics say had no answer in time.
func TestAStoreThatIsWellDeniesNobody(t *testing.T) {
	store := redistest.StartOnPort(t)
	for _, deadline := range []time.Duration{time.Second, config.Default().Store.Deadline} {
		t.Run(deadline.String(), func(t *testing.T) {
			var rules []policy.Rule
			for i, scope := range []policy.Scope{policy.Strict, policy.Lease, policy.Sync, policy.Split} {
				rules = append(rules, policy.Rule{Endpoint: policy.All, Scope: scope, Limit: 1e6, Name: scope.String()})
				if err := rules[i].SetSubject([]string{"principal", "ip", "endpoint", "project"}[i]); err != nil {
					t.Fatal(err)
				}
			}
			rules = append(rules, policy.Rule{Endpoint: policy.Default, Limit: 1e6})
			p := newProcess(t, rules, func(c *config.Config) {
				c.Store.Redis = []string{store.Address()}
				c.Store.Deadline, c.Store.LeaseTTL = deadline, max(deadline, config.Default().Store.LeaseTTL)
			})
			metric := func(name string) (value int64) {
				_, page := call(t, "GET", p.admin+"/metrics", "")
				found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\d+)$`).FindStringSubmatch(page)
				if found == nil {
					t.Fatalf("there is no %s in\n%s", name, page)
				}
				value, _ = strconv.ParseInt(found[1], 10, 64)
				return value
			}
			eventually(t, "a share of what is split", func() bool {
				return metric("headgate_store_split_divisor") == 1
			})
			occupy(t, 4*runtime.NumCPU())
			var callers sync.WaitGroup
			var statuses [600]atomic.Int64
			for range 8 {
				callers.Go(func() {
					for i := range 40 {
						answer, err := http.Get(fmt.Sprint(p.gate, "/v1/items/", i))
						if err != nil {
							t.Error(err)
							return
						}
						_ = answer.Body.Close()
						statuses[answer.StatusCode].Add(1)
					}
				})
			}
			callers.Wait()
			served, failed := statuses[200].Load(), statuses[503].Load()
			said := metric(`headgate_store_without_total{outcome="failed"}`) +
				metric(`headgate_store_without_total{outcome="denied"}`)
			t.Logf("%d served, %d answered with 503, %d without an answer of the store", served, failed, said)
			if served+failed != 8*40 || failed != said {
				t.Errorf("%d served and %d answered with 503, want %d in all, and %d of 503", served, failed, 8*40,
					said)
			}
			if deadline == time.Second && failed > 0 {
				t.Errorf("%d were answered with 503 while the store was well", failed)
			}
		})
	}
}

// occupy has so many processes do nothing as fast as they can, until the test ends.
func occupy(t *testing.T, processes int) {
	t.Helper()
	for range processes {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = busy.Process.Kill()
			_ = busy.Wait() // it was killed
		})
	}
}
