package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// api notes when requests reach it, by path.
type api struct {
	*httptest.Server
	began time.Time

	mu   sync.Mutex
	came map[string][]time.Duration // guarded by mu
}

func newAPI() *api {
	a := &api{began: time.Now(), came: map[string][]time.Duration{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Since(a.began)
		a.mu.Lock()
		a.came[r.URL.Path] = append(a.came[r.URL.Path], at)
		a.mu.Unlock()
		_, _ = io.WriteString(w, "ok\n")
	}))
	return a
}

// take is when requests for a path came since it was last asked, in order.
func (a *api) take(path string) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	came := a.came[path]
	delete(a.came, path)
	slices.Sort(came)
	return came
}

// excess is the most that came in any interval beyond the burst and the rate of a shape.
func excess(came []time.Duration, sh rate.Shape) int64 {
	e := simulate.Envelope{Shape: sh}
	for _, at := range came {
		e.Admit(at, 1)
	}
	return e.Excess()
}
