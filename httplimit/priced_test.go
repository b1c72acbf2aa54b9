package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// byBody prices a request by the number that its body is, or its query.
func byBody(_ *http.Request, target string, text []byte) httplimit.Price {
	_, query, _ := strings.Cut(target, "?")
	parts := strings.Split(string(text)+query, ",")
	price := httplimit.Price{Parts: len(parts), Many: strings.HasPrefix(parts[0], "0")}
	for _, part := range parts {
		cost, err := strconv.ParseInt(part, 10, 64)
		if err != nil && part != "" {
			return httplimit.Price{Fault: body.Costly, Why: "no number"}
		}
		price.Cost += cost
	}
	return price
}

func limitedPrices(t testing.TB, status *int, change func(*headgate.Options, *httplimit.Options)) http.Handler {
	t.Helper()
	o := headgate.Options{
		Rules: []string{"POST /p 20/h", "GET /p 20/h", "default 1000/s"},
		Now:   func() time.Time { return epoch },
	}
	handler := httplimit.Options{}
	if change != nil {
		change(&o, &handler)
	}
	lim, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	answers := func(w http.ResponseWriter, _ *http.Request, p httplimit.Price) bool {
		if p.Why == "" {
			return false
		}
		http.Error(w, "priced: "+p.Why, http.StatusBadRequest)
		return true
	}
	if handler.Calls, err = httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(),
		Priced: []httplimit.Priced{{Endpoint: "POST /p", Price: byBody, Refuse: answers},
			{Endpoint: "GET /p", Price: byBody, Refuse: answers}}}); err != nil {
		t.Fatal(err)
	}
	return httplimit.Handler(lim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(*status)
	}), handler)
}

func ask(h http.Handler, method, target, text string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(text))
	if text != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestPricedRequestsCostWhatTheySay: by body and by query, alone and several in one, and nothing if they have no price.
func TestPricedRequestsCostWhatTheySay(t *testing.T) {
	status := 200
	h := limitedPrices(t, &status, nil)
	for _, step := range []struct {
		method, target, text string
		want                 int
		left                 string
	}{
		{"POST", "/p", "7", 200, "r=13;"},
		{"POST", "/p", "14", 429, "r=13;"},
		{"POST", "/p", "x", 400, ""},
		{"POST", "/p", "2,2,3", 200, "r=4;"}, // 7, rounded up to 9
		{"POST", "/p", "21", 429, "r=4"},     // never
		{"POST", "/p", "", 200, "r=3;"},      // what the endpoint costs
		{"GET", "/p?19", "", 200, "r=1;"},
		{"HEAD", "/p?2", "", 429, "r=1;"},
		{"GET", "/p?1", "", 200, "r=0;"},
	} {
		w := ask(h, step.method, step.target, step.text)
		if w.Code != step.want || !strings.Contains(w.Header().Get("RateLimit"), step.left) {
			t.Errorf("%s %s %q: %d, %s; want %d, %s", step.method, step.target, step.text, w.Code,
				w.Header().Get("RateLimit"), step.want, step.left)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/p", strings.NewReader("1"))
	r.Header.Set("Content-Type", "text/plain")
	if h.ServeHTTP(w, r); w.Code != 415 || !strings.Contains(w.Body.String(), "JSON in UTF-8 alone") {
		t.Errorf("another type: %d %s, want 415", w.Code, w.Body)
	}
	if w := ask(h, "POST", "/p", "x"); w.Body.String() != "priced: no number\n" {
		t.Errorf("a fault is answered %q", w.Body)
	}
}

// TestPricesWhereOnlySomeAnswersCount: an answer that does not count gives the whole price back, unless it speaks for
// several.
func TestPricesWhereOnlySomeAnswersCount(t *testing.T) {
	status := 200
	failures, err := policy.ParseStatuses("401")
	if err != nil {
		t.Fatal(err)
	}
	h := limitedPrices(t, &status, func(_ *headgate.Options, o *httplimit.Options) {
		o.CountWhen = map[string]*policy.Statuses{"POST /p": failures}
	})
	for _, step := range []struct {
		text   string
		status int
		left   string // as the next request finds it
	}{
		{"9", 200, "r=20"},
		{"9", 401, "r=11"},
		{"04", 200, "r=7"}, // many
		{"1,1", 200, "r=5"},
	} {
		status = step.status
		ask(h, "POST", "/p", step.text)
		if w := ask(h, "POST", "/p", "21"); !strings.Contains(w.Header().Get("RateLimit"), step.left) {
			t.Errorf("after %q with %d there are %s left, want %s", step.text, step.status, w.Header().Get("RateLimit"),
				step.left)
		}
	}
}

// TestPricesBesideOtherRules: what denies takes nothing anywhere; a rule in shadow, one on requests and one for
// everybody see the same price.
func TestPricesBesideOtherRules(t *testing.T) {
	status := 200
	h := limitedPrices(t, &status, func(o *headgate.Options, _ *httplimit.Options) {
		o.Rules = []string{"POST /p 20/h", "POST /p 3/h by requests:principal", "* 15/h by ip", "GET /p 1/h",
			"default 1000/s"}
	})
	for _, step := range []struct {
		text string
		want int
	}{
		{"16", 429}, // everybody's
		{"10", 200},
		{"6", 429},
		{"1,1,1", 429}, // three requests, of which there are two
		{"2,2", 200},
		{"2", 429},
	} {
		if w := ask(h, "POST", "/p", step.text); w.Code != step.want {
			t.Errorf("%s: %d %s, want %d", step.text, w.Code, w.Header().Get("RateLimit"), step.want)
		}
	}
}

func TestPricedIsChecked(t *testing.T) {
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /p 1/s", "default 1/s"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(), Priced: []httplimit.Priced{
		{Endpoint: "POST /p", MaxBytes: 1, ReadTimeout: time.Hour}, {Endpoint: "POST /nowhere", Price: byBody}}})
	for _, want := range []string{"priced[0] (POST /p): Price is nil", "MaxBytes is 1, want 64",
		"ReadTimeout is 1h0m0s",
		`priced[1] (POST /nowhere): Endpoint is "POST /nowhere"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewCalls says %v, want %q in it", err, want)
		}
	}
}

// TestPricesStandWhateverBytesCost: where answers cost their bytes, those of requests with a price cost that,
// unless the API says another.
func TestPricesStandWhateverBytesCost(t *testing.T) {
	status := 200
	h := limitedPrices(t, &status, func(_ *headgate.Options, o *httplimit.Options) {
		o.Reserve = &httplimit.Reserve{Field: httplimit.CostField, BytesPerToken: 1}
	})
	ask(h, "POST", "/p", "15")
	if w := ask(h, "POST", "/p", "4"); !strings.Contains(w.Header().Get("RateLimit"), "r=1;") {
		t.Errorf("after 15 and 4 there are %s, want 1", w.Header().Get("RateLimit"))
	}
}
