package doctor_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/doctor"
	"github.com/headgate-io/headgate/server/record"
)

func TestAdminTokens(t *testing.T) {
	dir := t.TempDir()
	c := config.Default()
	c.Upstream, c.Unknown, c.DB = "http://127.0.0.1:9000", "limit", "sqlite:"+filepath.Join(dir, "headgate.db")
	c.FillPaths()
	db, err := database.Open(t.Context(), c.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Apply(t.Context(), record.Author{Actor: "tester"},
		record.Edit{Set: []policy.Rule{{Endpoint: "default", Limit: 1}}}); err != nil {
		t.Fatal(err)
	}
	check := func(what, setting string, level doctor.Level, want string) {
		t.Helper()
		got := find(doctor.Configuration(t.Context(), c, doctor.Options{}), setting)
		if level == doctor.OK && len(got) == 0 {
			return
		}
		if len(got) != 1 || got[0].Level != level || !strings.Contains(got[0].Wrong, want) {
			t.Errorf("%s: %s %+v, want one of level %v that says %q", what, setting, got, level, want)
		}
	}
	check("no tokens, open", "admin_auth", doctor.OK, "")
	c.AdminAccess.Auth = "always"
	check("no tokens, always", "admin_auth", doctor.Note, "nobody can use it")
	if _, _, err := db.CreateAdminToken(t.Context(),
		record.NewAdminToken{Name: "ci", Roles: record.Roles, Expires: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	check("a token, always", "admin_auth", doctor.OK, "")
	c.Admin = "0.0.0.0:8081"
	check("everywhere", "admin", doctor.Note, "in plain HTTP")
	c.Admin, c.AdminAccess.Auth = "127.0.0.1:8081", "loopback"
	check("a token, open", "admin_auth", doctor.Note,
		"whoever is on this machine can do everything without a token, and there are some in the database (1)")
	if err := db.RevokeAdminToken(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	check("a revoked token, open", "admin_auth", doctor.OK, "")
}
