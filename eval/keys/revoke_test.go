package keys

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

const (
	// effect is the promise for the gateway: a revocation acts within this time.
	effect = time.Second

	// patience is how long a machine that is busy may take to what takes that
	// long on one that is not.
	patience = time.Minute
)

// gatewayWithKey starts a gateway where keys of acme have 7777 a second and
// everybody else 1000.
func gatewayWithKey(t *testing.T, extra string) (g *harness.Gateway, dir, key, id string) {
	t.Helper()
	dir, api := workshop(t, extra)
	harness.Run(t, dir, "policy", "set", "default", "1000")
	harness.Run(t, dir, "policy", "set", "default", "7777", "--project", "acme")
	key = output(t, dir, "", "key", "create", "--project", "acme", "--name", "ci")
	return harness.Serve(t, dir, "--config", "headgate.yaml", "--upstream", api.URL), dir, key, keyOf(t, dir)
}

// counts reports whether a request with the key is the key's.
func counts(t *testing.T, g *harness.Gateway, key string) bool {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, g.URL+"/v1/items/7", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Api-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return strings.Contains(response.Header.Get("RateLimit-Policy"), "q=7777")
}

// TestRevocationActsWithinASecond revokes three keys. A busy machine may hold up
// some of that: the quickest keeps the promise.
func TestRevocationActsWithinASecond(t *testing.T) {
	g, dir, key, id := gatewayWithKey(t, "")
	quickest := patience
	for range 3 {
		if !harness.Eventually(patience, func() bool { return counts(t, g, key) }) {
			t.Fatal("the key does not count")
		}
		harness.Run(t, dir, "key", "revoke", id)
		began := time.Now()
		if !harness.Eventually(patience, func() bool { return !counts(t, g, key) }) {
			t.Fatalf("a revoked key counts after %v", patience)
		}
		quickest = min(quickest, time.Since(began))
		key = output(t, dir, "", "key", "create", "--project", "acme", "--name", "ci")
		id = keyOf(t, dir)
	}
	if quickest > effect {
		t.Errorf("the quickest of three revocations acted after %v, want it within %v", quickest, effect)
	}
	t.Logf("revoked after %v", quickest.Round(time.Millisecond))
}

// keyOf is the ID of the one key that is not revoked.
func keyOf(t *testing.T, dir string) (id string) {
	t.Helper()
	var keys []struct {
		ID      string
		Revoked *time.Time
	}
	if err := json.Unmarshal([]byte(output(t, dir, "", "key", "list", "--json")), &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Revoked == nil {
			if id != "" {
				t.Fatalf("several keys are in force: %+v", keys)
			}
			id = k.ID
		}
	}
	return id
}

// TestKeysWithoutTheDatabase takes the database away: the last good keys stay
// in force, or, with max_stale, for that time. With the database back all is
// as it was, and a revocation made meanwhile acts.
func TestKeysWithoutTheDatabase(t *testing.T) {
	for name, c := range map[string]struct {
		extra string
		ends  bool
	}{
		"default":   {"", false},
		"max_stale": {"  max_stale: 2s\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			config := strings.Replace(settings, "api_keys:\n", "api_keys:\n"+c.extra, 1)
			g, dir, key, id := gatewayWithKey(t, "")
			if c.extra != "" {
				if err := g.Stop(); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "headgate.yaml"), []byte(config), 0o600); err != nil {
					t.Fatal(err)
				}
				g = harness.Serve(t, dir, "--config", "headgate.yaml", "--upstream", harness.NewUpstream(t).URL)
			}
			away := filepath.Join(t.TempDir(), "headgate.db")
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Rename(filepath.Join(dir, "headgate.db"+suffix), away+suffix); err != nil && suffix == "" {
					t.Fatal(err)
				}
			}
			harness.Run(t, dir, "key", "revoke", id, "--db", "sqlite:"+away)
			if !harness.Eventually(patience, func() bool {
				seconds, err := strconv.ParseFloat(g.Metric(t, "headgate_api_keys_staleness_seconds "), 64)
				return err == nil && seconds > 2.5
			}) {
				t.Fatalf("the keys are confirmed without the database: %s", g.Log())
			}
			if got := counts(t, g, key); got == c.ends {
				t.Errorf("2.5 s without the database the key counts: %v, want %v", got, !c.ends)
			}
			if n := g.Metric(t, `headgate_credentials_rejected_total{reason="lookup_failed"}`); (n != "0") != c.ends {
				t.Errorf("%s look-ups failed", n)
			}
			for _, suffix := range []string{"-wal", "-shm", ""} {
				_ = os.Rename(away+suffix, filepath.Join(dir, "headgate.db"+suffix))
			}
			if !harness.Eventually(patience, func() bool {
				counts(t, g, key)
				return g.Metric(t, `headgate_credentials_rejected_total{reason="key_revoked"}`) != "0"
			}) {
				t.Error("the revocation does not act once the database is back")
			}
		})
	}
}
