package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/pace"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/slot"
)

// What a client is told of its slot is what our own client reads.
func TestSlotFields(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{
		Name:     "a",
		Endpoint: "GET /a",
		Limit:    2,
		Per:      3 * time.Second,
		Burst:    1,
		Subject:  policy.SubjectEndpoint,
	}},
		func(o *headgate.Options) { o.Slots = slot.New(slot.Options{Reserve: true}) })
	server := httplimit.Handler(b.Limiter, http.NotFoundHandler(), httplimit.Options{})
	get := func(peer, pending string) http.Header {
		r := httptest.NewRequest("GET", "/a", nil)
		r.RemoteAddr = peer + ":1"
		if pending != "" {
			r.Header.Set(slot.FieldPending, pending)
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w.Header()
	}
	for _, c := range []struct {
		peer, pending, limit, retryAfter string
		slot                             bool
		wait                             time.Duration
	}{
		{"192.0.2.1", "2", `"a";r=0;t=2;headgate-slot=1500`, "", true, 1500 * time.Millisecond},
		{"192.0.2.2", "", `"a";r=0;t=3;headgate-slot=3000`, "3", true, 3 * time.Second},
		{"192.0.2.1", "1", `"a";r=0;t=2;headgate-slot=1500`, "2", true, 1500 * time.Millisecond},
	} {
		h := get(c.peer, c.pending)
		if got := h.Get("RateLimit"); got != c.limit {
			t.Errorf("%s: RateLimit: %s, want %s", c.peer, got, c.limit)
		}
		if got := h.Get("Retry-After"); got != c.retryAfter {
			t.Errorf("%s: Retry-After: %s, want %s", c.peer, got, c.retryAfter)
		}
		if got, want := h.Get("RateLimit-Policy"), `"a";q=2;w=3;headgate-burst=1;headgate-reserves`; got != want {
			t.Errorf("%s: RateLimit-Policy: %s, want %s", c.peer, got, want)
		}
		hint := pace.ReadHint(h, time.Now())
		if hint.Slot != c.slot || hint.Wait != c.wait || !hint.Reserves || hint.Burst != 1 ||
			hint.Gap != 1500*time.Millisecond {
			t.Errorf("%s: our client reads %+v", c.peer, hint)
		}
	}
}
