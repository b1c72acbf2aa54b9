package httplimit_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// answering answers as the query says: with a status, not at all, with another protocol, or in the API's place.
func answering(b *trial.Bench, o httplimit.Options) func(target string, body io.Reader) (status int) {
	h := httplimit.Handler(b.Limiter, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := r.URL.Query().Get("answer"); status {
		case "":
		case "cut":
			panic(http.ErrAbortHandler)
		case "gone":
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusBadRequest)
		case "late":
			httplimit.Unanswered(w)
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			code, _ := strconv.Atoi(status)
			w.WriteHeader(code)
		}
	}), o)
	return func(target string, body io.Reader) (status int) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", target, body)
		defer func() {
			if recover() != nil {
				status = -1
			}
		}()
		h.ServeHTTP(w, r)
		return w.Code
	}
}

type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, errors.New("no chunk") }

// TestRulesCountWhatTheySay: each rule counts the answers that it names, whatever the others count; one that names none
// counts every request.
func TestRulesCountWhatTheySay(t *testing.T) {
	b := trial.New(t, []string{"GET /items/{id}", "GET /other"}, []policy.Rule{
		{Endpoint: "GET /items/{id}", Limit: 3, Per: time.Hour, CountWhen: "404,5xx"},
		{Endpoint: "GET /items/{id}", Limit: 6, Per: time.Hour, Subject: policy.SubjectIP, CountWhen: "4xx"},
		{Endpoint: policy.All, Limit: 30, Per: time.Hour, Subject: policy.SubjectEndpoint},
		{Endpoint: policy.Default, Limit: 2, Per: time.Hour},
	})
	ask := answering(b, httplimit.Options{})
	want := func(target string, status int) {
		t.Helper()
		if got := ask(target, nil); got != status {
			t.Errorf("%s is answered %d, want %d", target, got, status)
		}
	}
	for range 5 {
		want("/items/1?answer=200", 200) // counted by the rule for * alone
	}
	for range 4 {
		want("/items/1?answer=403", 403) // and by the one of the address
	}
	want("/items/1?answer=404", 404) // and by that of the caller
	want("/items/1?answer=503", 503) // not by the one of the address
	want("/items/1?answer=404", 404)
	want("/items/1?answer=200", 429) // the caller has had its three, the address its six
	want("/other?answer=404", 404)
	want("/other", 200)
	want("/other", 429)
	if got := b.Reservations(); got.Outstanding != 0 || got.Made != 12 {
		t.Errorf("%+v, want none unsettled of the 12 that passed at the first endpoint", got)
	}
	b.Now = b.Now.Add(time.Hour)
	for range 30 {
		want("/items/1", 200)
	}
	want("/items/1", 429) // * counts every request
}

// TestNothingIsForgivenThatMayHaveActed: an answer that is cut off, comes from somebody else than
// the API, or follows on a body that broke off counts, whatever it says.
func TestNothingIsForgivenThatMayHaveActed(t *testing.T) {
	for target, c := range map[string]struct {
		body   io.Reader
		status int
	}{
		"/a?answer=cut":  {nil, -1},
		"/a?answer=late": {nil, 504},
		"/a?answer=gone": {brokenOff{}, 400},
	} {
		for name, o := range map[string]httplimit.Options{
			"rule":     {},
			"endpoint": {CountWhen: map[string]*policy.Statuses{"GET /a": statuses(t, "401")}},
		} {
			rule := policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Hour}
			if name == "rule" {
				rule.CountWhen = "401"
			}
			ask := answering(trial.New(t, []string{"GET /a"}, []policy.Rule{rule}), o)
			if got := ask(target, c.body); got != c.status {
				t.Errorf("%s is answered %d, want %d", target, got, c.status)
			}
			if got := ask("/a", nil); got != 429 {
				t.Errorf("after %s of a %s that counts 401, the next request is answered %d, want 429",
					target, name, got)
			}
		}
	}
}

// The rules of when a request came say what it counts, and the limit of when it is answered how
// much is given back: a reload in between is no way to have more.
func TestRulesChangeUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		before, after policy.Rule
		left          int // requests, of an hour's three, once it is answered 200
	}{
		"counts all then": {policy.Rule{CountWhen: "404"}, policy.Rule{}, 3},
		"counted all":     {policy.Rule{}, policy.Rule{CountWhen: "404"}, 2},
		"counts it then":  {policy.Rule{CountWhen: "404"}, policy.Rule{CountWhen: "2xx"}, 3},
		"a lower limit":   {policy.Rule{CountWhen: "404"}, policy.Rule{CountWhen: "404", Limit: 1}, 1},
		"another algorithm": {policy.Rule{CountWhen: "404"},
			policy.Rule{CountWhen: "404", Algorithm: policy.FixedWindow}, 3},
	} {
		rules := &trial.Switching{}
		b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies = rules })
		become := func(r policy.Rule) {
			r.Endpoint, r.Per = "GET /a", time.Hour
			if r.Limit == 0 {
				r.Limit = 3
			}
			rules.Become(t, b, r)
		}
		become(c.before)
		h := httplimit.Handler(b.Limiter,
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { become(c.after) }), httplimit.Options{})
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
		left := 0
		for range 10 {
			if b.Check(context.Background(), headgate.Request{
				Method: "GET",
				Target: "/a",
				Peer:   httplimit.Peer(httptest.NewRequest("GET", "/a", nil)),
			}).Allowed {
				left++
			}
		}
		if left > c.left || c.after.Limit == 0 && c.after.Algorithm == 0 && left < c.left {
			t.Errorf("%s: %d requests are left, want %d", name, left, c.left)
		}
	}
}

// When no more can be remembered, requests count whatever they are answered, and are served.
func TestNoRoomToForgive(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 3, Per: time.Hour,
		CountWhen: "404"}},
		func(o *headgate.Options) { o.MaxReservations = 1 })
	held, d, err := b.WaitAnswer(context.Background(),
		headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}, time.Minute)
	if err != nil || !d.Allowed || held.Expires.IsZero() {
		t.Fatalf("WaitAnswer = %+v, %v, %v", held, d.Reason, err)
	}
	ask := answering(b, httplimit.Options{Peer: func(*http.Request) netip.Addr { return trial.Client }})
	for i, want := range []int{200, 200, 429} {
		if got := ask("/a", nil); got != want {
			t.Errorf("request %d is answered %d, want %d", i, got, want)
		}
	}
	if _, err := b.SettleAnswer(context.Background(), held.ID, headgate.Answer{Actual: 1, Status: 200}); err != nil {
		t.Fatal(err)
	}
	if got := ask("/a", nil); got != 200 {
		t.Errorf("once the first is forgiven, the next is answered %d", got)
	}
}

// A rule that makes requests wait counts some answers too; one whose client leaves before its turn is given back.
func TestCountedQueue(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{
		Endpoint:  "GET /a",
		Limit:     1,
		Per:       time.Hour,
		Burst:     2,
		Algorithm: policy.LeakyBucket,
		CountWhen: "404",
	}},
		func(o *headgate.Options) { o.Now = nil })
	ask := answering(b, httplimit.Options{MaxWait: -1})
	for range 5 {
		if got := ask("/a", nil); got != 200 {
			t.Errorf("a request that does not count is answered %d", got)
		}
	}
	ctx, leave := context.WithCancel(context.Background())
	leave()
	request := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}
	if _, d, _ := b.WaitAnswer(context.Background(), request, time.Minute); !d.Allowed {
		t.Fatal(d.Reason)
	}
	if made, d, err := b.WaitAnswer(ctx, request, time.Minute); err == nil || d.Allowed || !made.Expires.IsZero() {
		t.Errorf("who has left gets %+v, %v, %v", made, d.Reason, err)
	}
	if got := b.Reservations(); got.Outstanding != 1 {
		t.Errorf("%+v, want one unsettled", got)
	}
}

// TestCountedNeverGrants mixes answers that count and others, many under way at once, and holds
// what counted in the end against burst and rate in every interval (Lindley's recursion).
func TestCountedNeverGrants(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 16))
		rule := policy.Rule{
			Endpoint:  "GET /a",
			Limit:     1 + rng.Int64N(9),
			Per:       time.Second,
			Burst:     1 + rng.Int64N(20),
			CountWhen: "4xx",
		}
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{rule})
		type event struct {
			at     time.Time
			counts bool
		}
		type held struct {
			made headgate.Reservation
			of   int
		}
		var events []event
		var open []held
		for range 2000 {
			b.Now = b.Now.Add(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
			if len(open) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(open))
				status := []int{0, 200, 404, 500}[rng.IntN(4)]
				s, err := b.SettleAnswer(context.Background(), open[i].made.ID,
					headgate.Answer{Actual: open[i].made.Cost, Status: status})
				if err != nil {
					t.Fatal(err)
				}
				if s.Status.String() == "settled" {
					events[open[i].of].counts = status == 0 || status == 404
				}
				open = append(open[:i], open[i+1:]...)
				continue
			}
			made, d, err := b.WaitAnswer(context.Background(),
				headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				open = append(open, held{made, len(events)})
				events = append(events, event{b.Now, true})
			}
		}
		queue, last := int64(0), trial.Epoch
		for _, e := range events {
			if !e.counts {
				continue
			}
			queue = max(0, queue-int64(e.at.Sub(last))*rule.Limit) + int64(time.Second)
			if last = e.at; queue > rule.Burst*int64(time.Second) {
				t.Fatalf("seed %d: at %v more counted than burst and rate", seed, e.at.Sub(trial.Epoch))
			}
		}
	}
}

// JSON and lines write what the parser of rules reads.
func TestLinesNameAnswers(t *testing.T) {
	r, err := policy.ParseRule("POST /v1/login 5/min counting 403,401 by ip")
	if err != nil || r.CountWhen != "401,403" || r.Subject != policy.SubjectIP {
		t.Errorf("%+v, %v", r, err)
	}
	for _, wrong := range []string{"POST /v1/login 5/min counting", "POST /v1/login 5/min counting 700",
		"POST /v1/login 5/min counting 401 counting 403"} {
		if _, err := policy.ParseRule(wrong); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// TestABatchCountsWhateverIsAnswered: one answer speaks for many requests, of which any may have been what is counted.
func TestABatchCountsWhateverIsAnswered(t *testing.T) {
	for name, by := range map[string]struct {
		rule    policy.Rule
		options httplimit.Options
	}{
		"rule": {rule: policy.Rule{CountWhen: "401"}},
		"endpoint": {options: httplimit.Options{
			CountWhen: map[string]*policy.Statuses{"POST /rpc": statuses(t, "401")}}},
	} {
		by.rule.Endpoint, by.rule.Limit, by.rule.Per = "POST /rpc", 5, time.Hour
		b := trial.New(t, []string{"POST /rpc"}, []policy.Rule{by.rule})
		calls, err := httplimit.NewCalls(httplimit.CallOptions{Endpoints: b.Limiter.Endpoints(),
			Batches: []httplimit.Batch{{Endpoint: "POST /rpc"}}})
		if err != nil {
			t.Fatal(err)
		}
		by.options.Calls = calls
		h := httplimit.Handler(b.Limiter, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `[{"error":"wrong password"},{"error":"wrong password"}]`)
		}), by.options)
		post := func(text string) int {
			r := httptest.NewRequest("POST", "/rpc", strings.NewReader(text))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		for range 9 { // one request is what its answer says: not counted
			if got := post(`[1]`); got != 200 {
				t.Errorf("%s: %d for a request that is not counted, want 200", name, got)
			}
		}
		for i, want := range []int{200, 200, 429} { // two of five each
			if got := post(`[1,2]`); got != want {
				t.Errorf("%s: batch %d is answered %d, want %d", name, i+1, got, want)
			}
		}
	}
}
