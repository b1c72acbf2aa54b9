package operations_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// fifty is the limit of most of these tests, for each caller: a burst, and so
// few a second that callers are denied on a machine that has no time for them.
var fifty = rate.Limit{Tokens: 50, Per: 5 * time.Second, Burst: 50}

// patient are settings under which a healthy store is not taken for lost, on a
// machine that is busy with other tests.
var patient = []string{"deadline: 500ms", "lease_ttl: 500ms"}

// several starts gateways on one store, which all have the same rules.
func several(t *testing.T, n int, upstream string, rules string, settings ...string) []*harness.Gateway {
	t.Helper()
	dir := storeDir(t, append(settings, "secret_file: one.secret")...)
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte("rules:\n"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, dir, "policy", "import", "rules.yaml", "--db", "sqlite:headgate.db")
	all := make([]*harness.Gateway, n)
	for i := range all {
		all[i] = harness.Serve(t, dir, "--config", "headgate.yaml", "--routes", "routes.txt", "--upstream", upstream)
	}
	for _, g := range all {
		expectMetric(t, g, "policy_rules", strconv.Itoa(strings.Count(rules, "endpoint:")))
	}
	return all
}

// lasting is a rule whose buckets stay on the server for a while.
const lasting = "  - {endpoint: GET /a, limit: 50, per: 3600s, scope: strict}\n"

// holder is which of the servers has the bucket of a caller under the lasting
// rule, the only one that was asked.
func holder(t *testing.T, servers []*redistest.Server) int {
	t.Helper()
	for i, s := range servers {
		for _, key := range s.Do("KEYS", "hg{*").([]any) {
			if key != "hg{members}" {
				return i
			}
		}
	}
	t.Fatal("no server has a bucket")
	return 0
}

// callersOn are two callers, whose buckets one server has, and another one.
func callersOn(t *testing.T, g *harness.Gateway, servers []*redistest.Server, first int) (at, elsewhere *caller) {
	t.Helper()
	for n := byte(10); at == nil || elsewhere == nil; n++ {
		c := newCaller(t, n)
		if status := c.get(g, "/a"); status != http.StatusOK {
			t.Fatalf("GET /a = %d", status)
		}
		if holder(t, servers) == first {
			at = c
		} else {
			elsewhere = c
		}
		for _, s := range servers {
			for _, key := range s.Do("KEYS", "hg{*").([]any) {
				if key != "hg{members}" {
					s.Do("DEL", key.(string))
				}
			}
		}
	}
	return at, elsewhere
}

// lostServer is whether a gateway decides without a server.
func lostServer(t *testing.T, g *harness.Gateway, s *redistest.Server) string {
	t.Helper()
	return g.Metric(t, fmt.Sprintf("headgate_store_server_lost{server=%q}", s.Address()))
}

// TestOnACluster runs two gateways on one, first whole and then with a member
// that dies.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t)
	t.Run("rules over two members", func(t *testing.T) { rulesOverTwoMembers(t, servers) })
	for _, s := range servers {
		s.Do("FLUSHALL")
	}
	t.Run("a member fails over", func(t *testing.T) { aMemberFailsOver(t, servers) })
}

// aMemberFailsOver kills a member. Those whose buckets it has get what their
// rules say, until its replica has taken over; the others go on as before.
func aMemberFailsOver(t *testing.T, servers []*redistest.Server) {
	replica := redistest.Replica(t, servers[0], servers)
	for _, s := range append(servers[:3:3], replica) {
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	api := newLedger(t)
	gateways := several(t, 2, api.URL, lasting+"  - {endpoint: GET /closed, limit: 50, per: 5s, scope: strict}\n  "+
		"- {endpoint: GET /share, limit: 50, per: 5s, scope: strict, on_store_loss: share}\n  - {endpoint: GET "+
		"/synced, limit: 50, per: 5s, scope: sync, on_store_loss: share}\n",
		fmt.Sprintf("redis: [%q]", servers[1].Address()), "cluster: true", "ready_follows_store: true", "deadline: 3s",
		"lease_ttl: 3s")
	victim, other := callersOn(t, gateways[0], servers, 0)
	for _, g := range gateways {
		expectMetric(t, g, "store_replicas", "2")
	}
	stop := []func(){victim.keepAsking(t, gateways, "/closed", "/share", "/synced"),
		other.keepAsking(t, gateways, "/closed", "/synced")}
	for _, c := range []*caller{victim, other} {
		awaitCount(t, c, "/closed", http.StatusTooManyRequests, 20)
		awaitCount(t, c, "/synced", http.StatusTooManyRequests, 20)
	}
	servers[0].Kill()
	for _, g := range gateways { // by what stays said: the replica takes over meanwhile
		if !g.Says("requests are decided without the store") {
			t.Fatal("requests are still decided with the member that is gone")
		}
		if code := ready(t, g); code != http.StatusOK {
			t.Errorf("/readyz is %d while two of three members are there, want 200", code)
		}
		for _, s := range servers[1:] {
			if got := lostServer(t, g, s); got != "0" {
				t.Errorf("%s counts as lost: %q", s.Address(), got)
			}
		}
	}
	for _, path := range []string{"/share", "/synced"} {
		awaitCount(t, victim, path, http.StatusOK, victim.count(path, http.StatusOK)+10)
	}
	// a slow machine sends few until the replica has taken over
	awaitCount(t, victim, "/closed", http.StatusServiceUnavailable, 1)
	for _, g := range gateways {
		if !harness.Eventually(soon, func() bool {
			return metric(t, g, "store_lost") == "0" && lostServer(t, g, replica) == "0"
		}) {
			t.Errorf("after the failover: store_lost %s, and of the new primary %q", metric(t, g, "store_lost"),
				lostServer(t, g, replica))
		}
		if n := strings.Count(g.Log(), "requests are decided without the store"); n != 1 ||
			!strings.Contains(g.Log(), "server="+servers[0].Address()) {
			t.Errorf("the log says %d times that a server is lost, want once, of %s", n, servers[0].Address())
		}
	}
	for _, path := range []string{"/closed", "/synced"} {
		awaitCount(t, victim, path, http.StatusOK, victim.count(path, http.StatusOK)+20)
	}
	for _, s := range stop {
		s()
	}
	// No request waits for a member that it does not need, however long those wait that do.
	if refused := other.count("/closed", http.StatusServiceUnavailable) + other.count("/synced",
		http.StatusServiceUnavailable); refused > 0 {
		t.Errorf("%d requests were refused whose buckets are elsewhere, want none", refused)
	}
	api.within(t, other, "/closed", fifty, bucket.Strict, 2, 0)
	api.within(t, other, "/synced", fifty, bucket.Sync, 2, 0)
	// The replica may not have heard of the last debts.
	lost := lossOf(t, gateways)
	api.within(t, victim, "/closed", fifty, bucket.Strict, 2, lost.adds(t, fifty, bucket.LossClosed, true))
	api.within(t, victim, "/share", fifty, bucket.Strict, 2, lost.adds(t, fifty, bucket.LossShare, true))
	api.within(t, victim, "/synced", fifty, bucket.Sync, 2,
		lost.adds(t, fifty, bucket.LossShare, true)+untold(t, fifty, 2, true))
	for _, c := range []*caller{victim, other} {
		if c.late > 0 {
			t.Errorf("%d requests of %s took longer than %v", c.late, c.name, slow)
		}
	}
}

// awaitCount waits until so many requests got a status.
func awaitCount(t *testing.T, c *caller, path string, status, n int) {
	t.Helper()
	if !harness.Eventually(soon, func() bool { return c.count(path, status) >= n }) {
		t.Fatalf("GET %s of %s was answered %d %d times after %v, want %d: %v", path, c.name, status,
			c.count(path, status), soon, n, c.answers(path))
	}
}

// rulesOverTwoMembers has a request meet a bucket of its caller and one of all
// callers, which another member has.
func rulesOverTwoMembers(t *testing.T, servers []*redistest.Server) {
	api := newLedger(t)
	gateways := several(t, 2, api.URL, "  - {endpoint: GET /closed, limit: 4, per: 3600s, scope: strict}\n  - "+
		"{endpoint: '*', limit: 10, per: 3600s, scope: strict, subject: endpoint}\n",
		// Longer than patient: an answer that came too late would have taken a token, and the sums below are exact.
		fmt.Sprintf("redis: [%q]", servers[0].Address()), "cluster: true", "deadline: 3s", "lease_ttl: 3s")
	total, whole := 0, 0
	for n := byte(20); n < 24; n++ {
		c := newCaller(t, n)
		for i := range 6 {
			c.get(gateways[i%2], "/closed")
		}
		admitted := c.count("/closed", http.StatusOK)
		total += admitted
		if admitted == 4 {
			whole++
		}
		if denied := c.count("/closed", http.StatusTooManyRequests); denied != 6-admitted || admitted > 4 {
			t.Errorf("%s was admitted %d of 6 times and denied %d times, want 4 at most", c.name, admitted, denied)
		}
	}
	if total != 10 || whole != 2 {
		t.Errorf("%d were admitted, and two callers got %d times all of theirs; want the ten of all together: 4, "+
			"4, 2 and 0", total, whole)
	}
	used := 0
	for _, s := range servers {
		if holds := s.Do("DBSIZE").(int64); holds > 0 {
			used++
		}
	}
	if used < 2 {
		t.Error("one member has all buckets: this tests nothing")
	}
}

// TestSentinelsFailOver kills the primary that sentinels watch under a gateway.
func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	primary := redistest.StartOnPort(t)
	replica := redistest.StartOnPort(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port))
	replica.Await("INFO replication", func(answer any, _ error) bool {
		text, _ := answer.(string)
		return strings.Contains(text, "master_link_status:up")
	})
	port := redistest.Sentinel(t, primary)
	api := newLedger(t)
	gateways := several(t, 1, api.URL, "  - {endpoint: GET /closed, limit: 50, per: 5s, scope: strict}\n  - "+
		"{endpoint: GET /share, limit: 50, per: 5s, scope: strict, on_store_loss: share}\n",
		append(patient, fmt.Sprintf("redis: [\"127.0.0.1:%d\"]", port), "sentinel: headgate",
			"ready_follows_store: true")...)
	g := gateways[0]
	expectMetric(t, g, "store_up", "1")
	c := newCaller(t, 9)
	stop := c.keepAsking(t, gateways, "/closed", "/share")
	awaitCount(t, c, "/closed", http.StatusTooManyRequests, 20)
	primary.Kill()
	// each is so until the replica has taken over, and is asked for by itself
	lost, named, unready := false, false, false
	if !harness.Eventually(soon, func() bool {
		lost = lost || metric(t, g, "store_lost") == "1"
		named = named || g.Metric(t, `headgate_store_server_lost{server="headgate"}`) == "1"
		unready = unready || ready(t, g) == http.StatusServiceUnavailable
		return lost && named && unready
	}) {
		t.Fatalf("of a primary that is gone: the store is lost %t, that server is %t, the gateway is not ready %t, "+
			"want all of it", lost, named, unready)
	}
	awaitCount(t, c, "/share", http.StatusOK, c.count("/share", http.StatusOK)+10)
	if !harness.Eventually(soon, func() bool {
		return metric(t, g, "store_lost") == "0" && ready(t, g) == http.StatusOK
	}) {
		t.Fatal("the new primary is not found")
	}
	awaitCount(t, c, "/closed", http.StatusOK, c.count("/closed", http.StatusOK)+20)
	stop()
	fault := lossOf(t, gateways) // the replica may not have heard of the last debts
	api.within(t, c, "/closed", fifty, bucket.Strict, 1, fault.adds(t, fifty, bucket.LossClosed, true))
	api.within(t, c, "/share", fifty, bucket.Strict, 1, fault.adds(t, fifty, bucket.LossShare, true))
	if c.late > 0 {
		t.Errorf("%d requests took longer than %v", c.late, slow)
	}
}
