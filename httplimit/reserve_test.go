package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
)

// metered serves one handler behind a limiter of 1000 tokens an hour and tells
// how many are left.
func metered(t *testing.T, o httplimit.Options, handler http.HandlerFunc,
	change ...func(*headgate.Options)) (*httptest.Server, func() int64) {
	t.Helper()
	lim, _ := newLimiter(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1000, Per: time.Hour,
		Subject: policy.SubjectEndpoint}},
		func() time.Time { return epoch }, change...)
	limited := httplimit.Handler(lim, handler, o)
	var serving sync.RWMutex // held for reading by every request, until it is settled
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.RLock()
		defer serving.RUnlock()
		limited.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server, func() int64 {
		serving.Lock()
		defer serving.Unlock()
		in, err := inspect.Find(t.Context(), lim, inspect.Query{Endpoint: "GET /v1/items/{id}"})
		if err != nil {
			t.Fatal(err)
		}
		if s := lim.Reservations(); s.Outstanding != 0 {
			t.Errorf("%d reservations are outstanding, want none when the request is served", s.Outstanding)
		}
		return in.Buckets[0].Remaining
	}
}

// get makes a request and returns the response with its body read, so that
// trailers are there.
func get(t *testing.T, server *httptest.Server) (*http.Response, string) {
	t.Helper()
	response, err := http.Get(server.URL + "/v1/items/1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestRequestsPayWhatTheyCost(t *testing.T) {
	estimate := func(*http.Request) int64 { return 100 }
	field := &httplimit.Reserve{Field: "x-headgate-cost"}
	both := &httplimit.Reserve{Field: httplimit.CostField, BytesPerToken: 10}
	bytes := &httplimit.Reserve{BytesPerToken: 10}
	write := func(n int) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("x", n)) }
	}
	set := func(value string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set(httplimit.CostField, value) }
	}
	flush := func(w http.ResponseWriter) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}
	oldFlush := func(w http.ResponseWriter) { w.(http.Flusher).Flush() }
	announce := func(names ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header()["Trailer"] = names }
	}
	for name, c := range map[string]struct {
		reserve *httplimit.Reserve
		do      []func(http.ResponseWriter)
		cost    int64
		trailer string // what the client may see
	}{
		"the field says less":           {field, []func(http.ResponseWriter){set("40"), write(5)}, 40, ""},
		"the field says more":           {field, []func(http.ResponseWriter){set(" 400 "), write(5)}, 400, ""},
		"the field says nothing at all": {field, []func(http.ResponseWriter){set("0"), write(5)}, 0, ""},
		"no field":                      {field, []func(http.ResponseWriter){write(5)}, 100, ""},
		"no answer":                     {field, nil, 100, ""},
		"the field and no body":         {field, []func(http.ResponseWriter){set("40")}, 40, ""},
		"a field that is no number":     {field, []func(http.ResponseWriter){set("many"), write(5)}, 100, ""},
		"a field below zero":            {field, []func(http.ResponseWriter){set("-1"), write(5)}, 100, ""},
		"a field that overflows": {field,
			[]func(http.ResponseWriter){set("99999999999999999999"), write(5)}, 100, ""},
		"a status of its own": {field, []func(http.ResponseWriter){set("40"),
			func(w http.ResponseWriter) { w.WriteHeader(201) }, write(5)}, 40, ""},
		"early hints first": {field, []func(http.ResponseWriter){set("40"),
			func(w http.ResponseWriter) { w.WriteHeader(103) }, write(5)}, 40, ""},
		"a stream": {field, []func(http.ResponseWriter){write(5), flush, write(5), oldFlush,
			set("250")}, 250, ""},
		"a stream that flushes first": {field, []func(http.ResponseWriter){set("1"), flush, write(5), set("250")}, 250,
			""},
		"an announced trailer": {field, []func(http.ResponseWriter){announce("X-Headgate-Cost"), write(5), set("250")},
			250, ""},
		"announced among others": {field, []func(http.ResponseWriter){announce("X-Sum, x-headgate-cost", "X-Other"),
			write(5), set("250"),
			func(w http.ResponseWriter) {
				w.Header().Set("X-Sum", "7")
				w.Header().Set("X-Other", "8")
			}}, 250, "X-Other:8 X-Sum:7"},
		"a trailer with a prefix": {field, []func(http.ResponseWriter){write(5),
			func(w http.ResponseWriter) { w.Header().Set(http.TrailerPrefix+httplimit.CostField, "250") }}, 250, ""},
		"bytes":                        {bytes, []func(http.ResponseWriter){write(95), write(6)}, 11, ""},
		"bytes, a whole number":        {bytes, []func(http.ResponseWriter){write(100)}, 10, ""},
		"bytes, more":                  {bytes, []func(http.ResponseWriter){write(5000)}, 500, ""},
		"bytes of nothing":             {bytes, nil, 1, ""},
		"the field goes before":        {both, []func(http.ResponseWriter){set("3"), write(500)}, 3, ""},
		"bytes where the field is not": {both, []func(http.ResponseWriter){write(500)}, 50, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server, left := metered(t, httplimit.Options{Cost: estimate, Reserve: c.reserve},
				func(w http.ResponseWriter, _ *http.Request) {
					for _, do := range c.do {
						do(w)
					}
				})
			response, _ := get(t, server)
			if response.StatusCode >= 300 {
				t.Fatalf("GET = %d", response.StatusCode)
			}
			if got := 1000 - left(); got != c.cost {
				t.Errorf("the request cost %d, want %d", got, c.cost)
			}
			if all := fmt.Sprint(response.Header, response.Trailer); strings.Contains(strings.ToLower(all), "cost") {
				t.Errorf("the client sees the cost: %s", all)
			}
			if got := strings.Trim(strings.NewReplacer("map[", "", "]", "", "[",
				"").Replace(fmt.Sprint(response.Trailer)), " "); got != c.trailer {
				t.Errorf("trailers %q, want %q", got, c.trailer)
			}
		})
	}
}

// A client that goes away while it is served pays its estimate at least.
func TestAbortedRequestsPay(t *testing.T) {
	for name, c := range map[string]struct {
		written int
		cost    int64
	}{"soon": {10, 100}, "late": {5000, 500}} {
		server, left := metered(t, httplimit.Options{
			Cost:    func(*http.Request) int64 { return 100 },
			Reserve: &httplimit.Reserve{BytesPerToken: 10},
		},
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("x", c.written))
				panic(http.ErrAbortHandler)
			})
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Errorf("%s: the panic did not go on", name)
				}
			}()
			r := httptest.NewRequest("GET", "/v1/items/1", nil)
			server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		}()
		if got := 1000 - left(); got != c.cost {
			t.Errorf("%s: the request cost %d, want %d", name, got, c.cost)
		}
	}
}

// A body that breaks off is no way to pay for the refusal in the place of the work.
func TestBrokenBodiesPay(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		field  string
		cost   int64
	}{"little": {"bad", "", 100}, "much": {strings.Repeat("x", 5000), "", 500}, "said": {"bad", "7", 7}} {
		server, left := metered(t, httplimit.Options{
			Cost:    func(*http.Request) int64 { return 100 },
			Reserve: &httplimit.Reserve{Field: httplimit.CostField, BytesPerToken: 10},
		},
			func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != io.ErrUnexpectedEOF {
					t.Errorf("the body ends with %v", err)
				}
				if c.field != "" {
					w.Header().Set(httplimit.CostField, c.field)
				}
				_, _ = io.WriteString(w, c.answer)
			})
		r := httptest.NewRequest("GET", "/v1/items/1",
			io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		if got := 1000 - left(); got != c.cost {
			t.Errorf("%s: the request cost %d, want %d", name, got, c.cost)
		}
	}
}

// What goes over a connection that was taken away cannot be counted.
func TestHijackedConnectionsPayTheEstimate(t *testing.T) {
	server, left := metered(t, httplimit.Options{
		Cost:    func(*http.Request) int64 { return 100 },
		Reserve: &httplimit.Reserve{BytesPerToken: 10},
	},
		func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			_ = conn.Close()
		})
	response, err := http.Get(server.URL + "/v1/items/1")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if got := 1000 - left(); got != 100 {
		t.Errorf("the request cost %d, want the estimate of 100", got)
	}
}

func TestRefusalsOfReservations(t *testing.T) {
	inside := make(chan struct{})
	leave := make(chan struct{})
	server, _ := metered(t, httplimit.Options{Reserve: &httplimit.Reserve{Field: httplimit.CostField},
		Cost: func(r *http.Request) int64 {
			if r.URL.RawQuery == "below" {
				return -5
			}
			return 2000 * int64(len(r.URL.RawQuery))
		}}, func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-leave
	}, func(o *headgate.Options) { o.MaxReservations = 1 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		get(t, server)
	}()
	<-inside
	for query, c := range map[string]struct {
		code  int
		retry string
		want  string
	}{
		"":       {http.StatusServiceUnavailable, "5", "whose cost is not known yet"},
		"?below": {http.StatusBadRequest, "", "below zero"},
	} {
		response, err := http.Get(server.URL + "/v1/items/1" + query)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != c.code || response.Header.Get("Retry-After") != c.retry ||
			!strings.Contains(string(body), c.want) {
			t.Errorf("GET %s = %d %s, Retry-After %q, want %d that says %q", query, response.StatusCode, body,
				response.Header.Get("Retry-After"), c.code, c.want)
		}
	}
	close(leave)
	<-done
	response, err := http.Get(server.URL + "/v1/items/1?x")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "" {
		t.Errorf("a cost above the burst = %d, Retry-After %q, want 429 and none", response.StatusCode,
			response.Header.Get("Retry-After"))
	}
}

func TestCostWithoutReserve(t *testing.T) {
	server, left := metered(t, httplimit.Options{Cost: func(*http.Request) int64 { return 30 }},
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httplimit.CostField, "7")
		})
	if response, _ := get(t, server); response.Header.Get(httplimit.CostField) != "7" || left() != 970 {
		t.Errorf("the field is %q and %d are left, want it untouched and 970",
			response.Header.Get(httplimit.CostField), left())
	}
}

// deaf is a store that never corrects.
type deaf struct{ buckettest.Twin }

var errDeaf = errors.New("deaf")

func (*deaf) Correct(context.Context, int64, []bucket.Change, []int64) error { return errDeaf }

func TestFailedSettlementsAreTold(t *testing.T) {
	var failed []error
	lim, _ := newLimiter(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1000, Per: time.Hour}}, nil,
		func(o *headgate.Options) { o.Buckets = new(deaf) })
	h := httplimit.Handler(lim, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httplimit.CostField, "7")
	}), httplimit.Options{Reserve: &httplimit.Reserve{
		Field:  httplimit.CostField,
		Failed: func(err error) { failed = append(failed, err) },
	}})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/items/1", nil))
	if w.Code != http.StatusOK || len(failed) != 1 || !errors.Is(failed[0], errDeaf) {
		t.Errorf("GET = %d, failed %v, want 200 and the store's error", w.Code, failed)
	}
}
