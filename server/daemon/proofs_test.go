package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// holder has a key and a token that is bound to it.
type holder struct {
	key   *ecdsa.PrivateKey
	jwk   string
	token string
	made  int // proofs
}

func newHolder(t *testing.T, subject string) *holder {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	jwk := fmt.Sprintf(`{"crv":"P-256","kty":"EC","x":%q,"y":%q}`, encode(point[1:33]), encode(point[33:]))
	sum := sha256.Sum256([]byte(jwk))
	return &holder{key: key, jwk: jwk, token: signed(tokenSecret,
		`{"iss":"me","aud":"api","sub":%q,"exp":%d,"cnf":{"jkt":%q}}`, subject, time.Now().Unix()+300, encode(sum[:]))}
}

// proof is a new one.
func (h *holder) proof(t *testing.T, method, uri string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	ath := sha256.Sum256([]byte(h.token))
	h.made++
	input := encode([]byte(`{"typ":"dpop+jwt","alg":"ES256","jwk":`+h.jwk+`}`)) + "." +
		encode(fmt.Appendf(nil, `{"jti":"%d","htm":%q,"htu":%q,"iat":%d,"ath":%q}`, h.made, method, uri,
			time.Now().Unix(), encode(ath[:])))
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, h.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func withProofs(t *testing.T, how string) func(*config.Config) {
	tokens := withSecret(t)
	return func(c *config.Config) {
		tokens(c)
		c.Origins, c.Tokens.DPoP = []string{"https://api.example"}, how
	}
}

// TestAStolenTokenHasNoBudget: a token that is bound to a key counts with a proof alone, by either engine, which is
// good once; what is stolen has the budget of its address.
func TestAStolenTokenHasNoBudget(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 3, Per: time.Hour}},
				withProofs(t, "bound"),
				func(c *config.Config) { c.Engine = engine })
			alice := newHolder(t, "alice")
			const uri = "https://api.example/v1/items/1"
			first, second := alice.proof(t, "GET", uri), alice.proof(t, "GET", uri)
			left := func(header ...string) int {
				status, _ := call(t, "GET", r.gate+"/v1/items/1", "", header...)
				return status
			}
			for i, step := range []struct {
				scheme, proof string
				want          int
			}{
				{"DPoP ", first, 200},
				{"Bearer ", second, 200},
				{"DPoP ", "", 200}, {"Bearer ", "", 200}, {"DPoP ", first, 200}, // three of the address
				{"DPoP ", "", 429}, {"DPoP ", second, 429}, {"DPoP ", alice.proof(t, "GET", uri+"2"), 429},
				{"DPoP ", alice.proof(t, "POST", uri), 429},
				{"dpop ", alice.proof(t, "GET", uri+"?x"), 200}, // the third of alice
				{"DPoP ", alice.proof(t, "GET", uri), 429},
			} {
				header := []string{"Authorization", step.scheme + alice.token}
				if step.proof != "" {
					header = append(header, "DPoP", step.proof)
				}
				if got := left(header...); got != step.want {
					t.Errorf("step %d: %d, want %d", i, got, step.want)
				}
			}
			_, page := call(t, "GET", r.admin+"/metrics", "")
			for reason, want := range map[string]int{"proof_missing": 3, "proof_replayed": 2, "proof_unfit": 2} {
				line := fmt.Sprintf("headgate_credentials_rejected_total{reason=%q} %d\n", reason, want)
				if !strings.Contains(page, line) {
					t.Errorf("the metrics lack %s", line)
				}
			}

			// What is explained can be shown still.
			third := alice.proof(t, "GET", uri)
			query := fmt.Sprintf(`{"method":"GET","target":"/v1/items/1","header":["Authorization: DPoP %s","DPoP: %s"]}`,
				alice.token, third)
			for range 2 {
				_, text := call(t, "POST", r.admin+"/v1/explain", query, "Content-Type", asJSON)
				if !strings.Contains(text, `"id":"alice"`) || strings.Contains(text, third) {
					t.Errorf("explain: %s", text)
				}
			}

			// Reloads forget no proof, and refuse what makes no sense.
			r.reloadsTo(t, "bad_credentials tokens.dpop_window", func(c *config.Config) {
				c.Tokens.DPoPWindow, c.BadCredentials = time.Hour, "reject"
			})
			for i, step := range []struct {
				proof string
				want  int
			}{{second, 429}, {first, 429}} { // the address has none left to be refused with 401
				if got := left("Authorization", "DPoP "+alice.token, "DPoP", step.proof); got != step.want {
					t.Errorf("after the reload, %d: %d, want %d", i, got, step.want)
				}
			}
			r.fails(t, "origins", func(c *config.Config) { c.Origins = nil })
			for _, how := range []string{"off", "bound"} {
				r.reloadsTo(t, "tokens.dpop", func(c *config.Config) { c.Tokens.DPoP = how })
			}
			query = fmt.Sprintf(`{"method":"GET","target":"/v1/items/1","header":["Authorization: DPoP %s","DPoP: %s"]}`,
				alice.token, second)
			if _, text := call(t, "POST", r.admin+"/v1/explain", query, "Content-Type", asJSON); strings.Contains(text,
				`"id":"alice"`) {
				t.Errorf("a proof that was shown before proofs were off is good again: %s", text)
			}
		})
	}
}

func TestBadProofsAreRefused(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 9, Per: time.Hour}}, withProofs(t, "required"),
		func(c *config.Config) { c.BadCredentials = "reject" })
	alice := newHolder(t, "alice")
	free := signed(tokenSecret, `{"iss":"me","aud":"api","sub":"bob","exp":%d}`, time.Now().Unix()+300)
	for name, c := range map[string]struct {
		token, proof string
		want         int
	}{
		"with a proof": {alice.token, alice.proof(t, "GET", "https://api.example/v1/items/1"), 200},
		"without":      {alice.token, "", 401},
		"not bound":    {free, "", 401},
	} {
		r, err := http.NewRequest("GET", p.gate+"/v1/items/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "DPoP "+c.token)
		if c.proof != "" {
			r.Header.Set("DPoP", c.proof)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		challenge := answer.Header.Get("Www-Authenticate")
		if answer.StatusCode != c.want || (c.want == 401) != (challenge == `DPoP error="invalid_dpop_proof"`) {
			t.Errorf("%s: %d, %q, want %d", name, answer.StatusCode, challenge, c.want)
		}
	}
}

// TestAStolenTokenIsBlockedAsItsOwner: whoever has the token of one who is blocked gains nothing by leaving the proof
// out, and whoever has that of one who is exempt is not.
func TestAStolenTokenIsBlockedAsItsOwner(t *testing.T) {
	blocked, exempt := policy.Rule{Endpoint: "*", Mode: policy.Block}, policy.Rule{Endpoint: "*", Mode: policy.Allow}
	if err := errors.Join(blocked.SetSubject("token:mallory"), exempt.SetSubject("token:alice")); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, []policy.Rule{blocked, exempt, {Endpoint: policy.Default, Limit: 1, Per: time.Hour}},
		withProofs(t, "bound"))
	mallory, alice := newHolder(t, "mallory"), newHolder(t, "alice")
	const uri = "https://api.example/v1/items/1"
	for i, step := range []struct {
		token, proof string
		want         int
	}{
		{mallory.token, mallory.proof(t, "GET", uri), 403}, {mallory.token, "", 403},
		{alice.token, alice.proof(t, "GET", uri), 200}, {alice.token, alice.proof(t, "GET", uri), 200},
		{alice.token, "", 200}, {alice.token, "", 429}, // the address's
		{alice.token, alice.proof(t, "GET", uri), 200},
	} {
		header := []string{"Authorization", "DPoP " + step.token}
		if step.proof != "" {
			header = append(header, "DPoP", step.proof)
		}
		if got, _ := call(t, "GET", p.gate+"/v1/items/1", "", header...); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

// TestProofsOfMessages: the proof that opened a WebSocket is good for its messages, and that which carries a
// message of MCP for its tool.
func TestProofsOfMessages(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			routes := filepath.Join(t.TempDir(), "routes.txt")
			if err := os.WriteFile(routes, []byte("POST /mcp\nMCP /mcp/tools/call/report\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := newProcess(t, []policy.Rule{
				{Endpoint: "WS-SEND /v1/items/{id}", Limit: 2, Per: time.Hour},
				{Endpoint: "MCP /mcp/tools/call/report", Limit: 1, Per: time.Hour},
				{Endpoint: policy.Default, Limit: 100},
			}, withProofs(t, "bound"), func(c *config.Config) {
				c.Upstream, c.Engine, c.Routes = messageAPI(t), engine, append(c.Routes, routes)
				c.WebSockets = map[string]config.WebSocket{"GET /v1/items/{id}": {}}
				c.MCP = []config.MCP{{Endpoint: "POST /mcp"}}
			})
			alice := newHolder(t, "alice")
			proof := alice.proof(t, "GET", "https://api.example/v1/items/7")
			shown := []string{"Authorization", "DPoP " + alice.token, "DPoP", proof}
			if got := sent(t, p.gate, shown...); got != 2 {
				t.Errorf("alice sends %d messages, want 2", got)
			}
			if got := sent(t, p.gate, shown...); got != 2 {
				t.Errorf("a thief of alice's token and proof sends %d messages, want the 2 of the address", got)
			}
			if got := sent(t, p.gate); got != 0 {
				t.Errorf("the address sends %d messages more, want none", got)
			}
			call1 := func(header ...string) int {
				const text = `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"report"}}`
				status, _ := call(t, "POST", p.gate+"/mcp", text, append(header, "Content-Type", asJSON)...)
				return status
			}
			byAlice := func() int {
				return call1("Authorization", "DPoP "+alice.token, "DPoP",
					alice.proof(t, "POST", "https://api.example/mcp"))
			}
			for i, got := range []int{byAlice(), byAlice(), call1(), call1()} {
				if want := []int{200, 429, 200, 429}[i]; got != want {
					t.Errorf("call %d of a tool: %d, want %d", i, got, want)
				}
			}
		})
	}
}
