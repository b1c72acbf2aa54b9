package daemon_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// shared is a budget that classes share, of which requests are by configuration alone.
var shared = []policy.Rule{
	{Endpoint: policy.All, Limit: 40, Per: time.Hour, Subject: policy.SubjectEndpoint, Name: "all together",
		Priority: "high:20,normal:10,low:10"},
	{Endpoint: policy.Default, Limit: 1e6},
}

// asks is how many requests pass until one is denied. Each has header fields that call it critical.
func asks(t *testing.T, url, token string, header ...string) (passed int) {
	t.Helper()
	for ; ; passed++ {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		for _, name := range header {
			r.Header.Set(name, "critical")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return passed
		}
	}
}

// says is a token of one user for each text, with further claims.
func says(more string) string {
	return signed(tokenSecret, `{"iss":"me","aud":"api","sub":"s%d","exp":%d%s}`, len(more), time.Now().Unix()+300, more)
}

// TestClassesByConfiguration: by both engines, an endpoint, a tier and a claim of a verified token say the class, until
// a reload says otherwise; a token that is not verified and header fields do not.
func TestClassesByConfiguration(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			r := newReloading(t, shared, withSecret(t), func(c *config.Config) {
				c.Engine = engine
				c.Tokens.Claims = []string{"urgency"}
				c.Priority = config.Priority{Claim: "urgency", Tiers: map[string]string{"gold": "high"},
					Endpoints: map[string]string{"GET /v1/items/{id}": "low"}}
			})
			items, gold, urgent := r.gate+"/v1/items/7", says(`,"plan":"gold"`), says(`,"urgency":"high"`)
			// Low leaves 32 of 40, and is guaranteed 4.
			if n := asks(t, items, urgent, "Priority", "X-Priority"); n != 12 {
				t.Errorf("%d pass where the endpoint says low, want 12", n)
			}
			r.reloadsTo(t, "priority.endpoints", func(c *config.Config) { c.Priority.Endpoints = nil })
			for n, one := range []struct {
				token string
				want  int
			}{
				{urgent[:len(urgent)-5] + "AAAAA", 4 + 4}, // normal leaves 24 of the 28 that are left
				{"", 0},
				{urgent, 4 + 8}, // high leaves 16 of the 20
				{gold, 0},       // which is high as well
			} {
				if got := asks(t, items, one.token, "Urgency", "Priority"); got != one.want {
					t.Errorf("%d: %d pass, want %d", n, got, one.want)
				}
			}
			r.fails(t, "priority.endpoints", func(c *config.Config) {
				c.Priority.Endpoints = map[string]string{"GET /nothing": "low"}
			})
		})
	}
}

// TestAReloadNamesAnotherClaim: requests with the same token are of another class then, and what was taken stays
// taken; a claim that is not read from tokens changes nothing.
func TestAReloadNamesAnotherClaim(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			r := newReloading(t, shared, withSecret(t), func(c *config.Config) {
				c.Engine = engine
				c.Tokens.Claims = []string{"rank", "urgency"}
				c.Priority.Claim = "urgency"
			})
			items, token := r.gate+"/v1/items/7", says(`,"urgency":"high","rank":"low"`)
			if n := asks(t, items, token); n != 24+8 { // high leaves 16 of 40, and is guaranteed 8
				t.Errorf("%d pass as high, want 32", n)
			}
			r.fails(t, "priority.claim", func(c *config.Config) { c.Priority.Claim = "plan" })
			if n := asks(t, items, token); n != 0 {
				t.Errorf("%d pass after a reload that failed, want none", n)
			}
			for _, one := range []struct{ claim, class string }{{"rank", "low"}, {"", "normal"}} {
				r.reloadsTo(t, "priority.claim", func(c *config.Config) { c.Priority.Claim = one.claim })
				if n := asks(t, items, token); n != 4 { // which is guaranteed
					t.Errorf("%d pass as %s, want 4", n, one.class)
				}
			}
		})
	}
}

// TestAReplayKnowsTheClassesOfCallers: a decision log has neither tokens nor their claims, but what they said of
// classes; it is decided again as it was.
func TestAReplayKnowsTheClassesOfCallers(t *testing.T) {
	dir := t.TempDir()
	written, routes := filepath.Join(dir, "decisions.log"), filepath.Join(dir, "routes.txt")
	if err := os.WriteFile(routes, []byte("GET /v1/items/{id}\nGET /v1/reports\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var conf config.Config
	t.Run("a gateway", func(t *testing.T) { // whose end writes the last lines
		p := newProcess(t, shared, withSecret(t), func(c *config.Config) {
			c.Routes, c.Tokens.Claims = []string{routes}, []string{"urgency"}
			c.Priority = config.Priority{Claim: "urgency", Tiers: map[string]string{"gold": "high"},
				Endpoints: map[string]string{"GET /v1/reports": "low"}}
			c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = written, 100_000, 1
			conf = *c
		})
		for _, token := range []string{
			says(`,"urgency":"low"`), "", says(`,"urgency":"high"`), says(`,"plan":"gold"`), says(`,"urgency":"7"`),
		} {
			asks(t, p.gate+"/v1/reports", token)
			asks(t, p.gate+"/v1/items/7", token)
		}
	})
	text, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"class":"low","caller_class":"high"`, `"class":"high","caller_class":"high"`, `"class":"normal"}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no line of the log has %s", want)
		}
	}
	got, side, _ := decidedAgain(t, conf, shared, written)
	if got.Unread != 0 || side.Different != 0 || side.Same != got.Requests || side.Denied != 10 || side.Allowed < 20 {
		t.Errorf("%d lines not read, %d as they were and %d otherwise, %d denied, %d allowed", got.Unread, side.Same,
			side.Different, side.Denied, side.Allowed)
	}
}
