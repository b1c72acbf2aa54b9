package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// queued is a Handler whose rule lets one request through a second and queues nine.
func queued(t *testing.T, o httplimit.Options, change ...func(*headgate.Options)) (h http.Handler,
	served *atomic.Int64) {
	t.Helper()
	lim, _ := newLimiter(t, []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 1, Burst: 10, Algorithm: policy.LeakyBucket},
	}, nil, change...)
	served = new(atomic.Int64)
	return httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }), o),
		served
}

func send(h http.Handler, ctx context.Context) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "GET", "/v1/items/1", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRequestsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, served := queued(t, httplimit.Options{MaxWait: 3 * time.Second, Legacy: httplimit.DeltaSeconds})
		began := time.Now()
		refused := 0
		for range 6 {
			go func() {
				if w := send(h, context.Background()); w.Code == http.StatusTooManyRequests {
					refused++
					if got := w.Header().Get("Retry-After"); got != "1" || time.Since(began) != 0 {
						t.Errorf("refused after %v with Retry-After %q, want at once and 1", time.Since(began), got)
					}
				} else if got := w.Header().Get("X-RateLimit-Strategy"); got != "leaky_bucket" {
					t.Errorf("X-RateLimit-Strategy is %q", got)
				}
			}()
			synctest.Wait()
		}
		for second := range int64(5) {
			if got := served.Load(); got != min(second+1, 4) {
				t.Errorf("after %d s: %d served, want %d", second, got, min(second+1, 4))
			}
			time.Sleep(time.Second) // of the bubble's clock
			synctest.Wait()
		}
		if refused != 2 {
			t.Errorf("%d refused, want the 2 that would have waited longer than 3 s", refused)
		}
	})
}

func TestNobodyWaitsForAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, served := queued(t, httplimit.Options{})
		send(h, context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		began := time.Now()
		w := send(h, ctx)
		if w.Code != http.StatusServiceUnavailable || served.Load() != 1 || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%d after %v, %d served, want 503 when the client leaves and 1", w.Code, time.Since(began),
				served.Load())
		}
		send(h, context.Background())
		if got := time.Since(began); got != 1100*time.Millisecond {
			t.Errorf("the next was served after %v, want 1.1s: who left gave back the 0.9 s that were not over", got)
		}
	})
}

func TestWaitersOfAHandlerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, served := queued(t, httplimit.Options{}, func(o *headgate.Options) { o.MaxWaiters = 1 })
		send(h, context.Background())
		go send(h, context.Background())
		synctest.Wait()
		if w := send(h, context.Background()); w.Code != http.StatusTooManyRequests {
			t.Errorf("the second waiter is answered with %d, want 429", w.Code)
		}
		time.Sleep(time.Minute)
		if served.Load() != 2 {
			t.Errorf("%d served, want 2", served.Load())
		}
	})
}

// Requests that pay afterwards wait for their turn as well.
func TestReservedRequestsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, served := queued(t, httplimit.Options{MaxWait: 3 * time.Second,
			Reserve: &httplimit.Reserve{Field: httplimit.CostField}})
		codes := make(chan int, 6)
		for range 6 {
			go func() { codes <- send(h, context.Background()).Code }()
			synctest.Wait()
		}
		for second := range int64(5) {
			if got := served.Load(); got != min(second+1, 4) {
				t.Errorf("after %d s: %d served, want %d", second, got, min(second+1, 4))
			}
			time.Sleep(time.Second) // of the bubble's clock
			synctest.Wait()
		}
		refused := 0
		for range 6 {
			if <-codes == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d refused, want the 2 that would have waited longer than 3 s", refused)
		}
	})
}

func TestNoReservationIsKeptForAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, _ := newLimiter(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1, Burst: 10,
			Algorithm: policy.LeakyBucket}}, nil)
		served := 0
		h := httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }),
			httplimit.Options{
				// It would be over before the second one's turn, if it did not begin there.
				Reserve: &httplimit.Reserve{Field: httplimit.CostField, Timeout: 500 * time.Millisecond},
			})
		send(h, context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		began := time.Now()
		w := send(h, ctx)
		if w.Code != http.StatusServiceUnavailable || served != 1 || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%d after %v, %d served, want 503 when the client leaves and 1", w.Code, time.Since(began), served)
		}
		if s := lim.Reservations(); s.Outstanding != 0 {
			t.Errorf("reservations %+v, want none outstanding", s)
		}
		send(h, context.Background())
		if got := time.Since(began); got != 1100*time.Millisecond {
			t.Errorf("the next was served after %v, want 1.1s: who left gave back the 0.9 s that were not over", got)
		}
		if s := lim.Reservations(); s.Settled != 3 || s.Expired != 0 {
			t.Errorf("reservations %+v, want 3 settled and none expired", s)
		}
	})
}
