package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// replayed are gateways of one API that refuse what was shown before with 401.
func replayed(t *testing.T, n int, change ...func(*config.Config)) []*reloading {
	t.Helper()
	all := make([]*reloading, n)
	for i := range all {
		all[i] = newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000, Per: time.Hour}},
			append(change, func(c *config.Config) { c.BadCredentials = "reject" })...)
	}
	return all
}

// shows sends a proof, or a signature with a nonce.
func (r *reloading) shows(t *testing.T, header []string) int {
	t.Helper()
	status, _ := call(t, "GET", r.gate+"/v1/items/1", "", header...)
	return status
}

// TestReplaysOutliveReload: what was shown is not good again when tokens and agents were off in between, whatever else
// a reload changes.
func TestReplaysOutliveReload(t *testing.T) {
	agent := newSigningAgent(t)
	r := replayed(t, 1, withProofs(t, "bound"), withAgents(agent))[0]
	alice := newHolder(t, "alice")
	proof := []string{"Authorization", "DPoP " + alice.token, "DPoP",
		alice.proof(t, "GET", "https://api.example/v1/items/1")}
	nonce := agent.once()
	check := func(when string, want int) {
		t.Helper()
		if a, b := r.shows(t, proof), r.shows(t, nonce); a != want || b != want {
			t.Errorf("%s: a proof has %d and a nonce %d, want %d", when, a, b, want)
		}
	}
	check("at first", 200)
	check("again", 401)
	conf := r.conf
	r.edit(func(c *config.Config) { c.MaxWait = time.Second })
	r.reload(t)
	check("after a reload of something else", 401)
	r.edit(func(c *config.Config) {
		c.Tokens, c.SignedAgents = config.Default().Tokens, config.Default().SignedAgents
	})
	r.reload(t)
	r.edit(func(c *config.Config) { c.Tokens, c.SignedAgents = conf.Tokens, conf.SignedAgents })
	r.reload(t)
	check("after they were off", 401)
}

// TestReplaysAreSharedByGateways: what was shown at one gateway is not good at another on the same store. While the
// store is away, each remembers for itself, and nobody waits for long.
func TestReplaysAreSharedByGateways(t *testing.T) {
	store := redistest.StartOnPort(t)
	secret := filepath.Join(t.TempDir(), "store.secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5701e5", 12)), 0o600); err != nil {
		t.Fatal(err)
	}
	agent, alice := newSigningAgent(t), newHolder(t, "alice")
	on := func(c *config.Config) {
		c.Store = config.Default().Store
		c.Store.Redis, c.Store.SecretFile = []string{store.Address()}, secret
		c.Store.Deadline, c.Store.LeaseTTL = 5*time.Second, time.Minute // a slow machine is no store that is away
	}
	both := replayed(t, 2, withProofs(t, "bound"), withAgents(agent), on)
	alone := replayed(t, 1, withProofs(t, "bound"), withAgents(agent), on,
		func(c *config.Config) { c.Store.Replays = "replica" })[0]
	kinds := map[string]func() []string{
		"a proof": func() []string {
			return []string{"Authorization", "DPoP " + alice.token, "DPoP",
				alice.proof(t, "GET", "https://api.example/v1/items/1")}
		},
		"a nonce": func() []string { return agent.once() },
	}
	for what, shown := range kinds {
		one, other := shown(), shown()
		for i, step := range []struct {
			at    *reloading
			shown []string
			want  int
		}{{both[0], one, 200}, {both[1], one, 401}, {both[0], one, 401}, {alone, one, 200}, {alone, one, 401},
			{both[1], other, 200}, {both[0], other, 401}} {
			if got := step.at.shows(t, step.shown); got != step.want {
				t.Errorf("%s, step %d: %d, want %d", what, i, got, step.want)
			}
		}
	}
	for _, name := range store.Do("KEYS", "*").([]any) {
		if text := name.(string); strings.Contains(text, "alice") || strings.Contains(text, agent.name) {
			t.Errorf("the store has a key %q", text)
		}
	}
	store.Kill()
	for what, shown := range kinds {
		for range 8 { // more than are waited for
			one := shown()
			for i, step := range []struct {
				at   *reloading
				want int
			}{{both[0], 200}, {both[0], 401}, {both[1], 200}, {both[1], 401}} {
				if got := step.at.shows(t, one); got != step.want {
					t.Fatalf("%s without the store, step %d: %d, want %d", what, i, got, step.want)
				}
			}
		}
	}
	if said := both[0].said.String(); !strings.Contains(said, "good once at each gateway") {
		t.Errorf("the log says nothing of it:\n%s", said)
	}
	store.Start()
	for what, shown := range kinds {
		eventually(t, what+" is good at one gateway alone again", func() bool {
			one := shown()
			return both[0].shows(t, one) == 200 && both[1].shows(t, one) == 401
		})
	}
}
