package operations_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// relay passes connections on to a server, and holds every piece of them back
// for a time that a test sets.
type relay struct {
	net.Listener
	to    string
	delay atomic.Int64
	cut   atomic.Bool // nothing passes
}

func newRelay(t *testing.T, s *redistest.Server) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := &relay{Listener: l, to: s.Socket}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", r.to)
			if err == nil && r.cut.Load() {
				_ = to.Close()
				err = net.ErrClosed
			}
			if err != nil {
				_ = from.Close()
				continue
			}
			go r.pass(to, from)
			go r.pass(from, to)
		}
	}()
	return r
}

func (r *relay) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		time.Sleep(time.Duration(r.delay.Load()))
		if r.cut.Load() {
			return
		}
		if _, errWrite := to.Write(piece[:n]); err != nil || errWrite != nil {
			return
		}
	}
}

// thousand is a limit for tests in which few are denied.
var thousand = rate.Limit{Tokens: 1000, Per: time.Second, Burst: 1000}

// underRules starts a gateway whose endpoints say different things about the
// loss of the store.
func underRules(t *testing.T, api *harness.Upstream, limit rate.Limit, settings ...string) *harness.Gateway {
	t.Helper()
	g := onStore(t, api, settings...)
	for _, r := range [][]string{
		{"GET /closed", "--scope", "strict"}, {"GET /share", "--scope", "strict", "--on-store-loss", "share"},
		{"GET /open", "--scope", "strict", "--on-store-loss", "open"},
		{"GET /leased", "--scope", "lease", "--on-store-loss", "share"},
		{"GET /synced", "--scope", "sync", "--on-store-loss", "share"}, {"GET /local"},
	} {
		harness.Run(t, g.Dir, append([]string{"policy", "set", r[0], fmt.Sprint(limit.Tokens), "--per",
			limit.Per.String(), "--db", "sqlite:headgate.db"}, r[1:]...)...)
	}
	if !harness.Eventually(soon, func() bool { return g.Metric(t, "headgate_policy_rules ") == "6" }) {
		t.Fatal("the rules are not in force")
	}
	return g
}

// get is the status of a request.
func get(t *testing.T, g *harness.Gateway, path string) int {
	t.Helper()
	response, err := http.Get(g.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

func expectStatus(t *testing.T, g *harness.Gateway, path string, want int) {
	t.Helper()
	got := 0
	if !harness.Eventually(soon, func() bool { got = get(t, g, path); return got == want }) {
		t.Errorf("GET %s = %d after %v, want %d", path, got, soon, want)
	}
}

// TestStoreFaults breaks the server of a running gateway in every way there
// is. Requests go on as their rules say, and when the server is mended they are
// counted there again, without a restart.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		make  func(*redistest.Server, *relay)
		mend  func(*redistest.Server, *relay)
	}{
		{"killed", func(s *redistest.Server, _ *relay) { s.Kill() }, func(s *redistest.Server, _ *relay) { s.Start() }},
		{"frozen", func(s *redistest.Server, _ *relay) { s.Freeze() },
			func(s *redistest.Server, _ *relay) { s.Thaw() }},
		{"no memory left", func(s *redistest.Server, _ *relay) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server, _ *relay) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
		{"made a replica", func(s *redistest.Server, _ *relay) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server, _ *relay) { s.Do("REPLICAOF", "NO", "ONE") }},
		{"may not run scripts", func(s *redistest.Server, _ *relay) {
			s.Do("ACL", "SETUSER", "default", "-@scripting")
		}, func(s *redistest.Server, _ *relay) { s.Do("ACL", "SETUSER", "default", "+@all") }},
		{"slow", func(_ *redistest.Server, r *relay) { r.delay.Store(int64(600 * time.Millisecond)) },
			func(_ *redistest.Server, r *relay) { r.delay.Store(0) }},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			between, api := newRelay(t, server), newLedger(t)
			g := underRules(t, api.upstream(), fifty,
				append(patient, "redis: [\""+between.Addr().String()+"\"]", "member_ttl: 1s")...)
			load := newCaller(t, 1)
			paths := []string{"/closed", "/share", "/leased", "/synced", "/local"}
			stop := load.keepAsking(t, []*harness.Gateway{g}, paths...)
			for _, path := range paths {
				awaitCount(t, load, path, http.StatusTooManyRequests, 5)
			}
			c.make(server, between)
			if !harness.Eventually(soon, func() bool { return metric(t, g, "store_lost") == "1" }) {
				t.Fatal("requests are still decided with the store")
			}
			for path, want := range map[string]int{
				"/closed": http.StatusServiceUnavailable,
				"/share":  http.StatusOK,
				"/leased": http.StatusOK,
				"/synced": http.StatusOK,
				"/local":  http.StatusOK,
			} {
				awaitCount(t, load, path, want, load.count(path, want)+10)
			}
			expectStatus(t, g, "/open", http.StatusOK)
			if !g.Says("requests are decided without the store of shared buckets") {
				t.Error("the log does not say that the store is lost")
			}
			c.mend(server, between)
			// It is found with and without requests.
			if !harness.Eventually(soon, func() bool { return metric(t, g, "store_lost") == "0" }) {
				t.Error("the store stays lost after it was mended")
			}
			for _, path := range paths {
				awaitCount(t, load, path, http.StatusOK, load.count(path, http.StatusOK)+10)
			}
			stop()
			if load.late > 0 {
				t.Errorf("%d requests took longer than %v, with a deadline of half a second", load.late, slow)
			}
			losses, failed := number(t, g, "headgate_store_losses_total "),
				number(t, g, `headgate_store_without_total{outcome="failed"}`)
			// Twenty within a second open the breaker, however they fail, and eight are under way meanwhile.
			if most := 40 * losses; failed > most {
				t.Errorf("%d requests waited for a store that was away and lost %d times, want %d at most",
					failed, losses, most)
			}
			empty := c.fault == "killed" // it comes back so
			lost, store := lossOf(t, []*harness.Gateway{g}), fifty
			api.within(t, load, "/local", fifty, bucket.Local, 1, 0)
			api.within(t, load, "/closed", fifty, bucket.Strict, 1, lost.adds(t, store, bucket.LossClosed, empty))
			api.within(t, load, "/share", fifty, bucket.Strict, 1, lost.adds(t, store, bucket.LossShare, empty))
			api.within(t, load, "/synced", fifty, bucket.Sync, 1, lost.adds(t, store, bucket.LossShare, empty)+
				untold(t, fifty, 1, empty))
			store, _ = leased(t, fifty, 1)
			api.within(t, load, "/leased", fifty, bucket.Lease, 1, lost.adds(t, store, bucket.LossShare, empty))
		})
	}
}

// number is the value of a metric that is a whole number.
func number(t *testing.T, g *harness.Gateway, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(g.Metric(t, name), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestSmallStoreFaults are those that no request is to notice, or only those of
// one bucket.
func TestSmallStoreFaults(t *testing.T) {
	t.Parallel()
	server, api := redistest.Start(t), newLedger(t)
	g := underRules(t, api.upstream(), fifty, at(server), "deadline: 3s", "lease_ttl: 3s")
	load := newCaller(t, 5)
	paths := []string{"/closed", "/share", "/leased", "/synced"}
	stop := load.keepAsking(t, []*harness.Gateway{g}, paths...)
	denied := func() {
		t.Helper()
		for _, path := range paths {
			awaitCount(t, load, path, http.StatusTooManyRequests, load.count(path, http.StatusTooManyRequests)+10)
		}
	}
	for range 5 {
		server.Do("SCRIPT", "FLUSH")
		denied()
	}
	for range 2 {
		server.Do("FLUSHALL")
		denied()
	}
	stop()
	for _, path := range paths {
		if n := load.count(path, http.StatusServiceUnavailable); n > 0 {
			t.Errorf("GET %s: %d requests were refused while scripts and debts were forgotten, want none", path, n)
		}
	}
	server.Do("FLUSHALL")
	for _, path := range paths { // who was denied may be so for as long as it was told
		if !harness.Eventually(soon, func() bool { return load.get(g, path) == http.StatusOK }) {
			t.Errorf("GET %s is denied %v after all was forgotten", path, soon)
		}
	}
	server.Do("SCRIPT", "FLUSH")
	for _, path := range paths[:2] { // what is leased is asked for when it is needed
		if got := load.get(g, path); got != http.StatusOK {
			t.Errorf("GET %s = %d after the scripts were forgotten, want 200", path, got)
		}
	}
	// Something else under the name of one bucket is replaced by a bucket that owes its burst, and
	// stands in the way of no other.
	expectMetric(t, g, "sync_pending_tokens", "0") // or the store would be told of them after this
	server.Do("FLUSHALL")
	var name string
	if !harness.Eventually(soon, func() bool { // a gateway that was told to wait does not ask the store meanwhile
		load.get(g, "/closed")
		for _, key := range server.Do("KEYS", "*").([]any) {
			if key != "hg{members}" {
				name = key.(string)
			}
		}
		return name != ""
	}) {
		t.Fatal("no bucket is in the store")
	}
	server.Do("DEL", name)
	server.Do("LPUSH", name, "x")
	before := load.count("/closed", http.StatusTooManyRequests)
	stop = load.keepAsking(t, []*harness.Gateway{g}, paths...)
	awaitCount(t, load, "/closed", http.StatusTooManyRequests, before+50)
	expectMetric(t, g, "store_mended_total", "1")
	refused := 0
	for _, path := range paths {
		refused += load.count(path, http.StatusServiceUnavailable)
	}
	if refused != 0 || metric(t, g, "store_lost") != "0" {
		t.Errorf("with a list in place of one bucket %d requests were refused, and the store counts as lost: %s; "+
			"want 0 and 0", refused, metric(t, g, "store_lost"))
	}
	denied()
	stop()
	// Four times all was forgotten.
	const all = 4
	api.within(t, load, "/closed", fifty, bucket.Strict, 1, all*fifty.Burst)
	api.within(t, load, "/share", fifty, bucket.Strict, 1, all*fifty.Burst)
	api.within(t, load, "/synced", fifty, bucket.Sync, 1, all*(fifty.Burst+untold(t, fifty, 1, true)))
	rest, _ := leased(t, fifty, 1)
	// leases are good for three seconds here, in which less drains
	api.within(t, load, "/leased", fifty, bucket.Lease, 1, all*rest.Burst+rest.Tokens)
}

// TestOneBudgetOverGateways has three gateways spend what one may.
func TestOneBudgetOverGateways(t *testing.T) {
	t.Parallel()
	dsn, _ := onPostgres(t)
	server := redistest.Start(t)
	api := harness.NewUpstream(t)
	for endpoint, scope := range map[string]string{"GET /closed": "strict", "GET /leased": "lease",
		"GET /share": "split"} {
		harness.Run(t, t.TempDir(), "policy", "set", endpoint, "60", "--per", "3600s", "--scope", scope, "--db", dsn)
	}
	var all [3]*harness.Gateway
	for i := range all {
		dir := storeDir(t, append(patient, at(server), "secret_file: one.secret")...)
		all[i] = harness.Serve(t, dir, "--config", "headgate.yaml", "--routes", "routes.txt", "--upstream",
			api.URL, "--db", dsn)
	}
	for _, g := range all {
		expectMetric(t, g, "policy_rules", "3")
		expectMetric(t, g, "store_split_divisor", "3")
	}
	for path, least := range map[string]int{"/closed": 60, "/leased": 40, "/share": 20} {
		admitted, late := 0, 0
		for n := range 180 {
			switch get(t, all[n%3], path) {
			case http.StatusOK:
				admitted++
			// on a busy machine the store may answer too late, and have taken a token
			case http.StatusServiceUnavailable:
				late++
			}
		}
		if admitted > 61 || admitted+late < least {
			t.Errorf("GET %s: three gateways admitted %d, and the store was late for %d, want %d to 60", path,
				admitted, late, least)
		}
	}
}

// TestAFrozenStoreUnderLoad measures what requests wait for while the server is
// frozen, and how soon they wait no longer. `make scaling` freezes it for longer.
func TestAFrozenStoreUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := underRules(t, harness.NewUpstream(t), thousand, at(server))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: time.Minute}
	load := func(lasts time.Duration) (took []time.Duration, statuses map[int]int) {
		statuses = map[int]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		end := time.Now().Add(lasts)
		for range 8 {
			wg.Go(func() {
				for tick := time.NewTicker(20 * time.Millisecond); time.Now().Before(end); <-tick.C {
					began := time.Now()
					response, err := client.Get(g.URL + "/share")
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					mu.Lock()
					took, statuses[response.StatusCode] = append(took, time.Since(began)),
						statuses[response.StatusCode]+1
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		return took, statuses
	}
	quiet, before := load(time.Second)
	// On a busy machine it may have been lost for a moment already.
	if !harness.Eventually(soon, func() bool { get(t, g, "/share"); return metric(t, g, "store_lost") == "0" }) {
		t.Fatal("the store stays lost while it is there")
	}
	losses := func() int { return strings.Count(g.Log(), "requests are decided without the store") }
	lossesBefore, lost := metric(t, g, "store_losses_total"), losses()
	server.Freeze()
	froze := time.Now()
	opened := make(chan time.Duration, 1)
	go func() {
		for losses() == lost && time.Since(froze) < soon {
			time.Sleep(5 * time.Millisecond)
		}
		opened <- time.Since(froze)
	}()
	frozen, during := load(3 * time.Second)
	server.Thaw()
	p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100].Round(10 * time.Microsecond) }
	t.Logf("quiet: %d requests, p99 %v, max %v, %v", len(quiet), p99(quiet), quiet[len(quiet)-1], before)
	t.Logf("frozen: %d requests, p99 %v, max %v, %v; decided without the store after %v", len(frozen), p99(frozen),
		frozen[len(frozen)-1], during, (<-opened).Round(time.Millisecond))
	if metric(t, g, "store_losses_total") == lossesBefore {
		t.Error("the store was never taken for lost")
	}
	// Eight requests at a time and five failures in a row: few of them meet the frozen server.
	if during[http.StatusServiceUnavailable] > 100 {
		t.Errorf(
			"%d of %d requests were refused because the store did not answer, want those before the breaker "+
				"opened", during[http.StatusServiceUnavailable], len(frozen))
	}
	if !harness.Eventually(soon, func() bool { get(t, g, "/share"); return metric(t, g, "store_lost") == "0" }) {
		t.Error("the store stays lost after it went on")
	}
}
