package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
)

// TestPlacesComeBackFromHandlersThatPanic: the place of a request is free again when its handler has
// panicked, and while it runs it is taken, in each way in which a request may pay afterwards.
func TestPlacesComeBackFromHandlersThatPanic(t *testing.T) {
	for name, o := range map[string]httplimit.Options{
		"": {}, "paid by what it cost": {Reserve: &httplimit.Reserve{Field: httplimit.CostField}},
	} {
		lim, err := headgate.New(headgate.Options{Rules: []string{"default 1 at once", "default 100/s"}})
		if err != nil {
			t.Fatal(err)
		}
		var again http.Handler
		again = httplimit.Handler(lim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner := httptest.NewRecorder()
			again.ServeHTTP(inner, httptest.NewRequest("GET", "/b", nil))
			if inner.Code != http.StatusTooManyRequests {
				t.Errorf("%s: beside a request under way: %d, want 429", name, inner.Code)
			}
			panic("a handler's own")
		}), o)
		for range 3 {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic, so the handler was not reached", name)
					}
				}()
				again.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
			}()
		}
		if s := lim.Reservations(); s.Outstanding != 0 {
			t.Errorf("%s: %d are outstanding afterwards", name, s.Outstanding)
		}
	}
}

// TestAPlaceComesBackFromWhoIsTold: nor does a place stay taken where it is whoever is told of decisions that panics.
func TestAPlaceComesBackFromWhoIsTold(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{"default 1 at once", "default 100/s"}})
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.Handler(lim, http.NotFoundHandler(), httplimit.Options{
		Decided: func(*http.Request, *headgate.Decision) { panic("a program's own") },
	})
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	}()
	if s := lim.Reservations(); s.Made != 1 || s.Outstanding != 0 {
		t.Errorf("%d were made and %d are outstanding, want 1 and none", s.Made, s.Outstanding)
	}
}
