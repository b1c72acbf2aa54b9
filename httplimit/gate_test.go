package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
)

// A Gate refuses all until it is open, and then what its Limiter refuses; whoever is logged in has a budget of his own.
func TestGate(t *testing.T) {
	var gate httplimit.Gate
	user := ""
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gate.Admit(w, r, &identity.User{ID: user}) {
			served++
		}
	}))
	defer server.Close()
	get := func(want int, field, value string) {
		t.Helper()
		r, err := http.Get(server.URL + "/a")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want || !strings.HasPrefix(r.Header.Get(field), value) {
			t.Errorf("as %q: %d with %s %q, want %d and %q…; %s", user, r.StatusCode, field, r.Header.Get(field),
				want, value, text)
		}
	}
	get(503, "Retry-After", "5")
	now := time.Now() // which stands, as seconds are told
	lim, err := headgate.New(headgate.Options{
		Rules: []string{"default 1/h"}, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.Open(lim, httplimit.Options{}); err != nil {
		t.Fatal(err)
	}
	get(200, "RateLimit", `"default";r=0`)
	get(429, "Retry-After", "3600")
	for _, user = range []string{"7", "8"} {
		get(200, "RateLimit", `"default";r=0`)
		get(429, "Content-Type", "application/problem+json")
	}
	if served != 3 {
		t.Errorf("%d were served, want 3", served)
	}
}

func TestGateSeesNoResponses(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /login 1/h", "default 1/h"}})
	if err != nil {
		t.Fatal(err)
	}
	var gate httplimit.Gate
	if err := gate.Open(lim, httplimit.Options{Reserve: &httplimit.Reserve{Field: httplimit.CostField}}); err == nil ||
		!strings.Contains(err.Error(), "Reserve is set") {
		t.Errorf("with Reserve: %v", err)
	}
	if err := gate.Open(lim, httplimit.Options{Meters: new(httplimit.Meters)}); err == nil ||
		!strings.Contains(err.Error(), "Meters is set") {
		t.Errorf("with Meters: %v", err)
	}
	for _, failures := range []bool{false, true} {
		ids, err := httplimit.NewIdentifiers(httplimit.IdentifierOptions{
			Endpoints: lim.Endpoints(), Logins: []httplimit.Login{{Endpoint: "POST /login",
				Field: body.Field{Name: "user"}, CountFailures: failures}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := gate.Open(lim, httplimit.Options{Identifiers: ids}); (err != nil) != failures {
			t.Errorf("with logins that count failures %v: %v", failures, err)
		}
	}
}

// A program answers refused requests by itself, with the fields that belong to the refusal.
func TestRefuseAnswers(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{"default 1/h"}})
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.Handler(lim, http.NotFoundHandler(),
		httplimit.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, d *headgate.Decision) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, d.Reason.String())
		}})
	for _, want := range []int{404, 418} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/a", nil))
		if w.Code != want || want == 418 && (w.Body.String() != "over_limit" || w.Header().Get("Retry-After") == "") {
			t.Errorf("%d %q with %v, want %d", w.Code, w.Body, w.Header(), want)
		}
	}
}
