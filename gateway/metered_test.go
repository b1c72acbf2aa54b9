package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/llm"
)

// A stream whose caller has no more is cut off towards both sides, whoever carries it; what had passed is paid.
func TestAStreamEndsWithItsBudget(t *testing.T) {
	for name, pooled := range map[string]bool{"the gateway's own client": true, "net/http": false} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{})
			var sent, encodings []string
			api := func(w http.ResponseWriter, r *http.Request) {
				defer close(left)
				encodings = r.Header["Accept-Encoding"]
				w.Header().Set("Content-Type", "text/event-stream")
				for r.Context().Err() == nil { // for ever, but for the gateway
					const word = "data: {\"choices\":[{\"delta\":{\"content\":\"abc\"}}]}\n\n"
					if _, err := io.WriteString(w, word); err != nil {
						return
					}
					sent = append(sent, word)
					_ = http.NewResponseController(w).Flush()
				}
			}
			base, err := url.Parse(newAPI(t, http.HandlerFunc(api)))
			if err != nil {
				t.Fatal(err)
			}
			lim, err := headgate.New(headgate.Options{Rules: []string{"GET /v1/items/{id} 100/h", "default 20/s"}})
			if err != nil {
				t.Fatal(err)
			}
			meter := meterOf(t)
			meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: lim.Endpoints(),
				Metered: []httplimit.Metered{{
					Endpoint: "GET /v1/items/{id}", Cut: true,
					Ask: func(r *http.Request, body []byte, whole bool) (httplimit.Exchange, int64) {
						return meter.Ask(r, body, whole)
					},
				}}})
			if err != nil {
				t.Fatal(err)
			}
			o := gateway.Options{Limiter: lim, Upstream: base, Limit: httplimit.Options{Meters: meters}}
			if !pooled {
				o.Transport = gateway.NewTransport(0, 0)
			}
			h, err := gateway.New(o)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(h)
			defer server.Close()
			got, err := http.Get(server.URL + "/v1/items/1")
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			text, err := io.ReadAll(got.Body)
			words := strings.Count(string(text), "abc")
			<-left
			if err == nil || words > 100 || len(sent) < words {
				t.Errorf("%d words of %d came, and %v; want at most 100 and an answer that breaks off", words,
					len(sent), err)
			}
			if fmt.Sprint(encodings) != "[identity]" {
				t.Errorf("the API was asked for %q, want identity alone", encodings)
			}
		})
	}
}

func meterOf(t *testing.T) *llm.Meter {
	t.Helper()
	m, err := llm.NewMeter(llm.MeterOptions{EstimatorOptions: llm.EstimatorOptions{MaxOutput: 10}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
