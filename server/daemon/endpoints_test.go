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
