package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
)

// The API says what a request cost, in a field or in a trailer after a stream;
// the bucket is corrected, and the client never sees it.
func TestTheAPISettles(t *testing.T) {
	for name, api := range map[string]http.HandlerFunc{
		"a field": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(httplimit.CostField, "70") },
		"a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Headgate-Cost")
			_, _ = io.WriteString(w, "an answer")
			w.(http.Flusher).Flush()
			w.Header().Set(httplimit.CostField, "70")
		},
		"a trailer that was not announced": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "an answer")
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+httplimit.CostField, "70")
		},
		"bytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 700)) },
	} {
		t.Run(name, func(t *testing.T) {
			var lim *headgate.Limiter
			base := newGateway(t, newAPI(t, api), func(o *gateway.Options) {
				lim = o.Limiter
				o.Limit.Reserve = &httplimit.Reserve{Field: httplimit.CostField, BytesPerToken: 10}
			}).URL
			response, err := http.Get(base + "/v1/items/1")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			if all := fmt.Sprint(response.Header, response.Trailer); strings.Contains(strings.ToLower(all), "cost") {
				t.Errorf("the client sees the cost: %s", all)
			}
			settledSoon(t, lim)
			in, err := lim.Inspect(t.Context(), headgate.BucketQuery{Endpoint: "GET /v1/items/{id}", Address: netip.MustParseAddr("127.0.0.1")})
			if err != nil || len(in.Buckets) != 1 {
				t.Fatal(in, err)
			}
			// The bucket fills meanwhile; Settlement is what httplimit tests to the
			// token.
			if s := lim.Reservations(); s.Settled != 1 || s.Outstanding != 0 {
				t.Errorf("reservations %+v, want one, settled", s)
			}
			if got := in.Buckets[0].Remaining; got < 930 {
				t.Errorf("%d tokens are left, want 930 or more", got)
			}
		})
	}
}

// settledSoon waits until nothing is outstanding: a response may reach its
// client before the handler has settled.
func settledSoon(t *testing.T, lim *headgate.Limiter) {
	t.Helper()
	over := time.NewTimer(10 * time.Second)
	defer over.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for lim.Reservations().Outstanding > 0 {
		select {
		case <-over.C:
			t.Fatalf("reservations %+v after 10 s", lim.Reservations())
		case <-tick.C:
		}
	}
}
