package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/inspect"
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
			upstream, err := url.Parse(newAPI(t, api))
			if err != nil {
				t.Fatal(err)
			}
			lim := newLimiter(t)
			h, err := gateway.New(gateway.Options{
				Limiter: lim, Upstream: upstream,
				Limit: httplimit.Options{Reserve: &httplimit.Reserve{Field: httplimit.CostField, BytesPerToken: 10}},
			})
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{}) // the client may have its answer before
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(served)
				h.ServeHTTP(w, r)
			}))
			defer server.Close()
			response, err := http.Get(server.URL + "/v1/items/1")
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
			<-served
			in, err := inspect.Find(t.Context(), lim,
				inspect.Query{Endpoint: "GET /v1/items/{id}", Address: netip.MustParseAddr("127.0.0.1")})
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
