package operations_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
)

// setClock sets the clock of a gateway, and sees that it goes by that.
func setClock(t *testing.T, g *harness.Gateway, ahead time.Duration) {
	t.Helper()
	if err := g.SetClock(ahead); err != nil {
		t.Fatal(err)
	}
	begun := time.Now().Truncate(time.Second)
	said, err := g.Clock()
	if err != nil || said.Before(begun.Add(ahead)) || said.After(time.Now().Add(ahead)) {
		t.Fatalf("the gateway says that it is %v, %v; want %v after %v", said, err, ahead, begun)
	}
}

// TestClocksThatAreSet sets the clocks of gateways that share limits ten seconds
// forth and back under load, each at another time. What the API receives stays
// within what is published, and nobody loses the store or another gateway.
func TestClocksThatAreSet(t *testing.T) {
	t.Parallel()
	// To set a clock halts a gateway: for a moment, or for longer on a machine that has much else to do.
	const deadline = 3 * time.Second
	r := newReplicas(t, fmt.Sprintf("deadline: %v", deadline), "lease_ttl: 3s", "member_ttl: 5s")
	stop := r.load.keepAsking(t, r.all, ofFour...)
	for _, path := range ofFour {
		awaitCount(t, r.load, path, http.StatusTooManyRequests, 20)
	}
	const step = 10 * time.Second
	for _, clocks := range [][3]time.Duration{{step, -step, 0}, {-step, step, step}, {0, 0, 0}} {
		for i, g := range r.all {
			setClock(t, g, clocks[i])
		}
		for _, path := range ofFour {
			awaitCount(t, r.load, path, http.StatusOK, r.load.count(path, http.StatusOK)+5)
		}
		r.divided(t, r.all, "3")
	}
	stop()
	for _, path := range ofFour {
		if took := r.load.refusedWithin(path); took > 0 && took < deadline {
			t.Errorf("GET %s: a request was refused after %v, want none before %v: %v", path, took, deadline,
				r.load.answers(path))
		}
	}
	for i, g := range r.all {
		if lost, up := metric(t, g, "store_losses_total"), metric(t, g, "store_up"); lost != "0" || up != "1" {
			t.Errorf("gateway %d has lost the store %s times, and store_up is %s; want 0 and 1", i, lost, up)
		}
	}
	rest, _ := leased(t, fifty, 3)
	r.api.within(t, r.load, "/closed", fifty, bucket.Strict, 3, 0)
	// leases are good for three seconds here, in which less drains
	r.api.within(t, r.load, "/leased", fifty, bucket.Lease, 3, rest.Tokens)
	r.api.within(t, r.load, "/synced", fifty, bucket.Sync, 3, 0)
	r.api.within(t, r.load, "/local", fifty, bucket.Split, 3, 0)
}

// TestWhatEndsByTheClock sets the clock of a gateway past the time at which a
// rule, an API key and a token of the admin API end, and back again. They end and
// are there again without a restart, and what is changed meanwhile comes into
// force at once. No bucket fills for it, and none ceases to. The steps are long,
// so that a slow machine does not live to see anything end or fill by itself.
func TestWhatEndsByTheClock(t *testing.T) {
	t.Parallel()
	const ends, step = "1h", 2 * time.Hour
	dir := storeDir(t, "redis: []")
	run := func(args ...string) string {
		cmd := exec.Command(harness.Binary(t), append(args, "--db", "sqlite:headgate.db")...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("headgate %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	run("policy", "set", "GET /a", "1000")
	run("policy", "set", "GET /a", "2000", "--expires", ends)
	run("policy", "set", "GET /closed", "3000")
	run("policy", "set", "GET /closed", "4000", "--project", "acme")
	run("policy", "set", "GET /leased", "1", "--per", ends)
	run("policy", "set", "GET /local", "10", "--burst", "1")
	key := run("key", "create", "--project", "acme", "--name", "test", "--expires", ends)
	token := run("admin", "token", "create", "test", "--role", "read", "--expires", ends)
	g := harness.Serve(t, dir, "--routes", "routes.txt", "--upstream", harness.NewUpstream(t).URL)
	ask := func(url, header, value string) (status int, policy string) {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(header, value)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header.Get("RateLimit-Policy")
	}
	limit := func(path string, n int) func() bool {
		return func() bool {
			_, policy := ask(g.URL+path, "X-Api-Key", key)
			return strings.Contains(policy, fmt.Sprintf(";q=%d;", n))
		}
	}
	expectStatus(t, g, "/leased", http.StatusOK) // all that it has in an hour
	for i, c := range []struct {
		ahead time.Duration
		there bool // what ends
	}{{0, true}, {step, false}, {0, true}, {-step, true}, {step, false}, {0, true}} {
		setClock(t, g, c.ahead)
		if got := get(t, g, "/leased"); got != http.StatusTooManyRequests {
			t.Errorf("step %d, %v ahead: GET /leased = %d, want 429 for an hour, whatever the clock says",
				i, c.ahead, got)
		}
		a, closed, status := 2000, 4000, http.StatusOK
		if !c.there {
			a, closed, status = 1000, 3000, http.StatusUnauthorized
		}
		run("policy", "set", "GET /share", fmt.Sprint(5000+i))
		for what, ok := range map[string]func() bool{
			"the rule that ends":      limit("/a", a),
			"the key that ends":       limit("/closed", closed),
			"the rule that changed":   limit("/share", 5000+i),
			"what drains in a moment": func() bool { return get(t, g, "/local") == http.StatusOK },
			"the token that ends": func() bool {
				got, _ := ask(g.Admin+"/v1/policies", "Authorization", "Bearer "+token)
				return got == status
			},
		} {
			if !harness.Eventually(soon, ok) {
				t.Errorf("step %d, %v ahead: %s is not as it should be after %v", i, c.ahead, what, soon)
			}
		}
		if code := ready(t, g); code != http.StatusOK {
			t.Errorf("step %d: /readyz is %d, want 200", i, code)
		}
	}
}

// TestSinceWhenTheStoreIsLost sets the clock of a gateway, and then loses its
// store: since when, and for how long, is told by the clock as it was set.
func TestSinceWhenTheStoreIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := underRules(t, harness.NewUpstream(t), thousand,
		append(patient, at(server), "ready_follows_store: true", "member_ttl: 1s")...)
	expectStatus(t, g, "/closed", http.StatusOK)
	const ahead = 2 * time.Hour
	setClock(t, g, ahead)
	begun := time.Now().Add(ahead).Truncate(time.Second)
	server.Kill()
	if !harness.Eventually(soon, func() bool { get(t, g, "/closed"); return metric(t, g, "store_lost") == "1" }) {
		t.Fatal("the store is not missed")
	}
	since, err := strconv.ParseFloat(metric(t, g, "store_lost_since_timestamp_seconds"), 64)
	if at := time.Unix(int64(since), 0); err != nil || at.Before(begun) || at.After(time.Now().Add(ahead)) {
		t.Errorf("store_lost_since_timestamp_seconds is %v, %v; want %v or a little later", at, err, begun)
	}
	server.Start()
	if !harness.Eventually(soon, func() bool { get(t, g, "/closed"); return metric(t, g, "store_lost") == "0" }) {
		t.Fatal("the store stays lost")
	}
	if !g.Says("without=") { // which is said after it is so
		t.Fatal("the log does not say that the store is there again")
	}
	for _, a := range absences(t, g) {
		// The end is told to the millisecond.
		if a.from.Before(begun) || a.to.Before(a.from) || a.to.After(time.Now().Add(ahead+time.Millisecond)) {
			t.Errorf("the log says that the store was lost from %v to %v, want it since %v and until now",
				a.from, a.to, begun)
		}
	}
	_, text, _ := strings.Cut(g.Log(), "without=")
	text, _, _ = strings.Cut(text, " ")
	if without, err := time.ParseDuration(text); err != nil || without < 0 || without > time.Since(begun.Add(-ahead)) {
		t.Errorf("the log says that the store was lost for %q, want %v at most", text, time.Since(begun.Add(-ahead)))
	}
}
