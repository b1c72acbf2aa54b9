package daemon_test

import (
	"bufio"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/agents"
	"github.com/headgate-io/headgate/server/config"
)

// signingAgent has a key, and a directory in which it publishes it.
type signingAgent struct {
	key        ed25519.PrivateKey
	thumbprint string
	origin     string
	name       string
	nonces     int
	label      string // of its signatures; "" for s

	mu      sync.Mutex
	serves  string // guarded by mu; "" for nothing but an error
	fetched int    // guarded by mu
}

func newSigningAgent(t *testing.T) *signingAgent {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	jwk := `{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}`
	sum := sha256.Sum256([]byte(jwk))
	a := &signingAgent{
		key:        private,
		thumbprint: base64.RawURLEncoding.EncodeToString(sum[:]),
		serves:     `{"keys":[` + jwk + `]}`,
	}
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.fetched++
		if r.URL.Path != agents.WellKnown || a.serves == "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, a.serves)
	}))
	t.Cleanup(at.Close)
	a.origin, a.name = at.URL, at.URL
	return a
}

func (a *signingAgent) publish(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serves = text
}

// sign returns the fields of a request to https://api.example that a signed: header, value, and so on.
// method and target are covered where they are given.
func (a *signingAgent) sign(method, target, more string) []string {
	label := cmp.Or(a.label, "s")
	list := `("@authority" "signature-agent";key="` + label + `"`
	base := "\"@authority\": api.example\n\"signature-agent\";key=\"" + label + "\": \"" + a.origin + "\"\n"
	if method != "" {
		list, base = list+` "@method" "@request-target"`, base+
			"\"@method\": "+method+"\n\"@request-target\": "+target+"\n"
	}
	now := time.Now().Unix()
	list += fmt.Sprintf(`);created=%d;expires=%d;keyid="%s";tag="web-bot-auth"%s`, now-1, now+300, a.thumbprint, more)
	made := ed25519.Sign(a.key, []byte(base+`"@signature-params": `+list))
	return []string{"Signature-Agent", label + `="` + a.origin + `"`, "Signature-Input", label + "=" + list,
		"Signature", label + "=:" + base64.StdEncoding.EncodeToString(made) + ":"}
}

// once is sign for a signature that is good once.
func (a *signingAgent) once() []string {
	a.nonces++
	return a.sign("", "", fmt.Sprintf(`;nonce="%d"`, a.nonces))
}

func withAgents(who ...*signingAgent) func(*config.Config) {
	return func(c *config.Config) {
		c.Origins, c.SignedAgents.Private = []string{"https://api.example"}, true
		c.SignedAgents.MinRefetch = time.Second
		for _, a := range who {
			c.SignedAgents.Directories = append(c.SignedAgents.Directories, config.AgentDirectory{Origin: a.origin})
		}
	}
}

// TestSignedAgentsHaveBudgets: an agent that has signed has a budget of its own and the rules of its tier, by either
// engine, beside whatever else the request shows; a signature that is not good leaves the request to its address.
func TestSignedAgentsHaveBudgets(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var mu sync.Mutex
			var last http.Header
			api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				last = r.Header.Clone()
			}))
			t.Cleanup(api.Close)
			ours, other, stranger := newSigningAgent(t), newSigningAgent(t), newSigningAgent(t)
			r := newReloading(t, []policy.Rule{
				{Endpoint: policy.Default, Limit: 4, Per: time.Hour},
				{Endpoint: policy.Default, Tier: "signed_agent", Limit: 3, Per: time.Hour},
				{Endpoint: policy.Default, Tier: "gold", Limit: 9, Per: time.Hour},
			}, withSecret(t), withAgents(ours, other), func(c *config.Config) {
				c.Engine, c.Upstream = engine, api.URL
				c.SignedAgents.Directories[1].Tier = "gold"
			})
			alice := []string{"Authorization", "Bearer " +
				signed(tokenSecret, `{"iss":"me","aud":"api","sub":"alice","exp":%d}`, time.Now().Unix()+300)}
			get := func(header ...string) int {
				status, _ := call(t, "GET", r.gate+"/v1/items/1", "", header...)
				return status
			}
			whole, covering, nonce := ours.sign("", "", ""), ours.sign("GET", "/v1/items/1", ""), ours.once()
			for i, step := range []struct {
				header []string
				want   int
			}{
				{whole, 200}, {covering, 200}, {nonce, 200}, // three of the agent's
				{whole, 429}, {ours.once(), 429},
				{nonce, 200}, // shown before: of the address's
				{ours.sign("POST", "/v1/items/1", ""), 200},  // for another request
				{ours.sign("GET", "/v1/items/1?", ""), 200},  // likewise
				{stranger.sign("", "", ""), 200},             // the fourth of the address's
				{nil, 429}, {stranger.sign("", "", ""), 429}, // none left
				{append(alice, other.sign("", "", "")...), 200}, {append(alice, other.once()...), 200}, // both pay
				{append(alice, whole...), 429}, // as the agent has none left
				{append(alice, nonce...), 200}, // which it did not sign
				{alice, 200},                   // her fourth
				{append(alice, other.once()...), 429},
				{other.once(), 200},
			} {
				if got := get(step.header...); got != step.want {
					t.Errorf("step %d: %d, want %d", i, got, step.want)
				}
			}
			mu.Lock()
			if last.Get("Signature-Input") == "" || last.Get("Signature") == "" || last.Get("Signature-Agent") == "" {
				t.Errorf("the API is sent %v, want the signature too", last)
			}
			mu.Unlock()
			_, page := call(t, "GET", r.admin+"/metrics", "")
			for _, want := range []string{
				`headgate_credentials_rejected_total{reason="signature_refused"} 2`,
				`headgate_credentials_rejected_total{reason="signature_replayed"} 2`,
				`headgate_credentials_rejected_total{reason="agent_unknown"} 2`,
				`headgate_agent_keys{agent="` + ours.name + `"} 1`, `headgate_agent_keys_age_seconds{agent="` + other.name + `"}`,
				`headgate_agent_key_failures_total{agent="` + ours.name + `"} 0`, `headgate_callers_total{kind="signed_agent"}`,
			} {
				if !strings.Contains(page, want) {
					t.Errorf("the metrics lack %s", want)
				}
			}
			if stranger.fetched != 0 {
				t.Errorf("the directory of an agent that nobody named was fetched %d times", stranger.fetched)
			}

			// What is explained can be shown still, and nothing of it is told.
			shown := other.once()
			query := fmt.Sprintf(
				`{"method":"GET","target":"/v1/items/1","header":[%q,%q,%q]}`,
				shown[0]+": "+shown[1],
				shown[2]+": "+shown[3],
				shown[4]+": "+shown[5],
			)
			for range 2 {
				_, text := call(t, "POST", r.admin+"/v1/explain", query, "Content-Type", asJSON)
				if !strings.Contains(text, `"id":"`+other.name+`"`) || !strings.Contains(text, `"signed_agent"`) ||
					!strings.Contains(text, `"gold"`) || strings.Contains(text, shown[5]) {
					t.Errorf("explain: %s", text)
				}
			}
			if got := get(shown...); got != 200 {
				t.Errorf("what was explained: %d, want 200", got)
			}
		})
	}
}

// TestAgentsOutliveReload: nonces, budgets and keys stay; a directory that is away costs the others nothing, and its
// agent counts when it is back.
func TestAgentsOutliveReload(t *testing.T) {
	first, second := newSigningAgent(t), newSigningAgent(t)
	r := newReloading(t, []policy.Rule{
		{Endpoint: policy.Default, Limit: 1, Per: time.Hour},
		{Endpoint: policy.Default, Tier: "signed_agent", Limit: 9, Per: time.Hour},
	}, withAgents(first))
	get := func(header ...string) int {
		status, _ := call(t, "GET", r.gate+"/v1/items/1", "", header...)
		return status
	}
	nonce := first.once()
	if got := get(nonce...); got != 200 {
		t.Fatal(got)
	}
	if got := get(); got != 200 { // the one of the address
		t.Fatal(got)
	}
	keys := second.serves
	second.publish("")
	first.publish("") // its keys are there already
	r.reloadsTo(t, "signed_agents.directories", withSecond(second))
	for name, c := range map[string]struct {
		header []string
		want   int
	}{
		"shown before": {nonce, 429}, "the first": {first.once(), 200},
		"the second, whose keys are away": {second.once(), 429},
	} {
		if got := get(c.header...); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	_, page := call(t, "GET", r.admin+"/metrics", "")
	for _, want := range []string{`reason="signature_unverified"} 1`, `headgate_agent_keys{agent="` + second.name +
		`"} 0`} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	failures := `headgate_agent_key_failures_total{agent="` + second.name + `"} ` // more on a slow machine, as below
	if !strings.Contains(page, failures) || strings.Contains(page, failures+"0\n") {
		t.Error("the metrics do not tell that the keys could not be fetched")
	}
	second.publish(keys)
	// Signatures in vain have it asked again, a second after the last time.
	eventually(t, "the second agent counts", func() bool { return get(second.once()...) == 200 })
	if got := get(second.once()...); got != 200 {
		t.Errorf("the second, whose keys are back: %d, want 200", got)
	}
	r.reloadsTo(t, "signed_agents.nonce", func(c *config.Config) { c.SignedAgents.Nonce = "required" })
	if got := get(first.sign("", "", "")...); got != 429 {
		t.Errorf("without a nonce where one is required: %d, want 429", got)
	}
	r.fails(t, "origins", func(c *config.Config) { c.Origins = nil })
	r.fails(t, "private", func(c *config.Config) { c.SignedAgents.Private = false })
	r.reloadsTo(t, "signed_agents.directories", func(c *config.Config) { c.SignedAgents.Directories = nil })
	if got := get(first.once()...); got != 429 {
		t.Errorf("an agent that is not named any more: %d, want 429", got)
	}
}

func withSecond(a *signingAgent) func(*config.Config) {
	return func(c *config.Config) {
		c.SignedAgents.Directories = append(c.SignedAgents.Directories[:1:1], config.AgentDirectory{Origin: a.origin})
	}
}

// TestBadSignaturesAreRefused: as other bad credentials are; those of agents that are not named here are the API's
// affair.
func TestBadSignaturesAreRefused(t *testing.T) {
	ours, stranger, away := newSigningAgent(t), newSigningAgent(t), newSigningAgent(t)
	away.publish("")
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 99, Per: time.Hour},
		{Endpoint: policy.Default, Tier: "signed_agent", Limit: 99, Per: time.Hour}}, withAgents(ours, away),
		func(c *config.Config) { c.BadCredentials = "reject" })
	for name, c := range map[string]struct {
		header []string
		want   int
	}{
		"good":                {ours.once(), 200},
		"for another request": {ours.sign("POST", "/", ""), 401},
		"nothing but the tag": {[]string{"Signature-Input", `a=();tag="web-bot-auth"`}, 401},
		"of others": {[]string{"Signature-Input", `a=("date");created=1`, "Signature", "a=:AA==:"},
			200},
		"no dictionary, of others":   {[]string{"Signature-Input", `(`}, 200},
		"of a stranger":              {stranger.once(), 200},
		"of one whose keys are away": {away.once(), 503},
	} {
		r, err := http.NewRequest("GET", p.gate+"/v1/items/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if wanted := strings.HasPrefix(
			answer.Header.Get("Accept-Signature"),
			`sig=("@authority"`,
		); answer.StatusCode != c.want ||
			wanted != (c.want == 401) ||
			wanted != (answer.Header.Get("Www-Authenticate") != "") {
			t.Errorf("%s: %d %v, want %d", name, answer.StatusCode, answer.Header, c.want)
		}
	}
}

// TestAgentsCanBeBlocked: by name, whether they sign well or badly, and exempt only if they sign well.
func TestAgentsCanBeBlocked(t *testing.T) {
	mallory, alice := newSigningAgent(t), newSigningAgent(t)
	blocked, exempt := policy.Rule{Endpoint: "*", Mode: policy.Block}, policy.Rule{Endpoint: "*", Mode: policy.Allow}
	if err := errors.Join(
		blocked.SetSubject("signed_agent:"+mallory.name),
		exempt.SetSubject("signed_agent:"+alice.name),
	); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, []policy.Rule{blocked, exempt, {Endpoint: policy.Default, Limit: 1, Per: time.Hour}},
		withAgents(mallory, alice))
	wrong := func(a *signingAgent) []string { return a.sign("POST", "/", "") }
	for i, step := range []struct {
		header []string
		want   int
	}{
		{mallory.once(), 403}, {wrong(mallory), 403},
		{alice.once(), 200}, {alice.once(), 200},
		{wrong(alice), 200}, {wrong(alice), 429}, // the address's
		{alice.once(), 200},
	} {
		if got, _ := call(t, "GET", p.gate+"/v1/items/1", "", step.header...); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

// TestSignaturesOfMessages: what opened a WebSocket was signed for its messages too, though it is good once.
func TestSignaturesOfMessages(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			ours := newSigningAgent(t)
			p := newProcess(t, []policy.Rule{{Endpoint: "WS-SEND /v1/items/{id}", Limit: 2, Per: time.Hour},
				{Endpoint: policy.Default, Limit: 100}}, withAgents(ours), func(c *config.Config) {
				c.Upstream, c.Engine, c.SignedAgents.Tier = messageAPI(t), engine, ""
				c.WebSockets = map[string]config.WebSocket{"GET /v1/items/{id}": {}}
			})
			shown := ours.once()
			for i, step := range []struct {
				header []string
				want   int
			}{{shown, 2}, {ours.once(), 0}, {shown, 2}, {nil, 0}} { // the second two are the address's
				if got := sent(t, p.gate, step.header...); got != step.want {
					t.Errorf("connection %d: %d messages, want %d", i, got, step.want)
				}
			}
		})
	}
}

// TestSignaturesInRawRequests: both engines read signed requests alike, however their lines are written.
func TestSignaturesInRawRequests(t *testing.T) {
	ours := newSigningAgent(t)
	exempt := policy.Rule{Endpoint: "*", Mode: policy.Allow}
	if err := exempt.SetSubject("signed_agent:" + ours.name); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			p := newProcess(t, []policy.Rule{exempt, {Endpoint: policy.Default, Limit: 1, Per: time.Hour}},
				withAgents(ours), func(c *config.Config) { c.Engine = engine })
			if got, _ := call(t, "GET", p.gate+"/v1/items/1", ""); got != 200 { // the one of the address
				t.Fatal(got)
			}
			ask := func(line string, fields ...string) int {
				t.Helper()
				conn, err := net.Dial("tcp", strings.TrimPrefix(p.gate, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprintf(conn, "%s\r\nHost: internal:1\r\nConnection: close\r\n%s\r\n\r\n", line,
					strings.Join(fields, "\r\n"))
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				return answer.StatusCode
			}
			const get = "GET /v1/items/1 HTTP/1.1"
			s := ours.sign("GET", "/v1/items/1", "")
			agent, input, made := s[1], s[3], s[5]
			for name, c := range map[string]struct {
				line   string
				fields []string
				want   int
			}{
				"as usual": {get, []string{"Signature-Agent: " + agent, "Signature-Input: " + input, "Signature: " +
					made}, 200},
				"in another case": {get, []string{"SIGNATURE-AGENT: " + agent, "signature-input:" + input,
					"signature:\t" + made + " "},
					200},
				"behind others": {get, []string{"Signature-Agent: x=1", "Signature-Input: x=();tag=\"y\"",
					"Signature: x=:AA==:",
					"Signature-Agent: " + agent, "Signature-Input: " + input, "Signature: " + made}, 200},
				"in a line with others": {get, []string{"Signature-Agent: x=1, " + agent, "Signature-Input: x=(), " +
					input,
					"Signature: x=:AA==: , " + made}, 200},
				"of the target as a whole": {"GET http://internal:1/v1/items/1 HTTP/1.1",
					[]string{"Signature-Agent: " + agent, "Signature-Input: " + input, "Signature: " + made}, 200},
				"of another target": {"GET /v1/items/1?x HTTP/1.1",
					[]string{"Signature-Agent: " + agent, "Signature-Input: " + input, "Signature: " + made}, 429},
				"of HEAD": {"HEAD /v1/items/1 HTTP/1.1",
					[]string{"Signature-Agent: " + agent, "Signature-Input: " + input, "Signature: " + made}, 429},
				"replaced by a later one": {get, []string{"Signature-Agent: " + agent, "Signature-Input: " + input,
					"Signature: " + made,
					"Signature: s=:" + strings.Repeat("A", 86) + "==:"}, 429},
				"with an empty line": {get, []string{"Signature-Agent: " + agent, "Signature-Input:",
					"Signature-Input: " + input,
					"Signature: " + made}, 429},
				"under another name": {get, []string{"Signature_Agent: " + agent, "Signature_Input: " + input,
					"Signature: " + made}, 429},
			} {
				if got := ask(c.line, c.fields...); got != c.want {
					t.Errorf("%s: %d, want %d", name, got, c.want)
				}
			}
		})
	}
}
