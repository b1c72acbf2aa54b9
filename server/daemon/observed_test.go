package daemon

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/config"
)

// everything starts a gateway with all on that has metrics of its own.
func everything(t *testing.T) (*Daemon, *http.Client) {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	store := redistest.StartOnPort(t)
	ours := newAuthority(t, "ours")
	d, _ := tlsGateway(t, ours, nil, "none", func(c *config.Config) {
		c.Origins, c.SignedAgents.Private = []string{"https://api.example"}, true
		c.SignedAgents.Directories = []config.AgentDirectory{{Origin: "http://127.0.0.1:9"}}
		c.Batches = []config.Batch{{Endpoint: "GET /x"}}
		c.Store.Redis, c.Store.Deadline = []string{store.Address()}, config.Default().Store.Deadline
		c.StateFile = filepath.Join(dir, "buckets.state")
		c.DecisionLog.File = filepath.Join(dir, "decisions.log")
		c.AutoRevert.Share = 50
		c.Warn.SlowerPercent = 50
		c.RegionFiles = []string{file("regions.csv", "203.0.113.0,203.0.113.127,DE\n")}
		c.Decisions.Listen, c.Decisions.GRPC = "127.0.0.1:0", "127.0.0.1:0"
		c.Decisions.RateLimit = []string{file("limits.yaml",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n")}
		c.Tokens.SecretFiles, c.Tokens.Algorithms = []string{file("token.secret", tokenKey)}, []string{"HS256"}
		c.Tokens.Issuer, c.Tokens.Audiences = "me", []string{"api"}
		c.Headers.Legacy, c.BadCredentials = "delta", "reject"
		c.Warn.DeniedPercent, c.Warn.URL = 100, "http://127.0.0.1:9/warnings"
		c.Warn.SecretFile = file("webhook.secret", tokenKey)
	})
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return d, &http.Client{Transport: transport}
}

var tokenKey = strings.Repeat("s3cr3t! ", 4)

// tokenOf is a bearer token that everything verifies.
func tokenOf(subject string) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"iss":"me","aud":"api","sub":%q,"exp":%d}`, subject, time.Now().Unix()+300)
	input := encode([]byte(`{"alg":"HS256"}`)) + "." + encode([]byte(claims))
	mac := hmac.New(sha256.New, []byte(tokenKey))
	mac.Write([]byte(input))
	return input + "." + encode(mac.Sum(nil))
}

var metricName = regexp.MustCompile(`headgate_[a-z0-9_]+`)

// TestAlertsAndDashboardsNameWhatThereIs starts a gateway with everything on, and looks for each metric of the alerts
// and the dashboards among those it tells, and for each field of its answers on docs/observability.md, both ways.
func TestAlertsAndDashboardsNameWhatThereIs(t *testing.T) {
	d, client := everything(t)
	gate := "https://" + d.Gateway().String()
	seen := map[string]bool{}
	ask := func(url string, want int, header ...string) string { // GET, or the method before the URL
		t.Helper()
		method, at, ok := strings.Cut(url, " ")
		if !ok {
			method, at = "GET", url
		}
		r, err := http.NewRequest(method, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s = %d %v, want %d: %s", url, response.StatusCode, err, want, body)
		}
		for name := range response.Header {
			seen[name] = true
		}
		return string(body)
	}
	ask(gate+"/x", 200, "Origin", "https://elsewhere.test", "Authorization", "Bearer "+tokenOf("alice"))
	ask(gate+"/x", 401, "Authorization", "Bearer "+tokenOf("alice")[1:])
	ask(gate+"/x", 429)
	ask(gate+"/x", 429)
	ask(gate+"/nothing", 404)
	ask("POST "+gate+"/x", 405)
	ask("http://"+d.asked.Addr().String()+"/nginx", 403, "X-Original-Method", "GET", "X-Original-Uri", "/x",
		"X-Real-Ip", "127.0.0.1")
	d.reloads.read = func() (config.Config, error) { // what another dialect says
		c := d.parts.loaded.Load().conf
		c.Headers.Draft = "proposal-166"
		return c, c.Complete()
	}
	if done, err := d.Reload(t.Context()); err != nil || !slices.Equal(done.Changed, []string{"headers.draft"}) {
		t.Fatalf("reload: %+v, %v", done, err)
	}
	ask(gate+"/x", 429)
	put, err := http.NewRequest("PUT", "http://"+d.Admin().String()+"/v1/policies",
		strings.NewReader(`{"endpoint":"UNKNOWN","limit":1,"scope":"strict"}`))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Content-Type", "application/json")
	if response, err := client.Do(put); err != nil || response.Body.Close() != nil || response.StatusCode != 200 {
		t.Fatalf("a shared rule: %v %v", response, err)
	}
	page, end := "", time.Now().Add(time.Minute)
	for !strings.Contains(page, "headgate_store_clock_offset_seconds ") && time.Now().Before(end) {
		page = ask("http://"+d.Admin().String()+"/metrics", 200) // which has it once the store was looked at
	}

	have := map[string]bool{}
	for line := range strings.Lines(page) {
		if name := metricName.FindString(line); name != "" && !strings.HasPrefix(line, "#") {
			have[name] = true
		}
	}
	examples := filepath.Join("..", "..", "examples")
	boards, err := filepath.Glob(filepath.Join(examples, "grafana", "*.json"))
	if err != nil || len(boards) == 0 {
		t.Fatalf("dashboards: %d, %v", len(boards), err)
	}
	alerts := filepath.Join(examples, "prometheus", "alerts.yaml")
	for _, path := range append(boards, alerts) {
		named := metricName.FindAllString(readAll(t, path), -1)
		if len(named) < 5 {
			t.Errorf("%s names %d metrics", path, len(named))
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(named))) {
			if !have[name] {
				t.Errorf("%s names %s, which a gateway with everything on does not tell", path, name)
			}
		}
	}

	observability := readAll(t, filepath.Join("..", "..", "docs", "observability.md"))
	for _, match := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(readAll(t, alerts), -1) {
		if !strings.Contains(observability, "`"+match[1]+"`") {
			t.Errorf("docs/observability.md does not name %s", match[1])
		}
	}
	_, table, _ := strings.Cut(observability, "## Response fields")
	table, requests, _ := strings.Cut(table, "## Request fields")
	var told []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Za-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		told = append(told, http.CanonicalHeaderKey(match[1]))
	}
	for name := range seen {
		ofHTTP := []string{"Date", "Content-Length", "Vary", "Connection"}
		if !slices.Contains(told, name) && !slices.Contains(ofHTTP, name) {
			t.Errorf("docs/observability.md does not tell of the response field %s", name)
		}
	}
	for _, name := range told {
		if !seen[name] {
			t.Errorf("docs/observability.md tells of the response field %s, which no answer had", name)
		}
	}
	for _, name := range []string{cmp.Or(d.conf.Keys.Header, "X-Api-Key"), d.conf.ForwardedHeader, "Headgate-Pending",
		"Authorization"} {
		if !strings.Contains(requests, "`"+name+"`") {
			t.Errorf("docs/observability.md does not tell of the request field %s", name)
		}
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}
