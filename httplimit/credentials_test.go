package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// subjects verifies tokens that name their subject, and none that begins with bad.
type subjects struct{}

func (subjects) Verify(_ context.Context, token string) (identity.Claims, error) {
	if token == "bad" {
		return identity.Claims{}, identity.ErrTokenUnfit
	}
	return identity.Claims{Subject: token}, nil
}

func credentialDoor(t *testing.T, refuse bool) (*door, string) {
	t.Helper()
	who, text := trial.Holder(t, identity.Key{ID: "k1", Scopes: "GET"},
		func(o *identity.Options) { o.Tokens = subjects{} })
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 9, Per: time.Hour}}
	return newDoor(t, rules, httplimit.Options{},
		func(o *headgate.Options) { o.Identities, o.RefuseBadCredentials = who, refuse }), text
}

func TestAnswersToCredentials(t *testing.T) {
	d, key := credentialDoor(t, true)
	many := http.Header{}
	for i := range 9 {
		many.Add("X-Api-Key", strconv.Itoa(i))
	}
	for _, c := range []struct {
		name, method string
		header       http.Header
		status       int
		challenge    string
	}{
		{"a good key", "GET", http.Header{"X-Api-Key": {key}}, 200, ""},
		{"a key that is none", "GET", http.Header{"X-Api-Key": {"x"}}, 401, `Bearer error="invalid_token"`},
		{"a bad token beside a good key", "GET", http.Header{"X-Api-Key": {key}, "Authorization": {"Bearer bad"}}, 401,
			`Bearer error="invalid_token"`},
		{"a key out of its scopes", "DELETE", http.Header{"X-Api-Key": {key}}, 403,
			`Bearer error="insufficient_scope"`},
		{"nine", "GET", many, 400, ""},
	} {
		served := d.served
		r := httptest.NewRequest(c.method, "/v1/items/1", nil)
		r.Header = c.header
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Www-Authenticate") != c.challenge ||
			(d.served > served) != (c.status == 200) {
			t.Errorf("%s: %d, %q, %s; want %d, %q", c.name, w.Code, w.Header().Get("Www-Authenticate"), w.Body,
				c.status, c.challenge)
		}
	}
}

// A rule that counts two principals of a request is listed once, with what is
// left to the one that has less.
func TestFieldsOfTwoPrincipals(t *testing.T) {
	d, key := credentialDoor(t, false)
	ask := func(header http.Header) string {
		r := httptest.NewRequest("GET", "/v1/items/1", nil)
		r.Header = header
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w.Header().Get("Ratelimit")
	}
	for range 3 {
		ask(http.Header{"X-Api-Key": {key}})
	}
	both := http.Header{"X-Api-Key": {key}, "Authorization": {"Bearer alice"}}
	if got, want := ask(both), `"default";r=5;t=400`; got != want {
		t.Errorf("RateLimit is %s, want %s", got, want)
	}
	for range 5 {
		ask(http.Header{"Authorization": {"Bearer alice"}})
	}
	if got, want := ask(both), `"default";r=2;t=400`; got != want {
		t.Errorf("RateLimit is %s, want %s", got, want)
	}
}
