package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

func adminToken(t *testing.T, p *process, name string, roles ...record.Role) string {
	t.Helper()
	db, err := database.Open(context.Background(), "sqlite:"+filepath.Join(p.dir, "headgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, text, err := db.CreateAdminToken(context.Background(), record.NewAdminToken{Name: name, Roles: roles})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Tokens that somebody else makes and revokes in the database count and end in a
// running process.
func TestAdminTokensAreWatched(t *testing.T) {
	var log livelog.Text
	p := newProcessWith(t, daemon.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Version: "test"}, fewAnHour,
		func(c *config.Config) { c.AdminAccess.Auth = "always" })
	status := func(token, method, path string) int {
		code, _ := call(t, method, p.admin+path, "", "Authorization", "Bearer "+token)
		return code
	}
	if !strings.Contains(log.String(), "nobody can use the admin listener") {
		t.Errorf("the log does not say that nobody can use it:\n%s", log.String())
	}
	if code, _ := call(t, "GET", p.admin+"/v1/policies", ""); code != 401 {
		t.Errorf("without a token = %d, want 401", code)
	}
	token := adminToken(t, p, "ci", record.RoleRead)
	eventually(t, "a new token counts", func() bool { return status(token, "GET", "/v1/policies") == 200 })
	if code := status(token, "POST", "/v1/reload"); code != 403 {
		t.Errorf("reload by a reader = %d, want 403", code)
	}
	db, err := database.Open(context.Background(), "sqlite:"+filepath.Join(p.dir, "headgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.RevokeAdminToken(context.Background(), "ci"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a revoked token is refused", func() bool { return status(token, "GET", "/v1/policies") == 401 })
	all, err := os.ReadFile(filepath.Join(p.dir, "headgate.db"))
	wal, _ := os.ReadFile(filepath.Join(p.dir, "headgate.db-wal"))
	if err != nil || len(all) == 0 || bytes.Contains(append(all, wal...), []byte(token[6:])) ||
		strings.Contains(log.String(), token[6:]) {
		t.Errorf("the token stands in the database or in the log (%v)", err)
	}
}

// While the database is away, who has a token still sees metrics and rules, also
// after a start; and changes are refused, because they cannot be written down.
func TestAdminTokensWithoutTheDatabase(t *testing.T) {
	change := func(c *config.Config) { c.AdminAccess.Auth = "always" }
	p := newProcess(t, fewAnHour, change)
	token := adminToken(t, p, "ops", record.Roles...)
	bears := []string{"Authorization", "Bearer " + token, "Content-Type", asJSON}
	get := func(p *process, path string) (int, string) { return call(t, "GET", p.admin+path, "", bears...) }
	eventually(t, "the token counts", func() bool { code, _ := get(p, "/v1/policies"); return code == 200 })
	copied := filepath.Join(p.dir, "headgate.db.last-good.admin.json")
	eventually(t, "the token is in the copy", func() bool {
		text, _ := os.ReadFile(copied)
		return bytes.Contains(text, []byte(`"ops"`))
	})
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy: %v, %v, want mode 0600", info, err)
	}
	for _, name := range []string{"headgate.db", "headgate.db-wal", "headgate.db-shm"} {
		if err := os.Rename(filepath.Join(p.dir, name), filepath.Join(p.dir, "away-"+name)); err != nil &&
			!os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	check := func(p *process) {
		t.Helper()
		if code, body := get(p, "/v1/policies"); code != 200 {
			t.Errorf("policies = %d %s", code, body)
		}
		if code, page := get(p, "/metrics"); code != 200 || !strings.Contains(page, "headgate_admin_tokens 1\n") ||
			!strings.Contains(page, `headgate_admin_calls_total{operation=`) {
			t.Errorf("metrics = %d\n%s", code, ours(page))
		}
		code, body := call(t, "POST", p.admin+"/v1/buckets/reset",
			`{"endpoint":"GET /v1/items/{id}","address":"127.0.0.1"}`, bears...)
		if code != 503 || !strings.Contains(body, "The call could not be written down, so it was not made") {
			t.Errorf("reset = %d %s, want 503", code, body)
		}
		if code, body := get(p, "/v1/calls"); code != 503 {
			t.Errorf("the record = %d %s, want 503", code, body)
		}
	}
	eventually(t, "the database is missed", func() bool {
		_, body := get(p, "/v1/policies")
		return strings.Contains(body, "last_error")
	})
	check(p)
	check(lateProcess(t, change, func(c *config.Config) {
		c.DB, c.LastGood, c.SecretFile = "sqlite:"+filepath.Join(p.dir, "headgate.db"),
			filepath.Join(p.dir, "headgate.db.last-good.json"), filepath.Join(p.dir, "headgate.db.secret")
	}))
	for _, name := range []string{"headgate.db", "headgate.db-wal", "headgate.db-shm"} {
		if err := os.Rename(filepath.Join(p.dir, "away-"+name), filepath.Join(p.dir, name)); err != nil &&
			!os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	var page struct {
		Calls []struct{ Operation, Actor string }
	}
	eventually(t, "what was asked meanwhile is in the record", func() bool {
		code, body := get(p, "/v1/calls?limit=1000")
		return code == 200 && json.Unmarshal([]byte(body), &page) == nil && len(page.Calls) > 2
	})
	for _, c := range page.Calls {
		if c.Actor != "token ops" && c.Actor != "nobody" {
			t.Errorf("%+v, want the token's name", c)
		}
	}
}
