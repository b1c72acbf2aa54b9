package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestAnswersShareNoValues: the values of fields come from room that answers share, and a handler may change those of
// its own, and keep them, while others are made.
func TestAnswersShareNoValues(t *testing.T) {
	const callers, requests = 8, 200
	rule := policy.Rule{Endpoint: "GET /a", Limit: requests, Per: time.Hour, Name: "a"}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{rule})
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Ratelimit-Policy"][0] = "changed"
		h.Add("Ratelimit", "added")
		w.WriteHeader(http.StatusNoContent)
	})
	h := httplimit.Handler(b.Limiter, next, httplimit.Options{})
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			kept := make([]http.Header, requests)
			for i := range kept {
				r, w := httptest.NewRequest("GET", "/a", nil), httptest.NewRecorder()
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:80", caller)
				h.ServeHTTP(w, r)
				kept[i] = w.Header()
			}
			for i, header := range kept {
				got := fmt.Sprint(header["Ratelimit"], header["Ratelimit-Policy"])
				if want := fmt.Sprintf(`["a";r=%d`, requests-1-i); len(got) < len(want) || got[:len(want)] != want {
					t.Errorf("caller %d is told %s at request %d, want %s", caller, got, i, want)
				}
				if len(header["Ratelimit"]) != 2 || header["Ratelimit"][1] != "added" ||
					header.Get("Ratelimit-Policy") != "changed" {
					t.Errorf("caller %d has %v at request %d", caller, header, i)
				}
			}
		})
	}
	all.Wait()
}
