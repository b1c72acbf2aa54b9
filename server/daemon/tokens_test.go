package daemon_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

var tokenSecret = []byte(strings.Repeat("s3cr3t! ", 4))

// signed makes a token of these claims.
func signed(secret []byte, format string, args ...any) string {
	encode := base64.RawURLEncoding.EncodeToString
	input := encode([]byte(`{"alg":"HS256"}`)) + "." + encode(fmt.Appendf(nil, format, args...))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(input))
	return input + "." + encode(mac.Sum(nil))
}

func withSecret(t *testing.T) func(*config.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token.secret")
	if err := os.WriteFile(path, tokenSecret, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *config.Config) {
		c.Tokens.SecretFiles, c.Tokens.Algorithms = []string{path}, []string{"HS256"}
		c.Tokens.Issuer, c.Tokens.Audiences = "me", []string{"api"}
		c.Tokens.ProjectClaim, c.Tokens.TierClaim = "org.id", "plan"
	}
}

// TestTokensHaveBudgets goes through the gateway: each subject has a budget,
// whatever its token; forged tokens have that of the address. Neither metrics
// nor explanations show a token.
func TestTokensHaveBudgets(t *testing.T) {
	p := newProcess(t, []policy.Rule{
		{Endpoint: policy.Default, Limit: 2, Per: time.Hour},
		{Endpoint: policy.Default, Project: "acme", Limit: 3, Per: time.Hour},
	}, withSecret(t))
	exp := time.Now().Unix() + 300
	alice := signed(tokenSecret, `{"iss":"me","aud":"api","sub":"alice","exp":%d}`, exp)
	newer := signed(tokenSecret, `{"iss":"me","aud":"api","sub":"alice","exp":%d}`, exp+1)
	acme := signed(tokenSecret, `{"iss":"me","aud":"api","sub":"alice","exp":%d,"org":{"id":"acme"}}`, exp)
	forged := signed([]byte("x"), `{"iss":"me","aud":"api","sub":"bob","exp":%d}`, exp)
	for i, step := range []struct {
		token string
		want  int
	}{
		{alice, 200}, {newer, 200}, {alice, 429}, {newer, 429},
		{acme, 200}, {acme, 200}, {acme, 200}, {acme, 429}, // another tenant's alice
		{forged, 200}, {"", 200}, {forged, 429}, {"", 429},
	} {
		header := []string{}
		if step.token != "" {
			header = []string{"Authorization", "Bearer " + step.token}
		}
		if code, body := call(t, "GET", p.gate+"/v1/items/1", "", header...); code != step.want ||
			strings.Contains(body, "alice") {
			t.Errorf("step %d: %d %s, want %d", i, code, body, step.want)
		}
	}
	_, metrics := call(t, "GET", p.admin+"/metrics", "")
	for _, want := range []string{
		"headgate_token_keys 1", "headgate_token_cache_entries 3", "headgate_token_cache_hits_total 5",
		"headgate_token_cache_misses_total 5",
		"headgate_token_key_failures_total 0", `headgate_credentials_rejected_total{reason="token_refused"} 2`,
	} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	query := fmt.Sprintf(`{"method":"GET","target":"/v1/items/1","header":["Authorization: Bearer %s"]}`, acme)
	_, explained := call(t, "POST", p.admin+"/v1/explain", query, "Content-Type", asJSON)
	if !strings.Contains(explained, `"id":"alice"`) || !strings.Contains(explained, `"project":"acme"`) {
		t.Errorf("explain: %s", explained)
	}
	for name, text := range map[string]string{"metrics": metrics, "explain": explained} {
		for _, secret := range []string{alice, acme, acme[strings.LastIndex(acme, ".")+1:], strings.Split(acme, ".")[1],
			string(tokenSecret)} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows a part of a token", name)
			}
		}
	}
}

// TestTokensWithoutTheirIssuer: a gateway starts while the issuer is away,
// counts tokens as their addresses', and says so.
func TestTokensWithoutTheirIssuer(t *testing.T) {
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer away.Close()
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}}, func(c *config.Config) {
		c.Tokens.JWKSURL, c.Tokens.Algorithms, c.Tokens.Issuer, c.Tokens.Audiences = away.URL, []string{"RS256"}, "me",
			[]string{"api"}
	})
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + ".e30.AAAA"
	for i, want := range []int{200, 429} {
		if code, _ := call(t, "GET", p.gate+"/v1/items/1", "", "Authorization", "Bearer "+text); code != want {
			t.Errorf("request %d = %d, want %d", i, code, want)
		}
	}
	if _, metrics := call(t, "GET", p.admin+"/metrics", ""); !strings.Contains(metrics, `reason="lookup_failed"} 2`) ||
		!strings.Contains(metrics, "headgate_token_keys 0") {
		t.Error("the metrics do not say that tokens could not be verified")
	}
}
