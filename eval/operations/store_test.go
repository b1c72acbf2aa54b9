package operations_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
)

// Secrets that gateways of a test name buckets under.
var oneSecret, anotherSecret = strings.Repeat("5a", 32), strings.Repeat("b4", 32)

// onStore starts a gateway with two endpoints and a store, whose settings are
// given besides.
func onStore(t *testing.T, api *harness.Upstream, settings ...string) *harness.Gateway {
	t.Helper()
	return harness.Serve(t, storeDir(t, append(settings, "secret_file: one.secret")...), "--config", "headgate.yaml",
		"--routes", "routes.txt", "--upstream", api.URL)
}

// storeDir is a folder with what such a gateway needs.
func storeDir(t *testing.T, settings ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "GET /a\nGET /closed\nGET /share\nGET /open\nGET /leased\nGET /synced\nGET /local\n",
		"one.secret": oneSecret + "\n", "another.secret": anotherSecret + "\n", "password": "wrong-password-of-ours\n",
		"headgate.yaml": "store:\n  " + strings.Join(settings, "\n  ") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// at is the setting that leads to a server.
func at(s *redistest.Server) string { return "redis: [" + s.Socket + "]" }

// metric is the value of a metric without labels.
func metric(t *testing.T, g *harness.Gateway, name string) string {
	t.Helper()
	return g.Metric(t, "headgate_"+name+" ")
}

func expectMetric(t *testing.T, g *harness.Gateway, name, want string) {
	t.Helper()
	if !harness.Eventually(soon, func() bool { return metric(t, g, name) == want }) {
		t.Fatalf("headgate_%s is %q after %v, want %s", name, metric(t, g, name), soon, want)
	}
}

func ready(t *testing.T, g *harness.Gateway) int {
	t.Helper()
	response, err := http.Get(g.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// TestAStoreThatIsAwayAtTheStart starts gateways before their server. They
// serve, and use it once it is there and in order.
func TestAStoreThatIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	api := harness.NewUpstream(t)
	server := redistest.Start(t)
	server.Kill()
	g := onStore(t, api, at(server), "replicas: 4")
	follows := onStore(t, api, at(server), "ready_follows_store: true")
	if response, err := http.Get(g.URL + "/a"); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET /a without a store = %v, %v", response, err)
	}
	expectMetric(t, g, "store_up", "0")
	expectMetric(t, g, "store_replicas", "0")
	expectMetric(t, g, "store_split_divisor", "4")
	if a, b := ready(t, g), ready(t, follows); a != http.StatusOK || b != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d, and %d where it follows the store, want 200 and 503", a, b)
	}
	g.Says("nobody listens there")
	if n := strings.Count(g.Log(), "nobody listens there"); n != 1 {
		t.Errorf("the log says %d times why the store is away, want once:\n%s", n, g.Log())
	}
	server.Start()
	expectMetric(t, g, "store_up", "1")
	expectMetric(t, g, "store_replicas", "2")
	expectMetric(t, follows, "store_up", "1")
	if code := ready(t, follows); code != http.StatusOK {
		t.Errorf("/readyz is %d with the store, want 200", code)
	}
	if !g.Says("the store of shared buckets answers") {
		t.Errorf("the log does not say that the store is back:\n%s", g.Log())
	}
}

// TestReadyAgainWithoutRequests loses the store under a gateway that follows it.
// Once it is not ready nobody sends it requests, and it has to notice by itself
// that the store is back.
func TestReadyAgainWithoutRequests(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := underRules(t, harness.NewUpstream(t), thousand,
		append(patient, at(server), "ready_follows_store: true", "member_ttl: 1s")...)
	expectStatus(t, g, "/closed", http.StatusOK)
	if code := ready(t, g); code != http.StatusOK {
		t.Fatalf("/readyz is %d with the store, want 200", code)
	}
	server.Kill()
	for range 10 {
		if code := get(t, g, "/closed"); code != http.StatusServiceUnavailable {
			t.Errorf("GET /closed = %d without the store, want 503", code)
		}
	}
	if lost, code := metric(t, g, "store_lost"), ready(t, g); lost != "1" || code != http.StatusServiceUnavailable {
		t.Errorf("store_lost %s, /readyz %d, want 1 and 503", lost, code)
	}
	server.Start()
	if !harness.Eventually(soon, func() bool { return ready(t, g) == http.StatusOK }) {
		t.Errorf("/readyz is still %d", ready(t, g))
	}
	if code := get(t, g, "/closed"); code != http.StatusOK {
		t.Errorf("GET /closed = %d once it is ready, want 200", code)
	}
}

// TestNotReadySinceTheStoreIsSlow has the store answer, but later than requests
// wait. Since when that is so is not since when it answers.
func TestNotReadySinceTheStoreIsSlow(t *testing.T) {
	server := redistest.Start(t)
	between := newRelay(t, server)
	g := underRules(t, harness.NewUpstream(t), thousand, fmt.Sprintf("redis: [%q]", between.Addr()),
		"ready_follows_store: true", "deadline: 800ms", "lease_ttl: 1s")
	expectMetric(t, g, "store_up", "1")
	if expectStatus(t, g, "/closed", http.StatusOK); metric(t, g, "store_call_failures_total") != "0" {
		t.Errorf("store_call_failures_total is %s, want 0: a server that has to learn a script answers",
			metric(t, g, "store_call_failures_total"))
	}
	answered := time.Now().Unix() // or before
	if !harness.Eventually(soon, func() bool { return time.Now().Unix() > answered }) {
		t.Fatal("the second does not end")
	}
	slowed := time.Now().Truncate(time.Second) // as the answer tells it
	between.delay.Store(int64(900 * time.Millisecond))
	newCaller(t, 1).keepAsking(t, []*harness.Gateway{g}, "/closed")
	if !harness.Eventually(soon, func() bool { return metric(t, g, "store_lost") == "1" }) {
		t.Fatal("the store is not lost, though it is slower than requests wait")
	}
	response, err := http.Get(g.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("/readyz is %d, %v, want 503", response.StatusCode, err)
	}
	_, text, _ := strings.Cut(string(said), "does not answer in time since ")
	text, _, _ = strings.Cut(text, ".\"")
	if since, err := time.Parse(time.RFC3339, text); err != nil || since.Before(slowed) {
		t.Errorf("/readyz says %s, want since %v or later", said, slowed)
	}
}

// TestGatewaysKnowHowManyTheyAre runs three on one server: one is killed, one
// stops, and the server is killed under those that are left.
func TestGatewaysKnowHowManyTheyAre(t *testing.T) {
	t.Parallel()
	api := harness.NewUpstream(t)
	server := redistest.Start(t)
	var all [3]*harness.Gateway
	for i := range all {
		// Long enough for one that gets no processor for a moment: the others would count it out, and go on with that
		// number once the server is gone.
		all[i] = onStore(t, api, at(server), "member_ttl: 2s")
	}
	for _, g := range all {
		expectMetric(t, g, "store_split_divisor", "3")
		expectMetric(t, g, "store_strangers", "0")
	}
	all[0].Kill()
	expectMetric(t, all[1], "store_split_divisor", "2")
	expectMetric(t, all[2], "store_split_divisor", "2")
	server.Kill()
	expectMetric(t, all[1], "store_up", "0")
	if got := metric(t, all[1], "store_split_divisor"); got != "2" {
		t.Errorf("without the server it divides by %s, want still 2", got)
	}
	server.Start()
	expectMetric(t, all[1], "store_up", "1")
	expectMetric(t, all[2], "store_up", "1")
	expectMetric(t, all[1], "store_replicas", "2")
	if err := all[1].Stop(); err != nil {
		t.Fatal(err)
	}
	if left := server.Do("HLEN", "hg{members}"); left != int64(2) {
		t.Errorf("the list of members has %v fields after one said that it leaves, want that of the other and the "+
			"list's own", left)
	}
	expectMetric(t, all[2], "store_split_divisor", "1")
}

// TestAnotherSecretIsSaid runs two gateways that could never share a bucket.
func TestAnotherSecretIsSaid(t *testing.T) {
	t.Parallel()
	api := harness.NewUpstream(t)
	server := redistest.Start(t)
	g := onStore(t, api, at(server), "member_ttl: 600ms")
	dir := storeDir(t, at(server), "member_ttl: 600ms", "secret_file: another.secret")
	harness.Serve(t, dir, "--config", "headgate.yaml", "--routes", "routes.txt", "--upstream", api.URL)
	expectMetric(t, g, "store_strangers", "1")
	if want := "name buckets under another secret"; !g.Says(want) {
		t.Errorf("the log does not say %q", want)
	}
	for _, secret := range []string{oneSecret, anotherSecret} {
		if strings.Contains(g.Log(), secret) || strings.Contains(fmt.Sprint(server.Do("HGETALL", "hg{members}")),
			secret) {
			t.Error("a secret is in the log or on the server")
		}
	}
}
