package llm_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/llm"
)

// A handler of chat completions behind a budget of tokens.
func Example() {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":12,"completion_tokens":30}}`)
	})
	// begin: meters
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /v1/chat/completions 1000/h", "default 20/s"}})
	if err != nil {
		log.Fatal(err)
	}
	meter, err := llm.NewMeter(llm.MeterOptions{})
	if err != nil {
		log.Fatal(err)
	}
	meters, err := httplimit.NewMeters(httplimit.MeterOptions{
		Endpoints: lim.Endpoints(),
		Metered: []httplimit.Metered{{
			Endpoint: "POST /v1/chat/completions",
			Cut:      true,
			Ask: func(r *http.Request, body []byte, whole bool) (httplimit.Exchange, int64) {
				return meter.Ask(r, body, whole)
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	limited := httplimit.Handler(lim, api, httplimit.Options{Meters: meters})
	// end: meters

	for range 2 {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions",
			strings.NewReader(`{"model":"m","max_tokens":950,"messages":[{"role":"user","content":"hello"}]}`)))
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // what follows depends on the clock
		fmt.Println(w.Code, left)
	}

	// Output:
	// 200 "POST /v1/chat/completions";r=24
	// 429 "POST /v1/chat/completions";r=958
}
