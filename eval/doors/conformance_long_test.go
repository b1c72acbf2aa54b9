//go:build long && unix

package doors

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/routertest"
	"github.com/headgate-io/headgate/serve/decisions"
)

// Applications in other languages answer the calls of the corpus as the library does. The address that a call comes
// from stands in X-Forwarded-For, as all come from here. What a server refuses itself nobody is asked about. The
// table of docs/doors.md is what was counted here.
func TestConformanceOfApplications(t *testing.T) {
	table := "| application | asked about | status | limits, and what is left | Retry-After | Allow |\n" +
		"|---|---|---|---|---|---|\n"
	for _, a := range applications {
		clock, here := routertest.Start(), netip.MustParsePrefix("127.0.0.0/8")
		library, limiter := bench(t, clock), bench(t, clock, here)
		limit := httplimit.Options{Methods: library.Endpoints().Allowed, MaxWait: -1}
		plain := httplimit.Handler(library, http.NotFoundHandler(), limit)
		service, err := decisions.New(decisions.Options{Limiter: limiter, Limit: limit, Trusted: netip.Addr.IsLoopback})
		if err != nil {
			t.Fatal(err)
		}
		var questions atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			questions.Add(1)
			service.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		at := a.start(t, server.URL, "deny", 30*time.Second)
		row, asked := routertest.Row{Door: a.name}, 0
		for i, c := range routertest.Corpus() {
			var fields []string
			for name, lines := range c.Header() {
				if name != "X-Forwarded-For" {
					fields = append(fields, name+": "+lines[0])
				}
			}
			forwarded := "X-Forwarded-For: " + strings.TrimPrefix(c.Forwarded+", "+c.Client, ", ")
			before := questions.Load()
			response, body := send(t, at, c.Method, c.Target, "", append(fields, forwarded)...)
			clock.Add(int64(routertest.Step))
			if questions.Load() == before {
				if response.StatusCode < 400 {
					t.Errorf("call %d, %s %.80s: %s says %s without a question", i, c.Method, c.Target, a.name,
						response.Status)
				}
				continue
			}
			asked++
			got := verdictOf(response.StatusCode, response.Header)
			w := serve(plain, request(t, c))
			want := verdictOf(w.Code, w.Header())
			if row.Count(got, want); got != want {
				t.Errorf("call %d, %s %.80s of %s (%q, %q): %s says %+v, %.200q, want %+v", i, c.Method, c.Target,
					c.Client, c.Forwarded, c.Fields, a.name, got, body, want)
			}
		}
		table += strings.Replace(row.String(), a.name+" |", fmt.Sprintf("%s | %d |", a.name, asked), 1)
	}
	compareTable(t, "<!-- begin: go test ./doors -tags long -run TestConformanceOfApplications -write -->\n"+table+
		"<!-- end -->\n")
}

// verdictOf is that of an answer. What an application says itself to a request that was let through is none.
func verdictOf(status int, h http.Header) routertest.Verdict {
	v := routertest.VerdictOf(status, h)
	if !strings.HasPrefix(h.Get("Content-Type"), "application/problem+json") &&
		slices.Contains([]int{200, 307, 404, 405}, status) {
		v.Status, v.Methods = 200, ""
	}
	return v
}
