package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const fileToken = "a-token-that-people-chose"

// gateway runs one on a database of its own, and returns its admin listener.
func gateway(t *testing.T) (server string, db *database.Store) {
	t.Helper()
	dir := t.TempDir()
	c := config.Default()
	c.Listen, c.Admin, c.Upstream, c.Unknown = "127.0.0.1:0", "127.0.0.1:0", "http://127.0.0.1:1", "limit"
	c.DB, c.AdminTokenFile = sqlitetest.New(t, filepath.Join(dir, "headgate.db")), filepath.Join(dir, "token")
	must(t, os.WriteFile(c.AdminTokenFile, []byte(fileToken+"\n"), 0o600))
	must(t, c.Complete())
	d, err := daemon.Start(context.Background(), c, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	db, err = database.Open(context.Background(), c.DB)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return "http://" + d.Admin().String(), db
}

// editor is what the commands ask of a database or of a gateway.
type editor interface {
	rules.Editor
	Get(ctx context.Context, k record.RuleKey) (policy.Rule, error)
	List(ctx context.Context) ([]policy.Rule, error)
	Export(ctx context.Context) (policy.Document, error)
	Set(ctx context.Context, a record.Author, r policy.Rule) error
	Delete(ctx context.Context, a record.Author, k record.RuleKey) error
	SetTier(ctx context.Context, a record.Author, project, tier string) error
	Import(ctx context.Context, a record.Author, doc policy.Document, replace bool) error
	ListAudit(ctx context.Context, most int) ([]record.Audit, error)
}

var (
	_ editor = (*database.Store)(nil)
	_ editor = (*client.Client)(nil)
)

// A gateway does and says what its database would: the same script has the same
// outcome.
func TestGatewayIsLikeItsDatabase(t *testing.T) {
	server, _ := gateway(t)
	through, err := client.New(server, fileToken)
	must(t, err)
	direct, err := database.Open(t.Context(), sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
	must(t, err)
	defer direct.Close()

	ann := record.Author{Actor: "local:ann", Claimed: "ann", Why: "spring"}
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	many := policy.Document{Projects: map[string]string{"acme": "gold", "b/c": "free"}}
	for i := range 2500 { // more than two pages
		many.Rules = append(many.Rules, policy.Rule{Endpoint: "default", Project: fmt.Sprintf("p%04d", i),
			Limit: int64(i + 1)})
	}
	whole := policy.Rule{Endpoint: "GET /v1/a b/{id}", Tier: "gold", Limit: 7, Per: time.Minute, Burst: 9,
		Subject: policy.SubjectIP, Mode: policy.Shadow,
		OnStoreLoss: policy.LossOpen, Name: "a name"}
	temporary := policy.Rule{Endpoint: "POST /v1/login", Limit: 5, Expires: until}
	steps := []struct {
		name string
		do   func(context.Context, editor) (any, error)
	}{
		{"import", func(ctx context.Context, e editor) (any, error) { return nil, e.Import(ctx, ann, many, false) }},
		{"set", func(ctx context.Context, e editor) (any, error) { return nil, e.Set(ctx, ann, whole) }},
		{"get", func(ctx context.Context, e editor) (any, error) { return e.Get(ctx, record.KeyOf(whole)) }},
		{"temporary", func(ctx context.Context, e editor) (any, error) { return nil, e.Set(ctx, ann, temporary) }},
		{"get it", func(ctx context.Context, e editor) (any, error) { return e.Get(ctx, record.KeyOf(temporary)) }},
		{"tier", func(ctx context.Context, e editor) (any, error) { return nil, e.SetTier(ctx, ann, "x", "free") }},
		{"no tier", func(ctx context.Context, e editor) (any, error) { return nil, e.SetTier(ctx, ann, "b/c", "") }},
		{"delete", func(ctx context.Context, e editor) (any, error) {
			return nil, e.Delete(ctx, ann, record.KeyOf(temporary))
		}},
		{"delete nothing", func(ctx context.Context, e editor) (any, error) {
			return nil, e.Delete(ctx, ann, record.KeyOf(temporary))
		}},
		{"get nothing", func(ctx context.Context, e editor) (any, error) {
			return e.Get(ctx, record.KeyOf(temporary))
		}},
		{"edit", func(ctx context.Context, e editor) (any, error) {
			return e.Apply(ctx, ann, record.Edit{
				Base:   7,
				Set:    []policy.Rule{{Endpoint: "default", Limit: 3}},
				Delete: []record.RuleKey{{Endpoint: "default", Project: "p0000"}},
			})
		}},
		{"edit of an old", func(ctx context.Context, e editor) (any, error) {
			return e.Apply(ctx, ann, record.Edit{Base: 7, Tiers: map[string]string{"a": "b"}})
		}},
		{"roll back", func(ctx context.Context, e editor) (any, error) {
			return e.RollbackChecked(ctx, ann, 3, 8, nil)
		}},
		{"list", func(ctx context.Context, e editor) (any, error) { return e.List(ctx) }},
		{"export", func(ctx context.Context, e editor) (any, error) {
			doc, err := e.Export(ctx)
			return fmt.Sprint(doc.Number, doc.Projects, len(doc.Rules)), err
		}},
		{"current", func(ctx context.Context, e editor) (any, error) { return e.Current(ctx) }},
		{"history", func(ctx context.Context, e editor) (any, error) { return e.History(ctx, 0, 100) }},
		{"two before 5", func(ctx context.Context, e editor) (any, error) { return e.History(ctx, 5, 2) }},
		{"changes", func(ctx context.Context, e editor) (any, error) { return changes(e.Changes(ctx, 2)) }},
		{"diff", func(ctx context.Context, e editor) (any, error) { return changes(e.Diff(ctx, 9, 4)) }},
		{"at", func(ctx context.Context, e editor) (any, error) {
			doc, err := e.At(ctx, 5)
			return fmt.Sprint(doc.Number, doc.Projects, doc.Rules), err
		}},
		{"at none", func(ctx context.Context, e editor) (any, error) { _, err := e.At(ctx, 99); return nil, err }},
		{"pending", func(ctx context.Context, e editor) (any, error) { return e.Pending(ctx) }},
		{"an empty replaces", func(ctx context.Context, e editor) (any, error) {
			return nil, e.Import(ctx, ann, policy.Document{}, true)
		}},
		{"audit", func(ctx context.Context, e editor) (any, error) { return e.ListAudit(ctx, 10) }},
	}
	for _, step := range steps {
		want, errWant := step.do(t.Context(), direct)
		got, errGot := step.do(t.Context(), through)
		if a, b := shown(want), shown(got); a != b {
			t.Errorf("%s: the gateway says\n%.2000s\nits database\n%.2000s", step.name, b, a)
		}
		for _, sentinel := range []error{record.ErrNotFound} {
			if errors.Is(errGot, sentinel) != errors.Is(errWant, sentinel) {
				t.Errorf("%s: the gateway says %v, its database %v", step.name, errGot, errWant)
			}
		}
		var a, b *record.Conflict
		if errors.As(errWant, &a) != errors.As(errGot, &b) || a != nil &&
			(a.Base != b.Base || a.Current.ID != b.Current.ID || len(a.Since) != len(b.Since) || a.Error() == "") {
			t.Errorf("%s: the gateway says %v, its database %v", step.name, errGot, errWant)
		}
		if (errGot == nil) != (errWant == nil) {
			t.Errorf("%s: the gateway says %v, its database %v", step.name, errGot, errWant)
		}
	}
}

// shown is what a step reports, without what must differ: when it was, and that
// the gateway knows a token where the database is told a user.
func shown(v any) string {
	versions := func(list ...record.Version) (text string) {
		for _, v := range list {
			text += fmt.Sprintf("%d %s %s %s of %d: %d %d %d; ", v.ID, v.Claimed, v.Why, v.Action, v.Of, v.Added,
				v.Changed, v.Removed)
		}
		return text
	}
	rule := func(r policy.Rule) string {
		r.Expires = r.Expires.UTC()
		return fmt.Sprintf("%+v", r)
	}
	switch v := v.(type) {
	case record.Version:
		return versions(v)
	case []record.Version:
		return versions(v...)
	case policy.Rule:
		return rule(v)
	case []policy.Rule:
		text := ""
		for _, r := range v {
			text += rule(r) + "\n"
		}
		return text
	}
	return fmt.Sprintf("%+v", v)
}

// changes are lines about what changed.
func changes(list []record.Change, err error) (string, error) {
	text := fmt.Sprintln(len(list))
	for _, c := range list {
		text += rules.Describe(c) + "\n"
	}
	return text, err
}

func TestTokensThroughAGateway(t *testing.T) {
	server, db := gateway(t)
	c, err := client.New(server, fileToken)
	must(t, err)
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	made, text, err := c.CreateAdminToken(t.Context(),
		record.NewAdminToken{Name: "ci", Roles: []record.Role{record.RoleRead}, Expires: until})
	must(t, err)
	list, err := c.ListAdminTokens(t.Context())
	must(t, err)
	if len(list) != 1 || list[0].Name != "ci" || list[0].ID != made.ID || !list[0].Expires.Equal(until) ||
		!list[0].Revoked.IsZero() {
		t.Errorf("tokens %+v, want ci", list)
	}
	if _, _, err := c.CreateAdminToken(t.Context(),
		record.NewAdminToken{Name: "ci", Roles: record.Roles}); !errors.Is(err, record.ErrTokenName) {
		t.Errorf("another ci: %v, want %v", err, record.ErrTokenName)
	}
	reader, err := client.New(server, text)
	must(t, err)
	if _, err := reader.List(t.Context()); err != nil {
		t.Errorf("List by a reader: %v", err)
	}
	err = reader.Set(t.Context(), record.Author{Actor: "local:ann"}, policy.Rule{Endpoint: "default", Limit: 1})
	if err == nil ||
		err.Error() != server+" answers 403: This needs a token with the role write, which token ci lacks: grant "+
			"is for rules that expire; `headgate admin token create` makes one with the role" &&
			err.Error() != server+" answers 403: This needs a token with the role write or grant, which token ci "+
				"lacks; `headgate admin token create` makes one with the role" {
		t.Errorf("Set by a reader: %v, want what role it needs", err)
	}
	must(t, c.RevokeAdminToken(t.Context(), "ci"))
	if _, err := reader.List(t.Context()); err == nil || !strings.Contains(err.Error(),
		"answers 401: The admin token ci was revoked; name the file with the token by --token-file") {
		t.Errorf("List with a revoked token: %v", err)
	}
	if err := c.RevokeAdminToken(t.Context(), "c/i"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("revoke nobody's: %v, want %v", err, record.ErrNotFound)
	}
	calls, err := c.ListCalls(t.Context(), 0, 3)
	must(t, err)
	more, err := c.ListCalls(t.Context(), calls[len(calls)-1].ID, 100)
	must(t, err)
	found := false
	for _, call := range append(calls, more...) {
		found = found || call.Operation == "revokeToken" && call.Status == 404 &&
			call.Actor == "token token" && call.Took > 0
	}
	if len(calls) != 3 || len(more) < 5 || !found {
		t.Errorf("calls %+v and %+v, want the revocation of nobody among them", calls, more)
	}
	if v, err := db.Current(t.Context()); err != nil || v.ID > 1 {
		t.Errorf("the rules are at version %d, %v: nobody has changed them", v.ID, err)
	}
}

// scripted is a server that gives one answer after the other.
func scripted(t *testing.T, answers ...func(http.ResponseWriter, *http.Request)) (server string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers[min(int(asked.Add(1)), len(answers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func problem(kind string, status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":"urn:headgate:problem:%s","title":"t","status":%d,"detail":"It is so."}`, kind,
			status)
	}
}

func text(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// Only what changes nothing is asked again, and only if that may help.
func TestAskedAgain(t *testing.T) {
	list := func(c *client.Client) error { _, err := c.ListAdminTokens(t.Context()); return err }
	revoke := func(c *client.Client) error { return c.RevokeAdminToken(t.Context(), "ci") }
	good := text(`{"tokens":[]}`)
	down := problem("unavailable", 503)
	for name, c := range map[string]struct {
		do      func(*client.Client) error
		answers []func(http.ResponseWriter, *http.Request)
		asked   int
		want    string // "": no error
	}{
		"at once":        {list, []func(http.ResponseWriter, *http.Request){good}, 1, ""},
		"the third time": {list, []func(http.ResponseWriter, *http.Request){down, hangUp, good}, 3, ""},
		"never":          {list, []func(http.ResponseWriter, *http.Request){down}, 3, "answers 503: It is so"},
		"no role": {list, []func(http.ResponseWriter, *http.Request){problem("role-missing", 403), good}, 1,
			"answers 403: It is so; `headgate admin token create`"},
		"a change": {revoke, []func(http.ResponseWriter, *http.Request){down, good}, 1,
			"answers 503: It is so"},
		"a change, cut off": {revoke, []func(http.ResponseWriter, *http.Request){hangUp, good}, 1, "ask http"},
		"another server": {list, []func(http.ResponseWriter, *http.Request){text("<html>")}, 1,
			"the answer is not one of a gateway's admin listener"},
		"its error": {list, []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) {
			http.NotFound(w, r)
		}}, 1, "answers 404: this is no answer of a gateway's admin listener"},
		"an older gateway": {list, []func(http.ResponseWriter, *http.Request){problem("no-such-path", 404)}, 1,
			"the gateway is of another version"},
		"a wrong direction": {list, []func(http.ResponseWriter,
			*http.Request){func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, good}, 1, "answers 302"},
		"without the token": {list, []func(http.ResponseWriter, *http.Request){problem("unauthenticated", 401)}, 1,
			"--token-file"},
	} {
		server, asked := scripted(t, c.answers...)
		it, err := client.New(server, "secret-token-of-somebody")
		must(t, err)
		err = c.do(it)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret-token") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if int(asked.Load()) != c.asked {
			t.Errorf("%s: asked %d times, want %d", name, asked.Load(), c.asked)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	c, err := client.New(s.URL, "")
	must(t, err)
	if _, err := c.List(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "no gateway answers at "+s.URL+": start `headgate serve`") {
		t.Errorf("List = %v, want the remedy", err)
	}
	for _, bad := range []string{"", "127.0.0.1:8081", "ftp://a", "http://", "http://user:secret@a",
		"http://a?b=c", "://"} {
		if _, err := client.New(bad, ""); err == nil || !strings.Contains(err.Error(), "want a URL such as") {
			t.Errorf("New(%q) = %v, want an error", bad, err)
		}
	}
}
