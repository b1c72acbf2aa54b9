package operations_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// callers send requests from addresses of their own, all the time, and count
// what is answered.
type callers struct {
	all, denied atomic.Int64
}

// call starts n callers that send a request to a URL every so often, until the
// test ends.
func call(t *testing.T, n int, every time.Duration, url string) *callers {
	t.Helper()
	c := &callers{}
	ctx, stop := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	t.Cleanup(func() { stop(); calling.Wait() })
	for i := range n {
		from := net.IPv4(127, 0, 1, byte(i+1))
		client := &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext}}
		calling.Go(func() { c.run(ctx, client, every, url) })
	}
	return c
}

func (c *callers) run(ctx context.Context, client *http.Client, every time.Duration, url string) {
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		response, err := client.Do(request)
		if err != nil {
			continue // the test ends, or the gateway
		}
		_ = response.Body.Close()
		if c.all.Add(1); response.StatusCode == http.StatusTooManyRequests {
			c.denied.Add(1)
		}
	}
}

// expectDenied waits until so many of the requests since were answered 429.
func (c *callers) expectDenied(t *testing.T, since, requests int64) {
	t.Helper()
	if !harness.Eventually(soon, func() bool { return c.denied.Load() >= since+requests }) {
		t.Fatalf("%d requests were answered 429, want %d", c.denied.Load()-since, requests)
	}
}

// expectShare waits until the 429s of so many requests in a row are a share of
// them that is wanted.
func (c *callers) expectShare(t *testing.T, requests int64, what string, wanted func(percent int64) bool) {
	t.Helper()
	var percent int64
	if !harness.Eventually(soon, func() bool {
		all, denied := c.all.Load(), c.denied.Load()
		if !harness.Eventually(soon, func() bool { return c.all.Load() >= all+requests }) {
			return false
		}
		percent = 100 * (c.denied.Load() - denied) / (c.all.Load() - all)
		return wanted(percent)
	}) {
		t.Fatalf("%d %% of the requests are answered 429, want %s", percent, what)
	}
	t.Logf("%s: %d %% of %d requests are answered 429", what, percent, requests)
}

const autoRevert = "auto_revert: {share: 50%, for: 2s, min_requests: 20, watch: 10m}"

// TestAutoRevert is a slip of the finger under traffic: a million an hour become
// a hundred, and are a million again before anybody has looked. However few requests
// a slow machine sends, all are admitted by the one, and hardly any by the other.
func TestAutoRevert(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		dsn := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
		testAutoRevert(t, dsn, 1)
	})
	t.Run("two replicas on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		dsn, _ := onPostgres(t)
		testAutoRevert(t, dsn, 2)
	})
}

func testAutoRevert(t *testing.T, dsn string, replicas int) {
	set := func(endpoint, limit string) {
		harness.Run(t, t.TempDir(), "policy", "set", endpoint, limit, "--db", dsn)
	}
	set("GET /a", "1000000/h")
	set("GET /b", "1000000/h")
	api := harness.NewUpstream(t)
	var gates []*harness.Gateway
	var traffic []*callers
	for range replicas {
		g := replica(t, api, dsn, autoRevert)
		gates = append(gates, g)
		traffic = append(traffic, call(t, 8, 40*time.Millisecond, g.URL+"/a"))
	}
	none := func(percent int64) bool { return percent <= 1 }
	most := func(percent int64) bool { return percent >= 60 }
	for _, c := range traffic {
		c.expectShare(t, 250, "next to none", none)
	}

	began := time.Now()
	denied := make([]int64, len(traffic))
	for i, c := range traffic {
		denied[i] = c.denied.Load()
	}
	set("GET /a", "100/h")
	for i, c := range traffic { // how many, for what share is over when it is taken back
		c.expectDenied(t, denied[i], 20)
	}
	for _, c := range traffic {
		c.expectShare(t, 250, "next to none again", none)
	}
	t.Logf("after %v", time.Since(began).Round(100*time.Millisecond))

	db, err := database.OpenReadOnly(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.History(t.Context(), 0, 10)
	if err != nil || len(list) < 2 || list[0].Action != record.ActionRevert || list[0].Actor != "auto-revert" ||
		list[0].Of != list[0].ID-2 ||
		!strings.HasPrefix(list[0].Why, "GET /a: ") || list[1].Action == record.ActionRevert {
		t.Fatalf("history = %+v, %v, want one version by auto-revert that restores the one before the last", list, err)
	}
	t.Log(list[0].Why)
	reverted, logged := 0, 0
	if !harness.Eventually(soon, func() bool { // it is counted and said after it is in force
		for _, g := range gates {
			if g.Metric(t, `headgate_auto_reverts_total{outcome="reverted"}`) == "1" {
				return g.Says("auto-revert: a change was taken back")
			}
		}
		return false
	}) {
		t.Error("no replica says that it took a change back")
	}
	for _, g := range gates {
		logged += strings.Count(g.Log(), "auto-revert: a change was taken back")
		if g.Metric(t, `headgate_auto_reverts_total{outcome="reverted"}`) == "1" {
			reverted++
		}
		if !harness.Eventually(soon, func() bool { return g.Metric(t, "headgate_auto_revert_in_force") == "1" }) {
			t.Error("headgate_auto_revert_in_force is not 1")
		}
		if state := harness.Get(t, g.Admin+"/v1/policies"); !strings.Contains(state, `"auto_reverted":{"version":`) {
			t.Errorf("GET /v1/policies does not say that a change was taken back:\n%s", state)
		}
	}
	if reverted != 1 || logged != 1 {
		t.Errorf("%d replicas count a revert and %d lines tell of one, want one of each", reverted, logged)
	}

	// Somebody means it: the same again stays.
	set("GET /a", "100/h")
	for _, c := range traffic {
		c.expectShare(t, 50, "most", most)
	}
	for _, c := range traffic { // for three times as long as it takes, and longer on a machine that sends fewer
		all := c.all.Load()
		if !harness.Eventually(soon, func() bool { return c.all.Load() > all+1200 }) {
			t.Fatal("nobody calls any more")
		}
		c.expectShare(t, 50, "most, still", most)
	}
	if now, err := db.Current(t.Context()); err != nil || now.ID != list[0].ID+1 {
		t.Errorf("the newest version is %+v, %v, want the one that somebody insisted on", now, err)
	}
}

// TestAttackTakesNothingBack floods an endpoint, right after another one's rules
// were changed.
func TestAttackTakesNothingBack(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
	set := func(endpoint, limit string) {
		harness.Run(t, t.TempDir(), "policy", "set", endpoint, limit, "--db", dsn)
	}
	set("GET /a", "1000")
	set("GET /b", "1")
	g := replica(t, harness.NewUpstream(t), dsn, autoRevert)
	set("GET /a", "500")
	if !harness.Eventually(soon, func() bool { return g.Metric(t, "headgate_auto_revert_endpoints") == "1" }) {
		t.Fatal("the endpoint whose rules changed is not watched")
	}
	flood := call(t, 8, 10*time.Millisecond, g.URL+"/b")
	flood.expectShare(t, 400, "most", func(percent int64) bool { return percent >= 80 })
	if n := g.Metric(t, `headgate_auto_reverts_total{outcome="reverted"}`); n != "0" {
		t.Errorf("an attack on another endpoint took back %s changes", n)
	}
	if state := harness.Get(t, g.Admin+"/v1/policies"); !strings.Contains(state, `"limit":500`) {
		t.Errorf("the change is not in force any more:\n%s", state)
	}
}
