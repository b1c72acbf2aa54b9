package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

// TestKeysTellNoEndpointsApart: a parameter cannot both name an endpoint and
// hold a key, which may be taken out of the target.
func TestKeysTellNoEndpointsApart(t *testing.T) {
	routes := filepath.Join(t.TempDir(), "routes.txt")
	if err := os.WriteFile(routes, []byte("POST /rpc\nPOST /rpc?action=drop&api_key={k}\nGET /b?Token=\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"": "", "key": "", "api": "",
		"api_key": `api_keys.query is "api_key", want a parameter that tells no endpoints apart, as it does in "POST /rpc?action=drop&api_key={k}"`,
		"action":  `api_keys.query is "action", want a parameter`,
		"token":   `as it does in "GET /b?Token="`,
	} {
		c := config.Default()
		c.Routes, c.Keys.Query = []string{routes}, query
		_, err := Endpoints(c)
		switch {
		case want == "" && err != nil:
			t.Errorf("api_keys.query %q: %v", query, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("api_keys.query %q: %v, want %s", query, err, want)
		}
	}
}

// TestEndpointsThatSettingsNameAreThere: what serve would refuse is found with the registry, where doctor looks.
func TestEndpointsThatSettingsNameAreThere(t *testing.T) {
	routes := filepath.Join(t.TempDir(), "routes.txt")
	if err := os.WriteFile(routes, []byte("POST /v1/a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Endpoints(config.Config{
		Upstream: "http://127.0.0.1:9", Routes: []string{routes}, MCP: []config.MCP{{Endpoint: "POST /b"}},
		LanguageModels: []config.LanguageModel{{Endpoints: []string{"POST /v1/a", "POST /c"}}},
		Bytes:          []config.ByteCount{{Endpoints: []string{"UNKNOWN"}}},
		Adaptive:       []config.Adaptive{{Endpoints: []string{"POST /d"}}},
	})
	for _, want := range []string{
		`mcp[0]: endpoint is "POST /b", want one`, `language_models[0].endpoints: endpoint is "POST /c", want one`,
		`bytes[0].endpoints: template "UNKNOWN"`, `adaptive[0].endpoints: endpoint is "POST /d", want one`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Endpoints: %v, want %q", err, want)
		}
	}
}
