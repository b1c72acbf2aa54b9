package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// roleSets are all there are.
var roleSets = [][]record.Role{
	{record.RoleRead}, {record.RoleWrite}, {record.RoleGrant}, {record.RoleRead, record.RoleWrite},
	{record.RoleRead, record.RoleGrant},
	{record.RoleWrite, record.RoleGrant}, {record.RoleRead, record.RoleWrite, record.RoleGrant},
}

// may is a slow twin of the door's judgement, from what people are told.
func may(access string, roles []record.Role) bool {
	has := fmt.Sprint(roles)
	switch access {
	case "none", "read":
		return true // of all sets, none is empty
	case "write or grant": // the samples are of rules that last
		return strings.Contains(has, "write")
	case "all":
		return strings.Contains(has, "write") && strings.Contains(has, "grant") // they include read
	}
	return strings.Contains(has, access)
}

// Each operation with each set of roles, and without a token. What succeeds and
// fails for its own reasons is not the role's business.
func TestRoles(t *testing.T) {
	s := newSite(t)
	for _, op := range admin.Operations() {
		var c sample
		for _, c = range samples {
			if c.id == op.ID {
				break
			}
		}
		for _, roles := range roleSets {
			got := s.call(s.token(roles...), c.method, c.target, c.body, c.header...)
			if refused := got.kind() == "role-missing"; refused == may(op.Access, roles) ||
				refused != (got.status == 403) {
				t.Errorf("%s with %v = %d %s, want it allowed: %v", op.ID, roles, got.status, got.body,
					may(op.Access, roles))
			}
		}
		for name, token := range map[string]string{
			"no token":     "",
			"a wrong one":  "hgadm_none",
			"a forged one": forged(t),
			"a prefix":     s.all()[:20],
		} {
			if got := s.call(token, c.method, c.target, c.body,
				c.header...); (got.status == 401) != (op.Access != "none") ||
				got.status == 401 && got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %s = %d %s, want 401 unless anybody may", op.ID, name, got.status, got.body)
			}
		}
		if got := s.call(fileToken, c.method, c.target, c.body, c.header...); got.status == 401 || got.status == 403 {
			t.Errorf("%s with the file's token = %d %s", op.ID, got.status, got.body)
		}
	}
}

// forged is a token with a checksum that is right, which nobody has.
func forged(t *testing.T) string {
	t.Helper()
	text, err := record.AdminTokenFormat.New()
	must(t, err)
	return text
}

func TestRevokedAndEndedTokens(t *testing.T) {
	s := newSite(t)
	ctx := context.Background()
	_, text, err := s.db.CreateAdminToken(ctx,
		record.NewAdminToken{Name: "ci", Roles: record.Roles, Expires: s.now.Add(time.Hour)})
	must(t, err)
	if got := s.call(text, "GET", "/v1/tokens", ""); got.status != 200 {
		t.Fatalf("before its end = %d %s", got.status, got.body)
	}
	before := s.now
	s.now = before.Add(time.Hour)
	if got := s.call(text, "GET", "/v1/tokens", ""); got.status != 401 ||
		!strings.Contains(got.body, "The admin token ci ended at ") {
		t.Errorf("after its end = %d %s, want 401", got.status, got.body)
	}
	s.now = before
	if got := s.call(s.all(), "POST", "/v1/tokens/ci/revoke", ""); got.status != 204 {
		t.Errorf("revoke = %d %s", got.status, got.body)
	}
	if got := s.call(text, "GET", "/v1/tokens", ""); got.status != 401 ||
		!strings.Contains(got.body, "The admin token ci was revoked.") {
		t.Errorf("after the revocation = %d %s, want 401", got.status, got.body)
	}
	if got := s.call(s.all(), "POST", "/v1/tokens/none/revoke", ""); got.kind() != "not-found" {
		t.Errorf("revoke none = %d %s, want not-found", got.status, got.body)
	}
	if got := s.call(s.all(), "POST", "/v1/tokens", `{"name":"ci","roles":["read"]}`); got.kind() != "name-taken" {
		t.Errorf("another ci = %d %s, want name-taken", got.status, got.body)
	}
	if got := s.call(s.all(), "POST", "/v1/tokens", `{"name":"","roles":["root"]}`); got.kind() != "unacceptable" ||
		len(got.problem().Faults) != 2 {
		t.Errorf("a token of nothing = %d %s, want both faults", got.status, got.body)
	}
}

// On loopback nobody needs a token, and whoever shows one is held to its roles.
func TestLoopback(t *testing.T) {
	s := newSite(t, func(o *admin.Options) { o.Access.NeedToken, o.Access.Token = false, "" })
	for name, c := range map[string]struct {
		token, host, origin string
		status              int
		kind                string
	}{
		"nobody":                 {"", "localhost:8081", "", 200, ""},
		"by address":             {"", "[::1]:8081", "", 200, ""},
		"rebinding":              {"", "evil.example", "", 403, "strange-origin"},
		"a zone that is a name":  {"", "[fe80::1%25evil.example]:8081", "", 403, "strange-origin"},
		"no brackets and a zone": {"", "fe80::1%25evil.example", "", 403, "strange-origin"},
		"half a bracket":         {"", "[::1", "", 403, "strange-origin"},
		"the other half":         {"", "::1]:8081", "", 403, "strange-origin"},
		"a name after brackets":  {"", "[::1].evil.example", "", 403, "strange-origin"},
		"IPv4 in brackets":       {"", "[127.0.0.1]", "", 403, "strange-origin"},
		"two ports":              {"", "127.0.0.1:80:81", "", 403, "strange-origin"},
		"a port that is none":    {"", "localhost:evil", "", 403, "strange-origin"},
		"a colon alone":          {"", "localhost:", "", 403, "strange-origin"},
		"nothing":                {"", "", "", 403, "strange-origin"},
		"an IPv6 address alone":  {"", "[2001:db8::1]", "", 200, ""},
		"an IPv4 address":        {"", "192.0.2.7:8081", "", 200, ""},
		"in capitals":            {"", "LOCALHOST", "", 200, ""},
		"cross-origin":           {"", "127.0.0.1:8081", "cross-site", 403, "strange-origin"},
		"a reader":               {s.token(record.RoleRead), "127.0.0.1", "", 403, "role-missing"},
		"a reader by any name":   {s.token(record.RoleRead), "headgate.internal", "", 403, "role-missing"},
		"a writer":               {s.token(record.RoleWrite), "127.0.0.1", "", 200, ""},
		"a token of nobody":      {forged(t), "127.0.0.1", "", 401, "unauthenticated"},
		"half a token":           {"hgadm_", "127.0.0.1", "", 401, "unauthenticated"},
		"something of a proxy's": {"eyJhbGciOi", "127.0.0.1", "", 200, ""},
	} {
		r := httptest.NewRequest("POST", "/v1/reload", nil)
		r.Host = c.host
		if c.token != "" {
			r.Header.Set("Authorization", "bearer "+c.token)
		}
		if c.origin != "" {
			r.Header.Set("Sec-Fetch-Site", c.origin)
		}
		w := httptest.NewRecorder()
		s.door.ServeHTTP(w, r)
		got := answer{w.Code, w.Header(), w.Body.String()}
		s.check(r, "", got)
		if got.status != c.status || got.kind() != c.kind {
			t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, c.status, c.kind)
		}
	}
}

// The token of the file may be short, so guesses of it are bounded: for each
// address, and in no time that passes for others. A token of the database cannot
// be guessed, so nobody is kept out of it.
func TestGuesses(t *testing.T) {
	s := newSite(t)
	from := func(address, token string) answer {
		r := httptest.NewRequest("GET", "/v1/policies", nil)
		r.RemoteAddr = address
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		s.door.ServeHTTP(w, r)
		return answer{w.Code, w.Header(), w.Body.String()}
	}
	const here, there = "192.0.2.7:1", "198.51.100.9:1"
	for i := range 10 {
		if got := from(here, fmt.Sprintf("guess-number-%d-of-it", i)); got.status != 401 {
			t.Fatalf("guess %d = %d, want 401", i, got.status)
		}
	}
	if got := from(here, fileToken); got.kind() != "too-many-failures" || got.header.Get("Retry-After") != "6" {
		t.Errorf("the right token after ten wrong ones = %d %s, Retry-After %s, want 429 and 6", got.status, got.body,
			got.header.Get("Retry-After"))
	}
	if got := from(there, fileToken); got.status != 200 {
		t.Errorf("from another address = %d %s", got.status, got.body)
	}
	if got := from(here, s.token(record.RoleRead)); got.status != 200 {
		t.Errorf("with a token of the database = %d %s", got.status, got.body)
	}
	s.now = s.now.Add(6 * time.Second)
	if got := from(here, fileToken); got.status != 200 {
		t.Errorf("six seconds later = %d %s", got.status, got.body)
	}
	for i := range 10 { // the right one has cleared the count
		if got := from(here, fmt.Sprintf("guess-number-%d-of-it", i)); got.status != 401 {
			t.Errorf("guess %d = %d, want 401", i, got.status)
		}
	}
	for i := range 10 { // all of a network is one client
		from(fmt.Sprintf("[2001:db8::%d]:1", i+1), "a-guess-of-the-token")
	}
	if got := from("[2001:db8::ffff:1:2:3]:1", fileToken); got.status != 429 {
		t.Errorf("another address of a /64 that guessed = %d, want 429", got.status)
	}
}

// No token stands in any answer, log line or record, whatever was asked with it.
func TestTokensAreNowhere(t *testing.T) {
	s := newSite(t)
	var out strings.Builder
	mark := forged(t)
	for _, token := range []string{s.all(), fileToken, mark, "hgadm_" + mark} {
		for _, c := range samples {
			if c.id == "createToken" {
				continue // it shows the one that it makes
			}
			for _, target := range []string{c.target, c.target + "/" + "x"} {
				got := s.call(token, c.method, target, c.body, c.header...)
				fmt.Fprintln(&out, got.header, got.body)
			}
		}
	}
	made := s.call(s.all(), "POST", "/v1/tokens", `{"name":"made","roles":["read"]}`)
	_, text, _ := strings.Cut(made.body, `"token":"`)
	text, _, _ = strings.Cut(text, `"`)
	if !record.AdminTokenFormat.Match(text) {
		t.Fatalf("POST /v1/tokens = %s, want a token", made.body)
	}
	for _, c := range samples {
		fmt.Fprintln(&out, s.call(s.all(), c.method, c.target, c.body, c.header...).body)
	}
	calls, err := s.db.ListCalls(context.Background(), 0, 10_000)
	must(t, err)
	fmt.Fprintln(&out, calls, s.log.String())
	if len(calls) < 50 || s.log.Len() == 0 {
		t.Errorf("%d calls and a log of %d bytes: that is not all", len(calls), s.log.Len())
	}
	for name, secret := range map[string]string{
		"the caller's": s.all(),
		"the file's":   fileToken,
		"a wrong one":  mark,
		"the one made": text,
	} {
		if strings.Contains(out.String(), secret[6:]) {
			t.Errorf("the token is told: %s", name)
		}
	}
}

// brokenCalls is a record that cannot be written.
type brokenCalls struct{ *database.Store }

var errBroken = errors.New("the disk is full")

func (brokenCalls) BeginCall(context.Context, record.Call) (int64, error) { return 0, errBroken }
func (brokenCalls) AppendCalls(context.Context, []record.Call) error      { return errBroken }
func (brokenCalls) EndCall(context.Context, int64, record.Call) error     { return errBroken }
