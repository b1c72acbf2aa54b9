package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func statuses(t *testing.T, texts ...string) *policy.Statuses {
	t.Helper()
	s, err := policy.ParseStatuses(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCountWhen: only the answers that are named use up the endpoint's budget, requests under way count, and a rule
// for * counts all.
func TestCountWhen(t *testing.T) {
	b := trial.New(t, []string{"GET /items/{id}", "GET /other"}, []policy.Rule{
		{Endpoint: "GET /items/{id}", Limit: 3, Per: time.Hour}, {Endpoint: policy.All, Limit: 12, Per: time.Hour},
		{Endpoint: policy.Default, Limit: 2, Per: time.Hour},
	})
	var hold sync.WaitGroup
	h := httplimit.Handler(b.Limiter, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := r.URL.Query().Get("answer"); status {
		case "":
		case "cut":
			panic(http.ErrAbortHandler)
		case "late":
			hold.Wait()
		default:
			code, _ := strconv.Atoi(status)
			w.WriteHeader(code)
		}
	}), httplimit.Options{CountWhen: map[string]*policy.Statuses{"GET /items/{id}": statuses(t, "404", "5xx")}})
	ask := func(target string) (status int) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", target, nil)
		defer func() {
			if recover() != nil {
				status = -1
			}
		}()
		h.ServeHTTP(w, r)
		return w.Code
	}
	want := func(target string, status int) {
		t.Helper()
		if got := ask(target); got != status {
			t.Errorf("%s is answered %d, want %d", target, got, status)
		}
	}
	for range 5 { // more than the budget: none counts
		want("/items/1?answer=200", 200)
		want("/items/1?answer=403", 403)
	}
	if got := b.Reservations(); got.Outstanding != 0 {
		t.Errorf("%d requests are not settled", got.Outstanding)
	}
	b.Now = b.Now.Add(time.Hour) // * has counted all ten of them
	want("/items/1?answer=404", 404)
	want("/items/1?answer=503", 503)
	want("/items/1?answer=cut", -1)
	want("/items/1?answer=200", 429)
	want("/other", 200)
	want("/other", 200)
	want("/other", 429)

	b.Now = b.Now.Add(time.Hour)
	hold.Add(1)
	var late sync.WaitGroup
	for range 3 {
		late.Go(func() { want("/items/1?answer=late", 200) })
	}
	for b.Reservations().Outstanding < 3 {
		time.Sleep(time.Millisecond)
	}
	want("/items/1", 429) // they may still turn out to count
	hold.Done()
	late.Wait()
	want("/items/1", 200)
	for range 8 {
		want("/items/1", 200)
	}
	want("/items/1", 429) // * counts every request
}

func TestParseStatuses(t *testing.T) {
	s := statuses(t, "401", "5xx")
	for status, has := range map[int]bool{
		401: true,
		400: false,
		402: false,
		499: false,
		500: true,
		599: true,
		600: false,
		-1:  false,
	} {
		if s.Has(status) != has {
			t.Errorf("401 and 5xx have %d: %v", status, s.Has(status))
		}
	}
	for _, wrong := range []string{"", "199", "600", "1xx", "6xx", "xx", "4XX", "+401", "0401", "4.5xx", "all"} {
		if _, err := policy.ParseStatuses("200", wrong); err == nil ||
			!strings.Contains(err.Error(), strconv.Quote(wrong)) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := policy.ParseStatuses(); err == nil {
		t.Error("no status is taken for some")
	}
}

func TestGateRefusesCountWhen(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: policy.Default, Limit: 1}})
	var g httplimit.Gate
	if err := g.Open(b.Limiter,
		httplimit.Options{CountWhen: map[string]*policy.Statuses{"GET /a": statuses(t, "404")}}); err == nil {
		t.Error("a gate that sees no answers counts by them")
	}
}
