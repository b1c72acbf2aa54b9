package database_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

func TestAdminTokens(t *testing.T) { everywhere(t, testAdminTokens) }

func testAdminTokens(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	empty, err := s.AdminTokens().Version(ctx)
	must(t, err)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	ci, text, err := s.CreateAdminToken(ctx, record.NewAdminToken{
		Name:    "ci",
		Roles:   []record.Role{record.RoleGrant, record.RoleRead, record.RoleGrant},
		Expires: until,
	})
	must(t, err)
	if !record.AdminTokenFormat.Match(text) || !strings.HasPrefix(text, "hgadm_") {
		t.Errorf("the token does not have its format, %d bytes", len(text))
	}
	if want := []record.Role{record.RoleRead, record.RoleGrant}; !reflect.DeepEqual(ci.Roles, want) {
		t.Errorf("roles %v, want %v", ci.Roles, want)
	}
	_, other, err := s.CreateAdminToken(ctx, record.NewAdminToken{Name: "CI", Roles: []record.Role{record.RoleWrite}})
	must(t, err)
	if other == text {
		t.Error("two tokens are the same")
	}
	if _, _, err := s.CreateAdminToken(ctx, record.NewAdminToken{Name: "ci", Roles: record.Roles}); !errors.Is(err,
		record.ErrTokenName) {
		t.Errorf("a second token ci: %v, want %v", err, record.ErrTokenName)
	}

	records, made, err := s.AdminTokens().Load(ctx)
	must(t, err)
	if made == empty || len(records) != 2 || records[0].Name != "ci" && records[1].Name != "ci" {
		t.Fatalf("Load = %+v at %q, want two tokens and another version than %q", records, made, empty)
	}
	for _, r := range records {
		if r.Name == "ci" && (r.Digest != record.AdminTokenDigest(text) || !r.Expires.Equal(until) ||
			!r.Valid(until.Add(-time.Second)) || r.Valid(until)) {
			t.Errorf("the record of ci is %+v, want its digest and its end at %v", r.AdminToken, until)
		}
	}
	must(t, s.RevokeAdminToken(ctx, "ci"))
	if err := s.RevokeAdminToken(ctx, "none"); !errors.Is(err, record.ErrNotFound) ||
		!strings.Contains(err.Error(), `admin token "none"`) {
		t.Errorf("RevokeAdminToken(none) = %v, want %v", err, record.ErrNotFound)
	}
	revoked, err := s.AdminTokens().Version(ctx)
	must(t, err)
	list, err := s.ListAdminTokens(ctx)
	must(t, err)
	for _, l := range list {
		if l.Valid(time.Now()) != (l.Name == "CI") {
			t.Errorf("after ci was revoked: %+v is valid: %v", l, l.Valid(time.Now()))
		}
	}
	must(t, s.RevokeAdminToken(ctx, "ci"))
	if again, err := s.AdminTokens().Version(ctx); err != nil || revoked == made || again != revoked {
		t.Errorf("versions %q, %q, %q, %v: want one more by the revocation, none by the second", made,
			revoked, again, err)
	}
	if all, _ := json.Marshal([]any{list, records, ci}); strings.Contains(string(all), text[6:]) {
		t.Error("a token stands in what is told about it")
	}
}

// A gateway must not load its rules again because somebody made a token or
// called the API.
func TestAdminTablesWakeNobody(t *testing.T) {
	everywhereButSQLite(t, func(t *testing.T, d someDatabase) {
		s, ctx := d.open(t), t.Context()
		before, err := s.Version(ctx)
		must(t, err)
		_, _, err = s.CreateAdminToken(ctx, record.NewAdminToken{Name: "ci", Roles: record.Roles})
		must(t, err)
		must(t, s.RevokeAdminToken(ctx, "ci"))
		id, err := s.BeginCall(ctx, call)
		must(t, err)
		must(t, s.EndCall(ctx, id, record.Call{Status: 200}))
		if after, err := s.Version(ctx); err != nil || after != before {
			t.Errorf("Version = %q, %v, want %q as before", after, err, before)
		}
	})
}

func TestNewAdminTokenCheck(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		token record.NewAdminToken
		want  []string // none: nothing is wrong
	}{
		"good":    {record.NewAdminToken{Name: "ci-2.a_B", Roles: record.Roles, Expires: now.Add(1)}, nil},
		"nothing": {record.NewAdminToken{}, []string{`name is ""`, "roles is empty"}},
		"a name like ours": {record.NewAdminToken{Name: "local:ann", Roles: record.Roles},
			[]string{`name is "local:ann", want 1 to 63 letters`}},
		"a long name": {record.NewAdminToken{Name: strings.Repeat("a", 64), Roles: record.Roles}, []string{"name is"}},
		"no such role": {record.NewAdminToken{Name: "a", Roles: []record.Role{"admin"}},
			[]string{`role is "admin", want read, write or grant`}},
		"past": {record.NewAdminToken{Name: "a", Roles: record.Roles, Expires: now},
			[]string{"expires is 2026-11-20T12:00:00Z, want a time in the future"}},
	} {
		err := c.token.Check(now)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Check = %v, want %q", name, err, want)
			}
		}
		if c.want == nil && err != nil {
			t.Errorf("%s: Check = %v, want nil", name, err)
		}
	}
}

func TestRolesOfTokens(t *testing.T) {
	for _, c := range []struct{ has, may string }{
		{"", ""}, {"read", "read"}, {"write", "read write"}, {"grant", "read grant"},
		{"write grant", "read write grant"},
	} {
		var token record.AdminToken
		for r := range strings.FieldsSeq(c.has) {
			token.Roles = append(token.Roles, record.Role(r))
		}
		for _, r := range record.Roles {
			if got, want := token.May(r), strings.Contains(c.may, string(r)); got != want {
				t.Errorf("a token with %q may %s: %v, want %v", c.has, r, got, want)
			}
		}
	}
}

// What a shell writes wrongly is found, and nobody is let in by it.
func TestBrokenAdminTokens(t *testing.T) {
	s := open(t)
	db := shell(t, s.Path())
	run(t, db, `INSERT INTO admin_tokens (id, name, roles, digest, created_at) VALUES ('t_1', 'a', 'root', zeroblob(32), 1)`)
	if list, err := s.ListAdminTokens(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `roles is "root", want read, write or grant`) {
		t.Errorf("ListAdminTokens = %+v, %v, want an error about the role", list, err)
	}
	for i, columns := range []string{`'', 'b', 'read', zeroblob(32), 1`, `'t_2', '', 'read', zeroblob(32), 1`,
		`'t_2', 'a', 'read', zeroblob(31), 1`, `'t_2', 'b', 'read', zeroblob(32), 1`} {
		if _, err := db.Exec("INSERT INTO admin_tokens (id, name, roles, digest, created_at) VALUES (" + columns +
			")"); err == nil {
			t.Errorf("row %d is taken", i)
		}
	}
}

func TestAdminTokensAreBounded(t *testing.T) {
	s := open(t)
	db := shell(t, s.Path())
	run(t, db, "BEGIN")
	for i := range 1000 {
		run(t, db,
			fmt.Sprintf(`INSERT INTO admin_tokens (id, name, roles, digest, created_at) VALUES ('t_%[1]d', 'n%[1]d', 'read', CAST(printf('%%032d', %[1]d) AS BLOB), 1)`, i))
	}
	run(t, db, "COMMIT")
	if _, _, err := s.CreateAdminToken(t.Context(),
		record.NewAdminToken{Name: "ci", Roles: record.Roles}); err == nil ||
		!strings.Contains(err.Error(), "there are 1000 admin tokens, want fewer than 1000") {
		t.Errorf("the 1001st token: %v", err)
	}
}
