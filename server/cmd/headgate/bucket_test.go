package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// running starts a gateway on the database in dir and returns the addresses of
// its listeners.
func running(t *testing.T, dir string) (gate, side string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	c := config.Default()
	c.Listen, c.Admin, c.Upstream = "127.0.0.1:0", "127.0.0.1:0", api.URL
	c.DB, c.Routes = "sqlite:"+filepath.Join(dir, "headgate.db"), []string{write(t, dir, "routes.txt", routesFile)}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(context.Background(), c, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return "http://" + d.Gateway().String(), "http://" + d.Admin().String()
}

func TestBucketCommands(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "3", "--per", "1h")
	key := strings.TrimSpace(must(t, dir, "key", "create", "--project", "acme", "--name", "ci"))
	var keys []admin.KeyEntry
	if err := json.Unmarshal([]byte(must(t, dir, "key", "list", "--json")), &keys); err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	gate, side := running(t, dir)
	send := func(want ...int) {
		t.Helper()
		for i, code := range want {
			r, err := http.NewRequest("GET", gate+"/v1/items/7", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Api-Key", key)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != code {
				t.Errorf("request %d = %d, want %d", i, response.StatusCode, code)
			}
		}
	}
	bucket := func(args ...string) string {
		t.Helper()
		out := must(t, dir, append(append([]string{"bucket"}, args...), "--server", side)...)
		if strings.Contains(out, key) {
			t.Errorf("%v repeats the key:\n%s", args, out)
		}
		return out
	}
	byKey := []string{"GET /v1/items/{id}", "--key", keys[0].ID}

	send(200, 200, 200, 429)
	out := bucket(append([]string{"inspect"}, byKey...)...)
	for _, want := range []string{"RULE", "REMAINING", "api key " + keys[0].ID + " of project acme", "3 per 1h"} {
		if !strings.Contains(out, want) {
			t.Errorf("inspect does not say %q:\n%s", want, out)
		}
	}
	if out := bucket("reset", "GET /v1/items/{id}", "--peer", "127.0.0.1", "--header",
		"X-Api-Key: "+key); !strings.Contains(out, "3 of 3 tokens (audit 1)") {
		t.Errorf("reset = %s", out)
	}
	send(200, 200, 200, 429)
	if out := bucket("grant", byKey[0], "2", byKey[1], byKey[2]); !strings.Contains(out,
		`granted 2 of 2 to rule "GET /v1/items/{id}"`) {
		t.Errorf("grant = %s", out)
	}
	send(200, 200, 429)
	var change admin.BucketChange
	if err := json.Unmarshal([]byte(bucket("grant", byKey[0], "4", byKey[1], byKey[2], "--expires", "2h", "--json")),
		&change); err != nil ||
		change.Audit != 3 || change.Given != 4 || change.Bucket.Allowance == nil || change.Bucket.Remaining != 4 {
		t.Errorf("grant --json = %+v, %v", change, err)
	}
	send(200, 200, 200, 200, 429)
	var in inspect.Found
	if err := json.Unmarshal([]byte(bucket("inspect", byKey[0], byKey[1], byKey[2], "--json")), &in); err != nil ||
		len(in.Buckets) != 1 || in.Buckets[0].Allowance.Tokens != 4 {
		t.Errorf("inspect --json = %+v, %v", in, err)
	}
	if out := bucket("inspect", "GET /v1/items/{id}", "--project", "acme"); !strings.Contains(out,
		"its bucket is named by an API key, a certificate, a token's subject or an address") ||
		!strings.Contains(out, "--address 192.0.2.7") || strings.Contains(out, "REMAINING") {
		t.Errorf("inspect of a project = %s", out)
	}
	if out := bucket("inspect", "*", "--address", "192.0.2.1"); !strings.Contains(out, "no rule applies there") {
		t.Errorf("inspect of nothing = %s", out)
	}

	code, stdout, stderr := call(t, dir, "bucket", "reset", "GET /v1/itmes/{id}", "--address", "127.0.0.1",
		"--server", side)
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, `such as "GET /v1/items/{id}"`) {
		t.Errorf("reset of a typo: exit %d, %s%s", code, stdout, stderr)
	}

	audit := must(t, dir, "audit")
	for _, want := range []string{"ACTOR", "local connection", localUser(), "reset", "grant", "api key " + keys[0].ID} {
		if !strings.Contains(audit, want) {
			t.Errorf("audit does not say %q:\n%s", want, audit)
		}
	}
	var rows []admin.AuditEntry
	if err := json.Unmarshal([]byte(must(t, dir, "audit", "--limit", "1", "--json")), &rows); err != nil ||
		len(rows) != 1 || rows[0].ID != 3 || rows[0].Amount != 4 || rows[0].Expires.IsZero() {
		t.Errorf("audit --json = %+v, %v", rows, err)
	}
}
