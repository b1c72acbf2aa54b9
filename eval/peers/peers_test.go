package peers_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/peers"
)

// Every peer starts, lets a burst pass, and denies what is beyond it.
func TestPeersLimit(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	t.Cleanup(api.Close)
	limit := peers.Limit{Rate: 2, Burst: 4}
	cell, err := peers.Redis(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cell.Stop)
	for name, start := range map[string]func(p peers.Place) (*peers.Server, error){
		"Envoy":         func(p peers.Place) (*peers.Server, error) { return peers.EnvoyLocal(p, 100) },
		"HAProxy":       func(p peers.Place) (*peers.Server, error) { return peers.HAProxy(p, "1k") },
		"nginx":         peers.Nginx,
		"Envoy, global": func(p peers.Place) (*peers.Server, error) { return global(t, p, cell) },
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprint(name, together), func(t *testing.T) {
				t.Parallel()
				s, err := start(peers.Place{Dir: t.TempDir(), API: api.Listener.Addr().String(), Limit: limit,
					Together: together})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Stop)
				passed := 0
				for range 20 {
					answer, err := http.Get(s.URL() + "/")
					if err != nil {
						t.Fatal(err)
					}
					_ = answer.Body.Close()
					switch answer.StatusCode {
					case http.StatusOK:
						passed++
					case http.StatusTooManyRequests:
					default:
						t.Errorf("%d", answer.StatusCode)
					}
				}
				if passed == 0 || passed == 20 {
					t.Errorf("%d of 20 passed under 2 a second", passed)
				}
			})
		}
	}
	asks, err := peers.NewCell(cell.At)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(asks.Close)
	passed := 0
	for range 20 {
		if ok, err := asks.Allowed(t.Context(), "one", limit); err != nil {
			t.Fatal(err)
		} else if ok {
			passed++
		}
	}
	if passed < 4 || passed == 20 {
		t.Errorf("redis-cell lets %d of 20 pass", passed)
	}
}

func global(t *testing.T, p peers.Place, store *peers.Server) (*peers.Server, error) {
	binary, err := peers.BuildRateLimit()
	if err != nil {
		return nil, err
	}
	service, err := peers.StartRateLimit(binary, t.TempDir(), store.At,
		"- {key: remote_address, rate_limit: {unit: second, requests_per_unit: 2}}\n- {key: cell, rate_limit: "+
			"{unit: second, requests_per_unit: 2}}\n")
	if err != nil {
		return nil, err
	}
	t.Cleanup(service.Stop)
	return peers.EnvoyGlobal(p, service.At)
}

// Nothing is denied before the first look, ten seconds after, and who stops is let in again when the minute has passed.
func TestWAF(t *testing.T) {
	now := time.Unix(1_795_000_000, 0)
	w := peers.NewWAF(peers.Limit{Rate: 1}, func() time.Time { return now })
	for _, c := range []struct {
		after   time.Duration
		n       int
		allowed int
	}{
		{0, 100, 100}, {9 * time.Second, 1, 1}, {time.Second, 5, 0}, {40 * time.Second, 1, 0}, {30 * time.Second, 1, 1},
	} {
		now = now.Add(c.after)
		allowed := 0
		for range c.n {
			if w.Allowed("a") {
				allowed++
			}
		}
		if allowed != c.allowed {
			t.Errorf("%v: %d of %d passed, want %d", now.Sub(time.Unix(1_795_000_000, 0)), allowed, c.n, c.allowed)
		}
		if !w.Allowed("b") {
			t.Error("another address is denied")
		}
	}
}
