package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/server/config"
)

func readText(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(path, []byte("upstream: http://127.0.0.1:9000\nroutes: [routes.txt]\n"+text),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Read(path)
	if err == nil {
		err = c.Complete()
	}
	return c, err
}

func TestIdentifiersHaveDefaults(t *testing.T) {
	c, err := readText(t, "identifiers:\n  - {endpoint: POST /v1/login, field: user.email}\n  - {endpoint: POST "+
		"/v1/reset, field: email, format: form, max_bytes: 1KiB, normalise: [trim, nfkc], count: failures, "+
		"failure_statuses: [401]}\n")
	if err != nil {
		t.Fatal(err)
	}
	i := c.Identifiers[0]
	if i.Format != "json" || i.MaxBytes != 8<<10 || i.MaxDepth != 8 || i.MaxLength != 256 ||
		i.ReadTimeout != 10*time.Second || i.Unparsable != "strict" || i.Count != "all" {
		t.Errorf("identifiers[0] = %+v, want every default", i)
	}
	if all, nfkc, err := i.Spellings(); all != body.DefaultSpellings || !nfkc || err != nil {
		t.Errorf("Spellings = %v, %v, %v", all, nfkc, err)
	}
	i = c.Identifiers[1]
	if all, nfkc, err := i.Spellings(); all != body.Trim || !nfkc || err != nil || i.MaxBytes != 1024 ||
		!slices.Equal(i.FailureStatuses, []int{401}) {
		t.Errorf("identifiers[1] = %+v, %v, %v, %v", i, all, nfkc, err)
	}
}

func TestIdentifiersAreChecked(t *testing.T) {
	_, err := readText(t, `identifiers:
  - {field: a.b.c.d.e, format: xml, max_bytes: 2MiB, max_depth: 65, max_length: -1, read_timeout: 1h, unparsable: ignore, count: most, failure_statuses: [500], normalise: [lower]}
  - {endpoint: POST /v1/login, field: user.email, format: any, normalise: [exact, trim]}
  - {endpoint: POST /v1/login, field: email, failure_statuses: [401]}
`)
	for _, want := range []string{
		`identifiers[0].endpoint is "", want an endpoint`, `identifiers[0].field is "a.b.c.d.e"`,
		`identifiers[0].format is "xml", want json, form or any`,
		`identifiers[0].max_bytes is "2MiB", want 64B to 1MiB`, `identifiers[0].max_depth is "65"`,
		`identifiers[0].max_length is "-1"`,
		`identifiers[0].read_timeout is "1h0m0s"`, `identifiers[0].unparsable is "ignore", want strict or reject`,
		`identifiers[0].count is "most"`,
		`identifiers[0].failure_statuses is "500", want 200 to 499`, `identifiers[0].normalise is "lower"`,
		`identifiers[1].field is "user.email"`, `identifiers[1].normalise is "exact, trim"`,
		`identifiers[2].endpoint is "POST /v1/login", want each endpoint once`,
		`identifiers[2].count is "all", want failures`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Complete says\n%v\nwant %s", err, want)
		}
	}
	if _, err := readText(t, "identifiers:\n  - {endpoint: POST /v1/login, fields: email}\n"); err == nil ||
		!strings.Contains(err.Error(), "fields") {
		t.Errorf("an unknown field: %v", err)
	}
}
