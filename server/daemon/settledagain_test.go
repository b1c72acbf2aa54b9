package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestWhatWasSettledIsDecidedAgain: a decision log says what requests cost in the end, so that tokens of models,
// answers that do not count and limits on what is under way are decided again as they were, request by request.
func TestWhatWasSettledIsDecidedAgain(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == "POST":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":20}}`, 10+len(text)%7)
		case strings.HasSuffix(r.URL.Path, "9"):
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer api.Close()
	dir := t.TempDir()
	written, routes := filepath.Join(dir, "decisions.log"), filepath.Join(dir, "routes.txt")
	list := []byte("POST /v1/chat\nMODEL /v1/chat/large\nGET /v1/things/{id}\n")
	if err := os.WriteFile(routes, list, 0o600); err != nil {
		t.Fatal(err)
	}
	var counts policy.Answers
	if err := counts.UnmarshalText([]byte("404")); err != nil {
		t.Fatal(err)
	}
	rules := []policy.Rule{
		{Endpoint: "POST /v1/chat", Limit: 300, Per: time.Hour, Name: "all models"},
		{Endpoint: "MODEL /v1/chat/large", Limit: 200, Per: time.Hour, Name: "large"},
		{Endpoint: "GET /v1/things/{id}", Limit: 1, Per: time.Hour, CountWhen: counts, Name: "not found"},
		{Endpoint: policy.All, Limit: 1, Name: "one at once",
			Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)},
		{Endpoint: policy.Default, Limit: 1e6},
	}
	var conf config.Config
	t.Run("a gateway", func(t *testing.T) { // whose end writes the last lines
		p := newProcess(t, rules, func(c *config.Config) {
			c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = written, 100_000, 1
			c.TrustedProxies, c.Upstream = []string{"127.0.0.1"}, api.URL
			c.Routes = []string{routes}
			c.LanguageModels = []config.LanguageModel{{Endpoints: []string{"POST /v1/chat"}, AtEnd: "cut"}}
			conf = *c
		})
		var callers sync.WaitGroup
		for n := range 4 {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 20))
				for range 60 {
					model := []string{"large", "small"}[rng.IntN(2)]
					text := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[]}`, model, 1+rng.IntN(60))
					r, err := http.NewRequest("POST", p.gate+"/v1/chat", strings.NewReader(text))
					if rng.IntN(2) == 0 {
						r, err = http.NewRequest("GET", fmt.Sprint(p.gate, "/v1/things/", rng.IntN(20)), nil)
					}
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", n))
					answer, err := http.DefaultClient.Do(r)
					if errors.Is(err, io.EOF) {
						continue // it was cut off, with its caller's budget
					}
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			})
		}
		callers.Wait()
	})
	got, side, limiter := decidedAgain(t, conf, rules, written)
	if got.Unread != 0 || got.Missing != 0 || side.Different != 0 || side.Same < 4*60 {
		t.Errorf("%d decisions as they were and %d otherwise, %d lines not read %v, %d missing; want all as they were",
			side.Same, side.Different, got.Unread, got.Faults, got.Missing)
	}
	denied(t, side, "all models", "large", "not found")
	if s := limiter.Reservations(); s.Outstanding != 0 {
		t.Errorf("%d reservations are outstanding, want none", s.Outstanding)
	}
}
