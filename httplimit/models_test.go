package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/llm"
)

// asksModels is a Handler before language models, some of which have endpoints of their own. It takes an estimate of
// tokens, and settles by the answer's usage: 30.
type asksModels struct {
	http.Handler
	lim   *headgate.Limiter
	asked []headgate.Request // of the limiter, in their order
	got   string
	usage bool
}

func limitedModels(t testing.TB, cut bool, rules ...string) *asksModels {
	t.Helper()
	s := &asksModels{usage: true}
	lim, err := headgate.New(headgate.Options{
		Rules:   append(rules, "default 1000000/s"),
		Now:     func() time.Time { return epoch },
		Observe: func(r *headgate.Request, _ *headgate.Decision) { s.asked = append(s.asked, *r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.lim = lim
	calls, err := httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(),
		Models: []httplimit.Models{{Endpoint: "POST /v1/messages", MaxBytes: 4096}}})
	if err != nil {
		t.Fatal(err)
	}
	meter, err := llm.NewMeter(llm.MeterOptions{EstimatorOptions: llm.EstimatorOptions{Whole: true}})
	if err != nil {
		t.Fatal(err)
	}
	meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: lim.Endpoints(),
		Metered: []httplimit.Metered{{Endpoint: "POST /v1/messages", MaxBytes: 4096, Cut: cut,
			Ask: func(r *http.Request, body []byte, whole bool) (httplimit.Exchange, int64) {
				return meter.Ask(r, body, whole)
			}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Handler = httplimit.HandlerOfTargets(lim, func(w http.ResponseWriter, r *http.Request, as httplimit.Charged) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.got = r.Method + " " + as.Target + " " + string(text)
		w.Header().Set("Content-Type", "application/json")
		if s.usage {
			_, _ = io.WriteString(w, `{"usage":{"input_tokens":10,"output_tokens":20}}`)
		}
	}, httplimit.Options{Calls: calls, Meters: meters})
	return s
}

func (s *asksModels) post(text string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	s.asked, s.got = nil, ""
	r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestModelsAreLimited: one that has a template has a budget of its own, all others that of the endpoint; what is taken
// and what is settled is of the same.
func TestModelsAreLimited(t *testing.T) {
	for _, cut := range []bool{false, true} {
		s := limitedModels(t, cut, "POST /v1/messages 1000/h burst 1000", "MODEL /v1/messages/large 100/h burst 100",
			"MODEL /v1/messages/fast-{version} 200/h burst 200")
		ask := func(model string) string { return `{"model":"` + model + `","max_tokens":40,"messages":[]}` }
		for _, step := range []struct {
			text, for_ string
			status     int
			left       string
		}{
			{ask("large"), "MODEL /v1/messages/large", 200, `"MODEL /v1/messages/large";r=`},
			{ask(`l\u0061rge`), "MODEL /v1/messages/large", 200, `"MODEL /v1/messages/large";r=`},
			{ask("large"), "MODEL /v1/messages/large", 429, `"MODEL /v1/messages/large";r=40`}, // 2 × 30 are settled
			{ask("Large"), "POST /v1/messages", 200, `"POST /v1/messages";r=`},
			{ask("large "), "POST /v1/messages", 200, `"POST /v1/messages";r=`},
			{ask("nobody's"), "POST /v1/messages", 200, `"POST /v1/messages";r=`},
			{ask("fast-1"), "MODEL /v1/messages/fast-1", 200, `"MODEL /v1/messages/fast-{version}";r=`},
			{ask("fast-2"), "MODEL /v1/messages/fast-2", 200, `"MODEL /v1/messages/fast-{version}";r=`},
			{ask("fast-/../large"), "MODEL /v1/messages/fast-~..~large", 200, `"MODEL /v1/messages/fast-{version}";r=`},
			{`{"max_tokens":40}`, "POST /v1/messages", 200, `"POST /v1/messages";r=`},
		} {
			w := s.post(step.text)
			if got := s.asked[0].Method + " " + s.asked[0].Target; got != step.for_ || w.Code != step.status ||
				!strings.HasPrefix(w.Header().Get("RateLimit"), step.left) {
				t.Errorf("%s: %d for %s, %s, want %d for %s, %s", step.text, w.Code, got, w.Header().Get("RateLimit"),
					step.status, step.for_, step.left)
			}
			want := "POST /v1/messages " + step.text
			if w.Code != 200 {
				want = ""
			}
			if s.got != want {
				t.Errorf("%s: the API got %q", step.text, s.got)
			}
		}
		if r := s.lim.Reservations(); r.Outstanding != 0 {
			t.Errorf("%d reservations are outstanding, want none", r.Outstanding)
		}
	}
}

// TestModelsThatNobodyKnows: a body whose model cannot be told for sure reaches nobody and takes nothing, however it is
// written, sent and framed.
func TestModelsThatNobodyKnows(t *testing.T) {
	s := limitedModels(t, false, "POST /v1/messages 1000/h", "MODEL /v1/messages/large 100/h")
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	long := `{"x":"` + strings.Repeat("x", 4096) + `","model":"large"}`
	for _, c := range []struct {
		text   string
		change func(*http.Request)
		status int
	}{
		{`{"model":"small","model":"large"}`, nil, 400},
		{`{"model":1.5,"model":"large"}`, nil, 400},
		{`{"model":"small","Model":"large"}`, nil, 400},
		{`[{"model":"large"}]`, nil, 400},
		{`{"model":"large"`, nil, 400},
		{`{"model":"large"}`, header("Content-Encoding", "gzip"), 415},
		{`{"model":"large"}`, header("Content-Type", "text/plain"), 415},
		{long, nil, 413},
		{long, func(r *http.Request) { r.ContentLength = -1 }, 413},
	} {
		change := c.change
		if change == nil {
			change = func(*http.Request) {}
		}
		if w := s.post(c.text, change); w.Code != c.status || s.got != "" || len(s.asked) != 0 {
			t.Errorf("%.60s: %d %s, %d decisions, want %d", c.text, w.Code, w.Body, len(s.asked), c.status)
		}
	}
	w := s.post(`{"model":"large","max_tokens":3}`)
	if w.Code != 200 || !strings.Contains(w.Header().Get("RateLimit"), "r=") {
		t.Errorf("%d %s", w.Code, w.Header().Get("RateLimit"))
	}
}

// TestCutModelsTakeMoreOfTheSameBudget: what an answer takes more while it runs is taken of its model.
func TestCutModelsTakeMoreOfTheSameBudget(t *testing.T) {
	s := limitedModels(t, true, "POST /v1/messages 1/h burst 1", "MODEL /v1/messages/large 1000/h burst 1000",
		"MODEL /v1/messages/large 1/h burst 1 by requests:principal")
	w := s.post(`{"model":"large","max_tokens":1}`) // the answer says 20
	if w.Code != 200 || w.Body.Len() == 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, r := range s.asked {
		if r.Method != "MODEL" || !r.Message {
			t.Errorf("asked for %s %s", r.Method, r.Target)
		}
	}
	if len(s.asked) < 2 {
		t.Errorf("%d decisions, want more tokens to be taken", len(s.asked))
	}
}
