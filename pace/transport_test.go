package pace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// quota is a token bucket behind an http.RoundTripper, on the clock of a synctest
// bubble. It notes what it was asked.
type quota struct {
	burst, perSecond float64
	header           func(wait time.Duration) http.Header // of refusals
	delay            time.Duration                        // of answers

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	asked   []string // path and body of every attempt
	refused int
}

func newQuota(burst, perSecond float64) *quota {
	return &quota{burst: burst, perSecond: perSecond, tokens: burst, last: time.Now()}
}

func (q *quota) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	q.mu.Lock()
	now := time.Now()
	q.tokens = min(q.burst, q.tokens+now.Sub(q.last).Seconds()*q.perSecond)
	q.last = now
	q.asked = append(q.asked, r.URL.Path+string(body))
	admitted := q.tokens >= 1-1e-9
	wait := time.Duration((1 - q.tokens) / q.perSecond * float64(time.Second))
	if admitted {
		q.tokens--
	} else {
		q.refused++
	}
	q.mu.Unlock()
	select {
	case <-time.After(q.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if admitted {
		return answer(r, http.StatusOK, nil, "served"), nil
	}
	var header http.Header
	if q.header != nil {
		header = q.header(wait)
	}
	return answer(r, http.StatusTooManyRequests, header, "refused"), nil
}

func answer(r *http.Request, status int, header http.Header, body string) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{
		StatusCode: status, Header: header, Request: r, ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}

func retryAfter(seconds string) func(time.Duration) http.Header {
	return func(time.Duration) http.Header { return http.Header{"Retry-After": {seconds}} }
}

func get(t *testing.T, ctx context.Context, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://api.example/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func status(t *testing.T, response *http.Response, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

func half() float64 { return 0.5 }

// A refused request waits and is sent again; the caller sees the answer that it gets
// in the end.
func TestRefusedRequestsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(1, 1)
		server.header = retryAfter("2")
		client := &http.Client{Transport: pace.New(pace.Options{Base: server,
			Algorithm: pace.Auto{Pause: pace.AP{First: time.Second}}, Random: half})}
		began := time.Now()
		for range 2 {
			response, err := client.Do(get(t, t.Context(), "a"))
			if got := status(t, response, err); got != http.StatusOK {
				t.Errorf("status %d, want 200", got)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("two requests took %v, want the 2s that the server asked for", took)
		}
		if server.refused != 1 {
			t.Errorf("%d refused, want 1", server.refused)
		}
	})
}

// All of a quota waits for a pause, in the order of arrival, and the one that was
// refused goes first.
func TestAQuotaPausesAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(2, 1)
		transport := pace.New(pace.Options{Base: server, Algorithm: pace.UB{}, Random: half})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				response, err := transport.RoundTrip(get(t, t.Context(), strconv.Itoa(i)))
				if got := status(t, response, err); got != http.StatusOK {
					t.Errorf("status %d of %d, want 200", got, i)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if !slices.IsSorted(server.asked) || server.refused == 0 {
			t.Errorf("the server was asked for %v and refused %d, want one after the other, some twice", server.asked,
				server.refused)
		}
	})
}

// When a pause ends, a queue does not go all at once: a refusal meets a few of those that wait.
func TestAQueueIsNotSentAllAtOnce(t *testing.T) {
	for name, algorithm := range map[string]pace.Algorithm{
		"AP":   pace.AP{First: 10 * time.Second},
		"Auto": pace.Auto{Pause: pace.AP{First: 10 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQuota(20, 1)
			transport := pace.New(pace.Options{Base: q, Random: half, Algorithm: algorithm, MaxAttempts: 100,
				MaxWait: time.Hour})
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					response, err := transport.RoundTrip(get(t, t.Context(), "a"))
					if got := status(t, response, err); got != 200 {
						t.Errorf("status %d, want 200", got)
					}
				})
			}
			all.Wait()
			if again := q.refused - 180; again > 60 { // the first time all are sent, as nothing is known
				t.Errorf("%s: %d refusals after the first, of 180 requests that wait", name, again)
			}
		})
	}
}

// Other quotas do not wait.
func TestQuotasAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(1, 0.01)
		transport := pace.New(pace.Options{Base: server, Random: half,
			Quota: func(r *http.Request) string { return r.URL.Path }})
		response, err := transport.RoundTrip(get(t, t.Context(), "a"))
		status(t, response, err)
		go func() {
			response, err := transport.RoundTrip(get(t, t.Context(), "a"))
			status(t, response, err)
		}()
		synctest.Wait()
		server.mu.Lock()
		server.tokens = 1
		server.mu.Unlock()
		began := time.Now()
		response, err = transport.RoundTrip(get(t, t.Context(), "b"))
		if got := status(t, response, err); got != http.StatusOK || time.Since(began) != 0 {
			t.Errorf("status %d after %v, want 200 at once", got, time.Since(began))
		}
		time.Sleep(5 * time.Minute) // the other one ends
	})
}

// Requests with a higher priority overtake those that wait.
func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(1, 1)
		server.header = retryAfter("2")
		transport := pace.New(pace.Options{
			Base: server, Random: half, Algorithm: pace.UB{},
			Priority: func(r *http.Request) int { return len(r.URL.Path) },
		})
		var wg sync.WaitGroup
		for _, path := range []string{"1", "2", "333", "4444"} {
			wg.Go(func() {
				response, err := transport.RoundTrip(get(t, t.Context(), path))
				status(t, response, err)
			})
			synctest.Wait()
		}
		wg.Wait()
		got := slices.Compact(server.asked) // without repetitions
		if want := []string{"/1", "/2", "/4444", "/333", "/2"}; !slices.Equal(got, want) {
			t.Errorf("the server was asked for %v, want %v: the longest paths first after the pause", got, want)
		}
	})
}

// A request that cannot be sent in time fails when that is known, not when its time
// is over.
func TestDeadlinesFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(1, 1)
		server.header = retryAfter("60")
		transport := pace.New(pace.Options{Base: server, Random: half})
		began := time.Now()
		response, err := transport.RoundTrip(get(t, t.Context(), "a"))
		status(t, response, err)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		response, err = transport.RoundTrip(get(t, ctx, "b"))
		if got := status(t, response, err); got != http.StatusTooManyRequests {
			t.Errorf("status %d of the request that was refused, want its 429", got)
		}
		_, err = transport.RoundTrip(get(t, ctx, "c"))
		throttled, ok := pace.AsThrottled(err)
		if !ok || throttled.Reason != pace.TooLate || throttled.RetryAfter != time.Minute {
			t.Errorf("error %v, want Throttled for a minute", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v to find out, want 0", took)
		}
		if got := len(server.asked); got != 2 {
			t.Errorf("%d attempts, want 2", got)
		}
	})
}

// A refusal that asks for more than MaxRetryAfter goes to the caller, body and all,
// and the queue does not stop for days because of it.
func TestAbsurdWaits(t *testing.T) {
	for _, value := range []string{"86400", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newQuota(1, 1)
				server.header = retryAfter(value)
				client := &http.Client{Transport: pace.New(pace.Options{
					Base:          server,
					Random:        half,
					MaxRetryAfter: 10 * time.Second,
					Algorithm:     pace.Auto{Pause: pace.AP{First: time.Second}},
				})}
				response, err := client.Do(get(t, t.Context(), "a"))
				status(t, response, err)
				response, err = client.Do(get(t, t.Context(), "a"))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if err != nil || response.StatusCode != http.StatusTooManyRequests || string(body) != "refused" {
					t.Errorf("status %d, body %q, %v, want the refusal", response.StatusCode, body, err)
				}
				began := time.Now()
				response, err = client.Do(get(t, t.Context(), "a"))
				if got := status(t, response, err); got != http.StatusOK || time.Since(began) != 10*time.Second {
					t.Errorf("status %d after %v, want 200 after MaxRetryAfter", got, time.Since(began))
				}
			})
		})
	}
}

// A request that the server always refuses is given up, and does not hold up the
// others for ever.
func TestARequestThatIsAlwaysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/never" {
				return answer(r, http.StatusTooManyRequests, nil, ""), nil
			}
			return answer(r, http.StatusOK, nil, ""), nil
		})
		var attempts int
		transport := pace.New(pace.Options{
			Base: base, Random: half, MaxAttempts: 3, MaxWait: time.Hour,
			OnAttempt: func(a pace.Attempt) { attempts = max(attempts, a.Number) },
		})
		response, err := transport.RoundTrip(get(t, t.Context(), "never"))
		if got := status(t, response, err); got != http.StatusTooManyRequests || attempts != 3 {
			t.Errorf("status %d after %d attempts, want 429 after 3", got, attempts)
		}
		response, err = transport.RoundTrip(get(t, t.Context(), "a"))
		if got := status(t, response, err); got != http.StatusOK {
			t.Errorf("status %d, want 200", got)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Bodies are sent again where that is possible, and the caller's request stays as it
// was.
func TestBodies(t *testing.T) {
	for name, c := range map[string]struct {
		body   io.Reader
		status int
		asked  int
	}{
		"with GetBody":        {strings.NewReader("hello"), 200, 2},
		"small, no GetBody":   {io.LimitReader(strings.NewReader("hello"), 5), 200, 2},
		"of unknown length":   {struct{ io.Reader }{strings.NewReader("hello")}, 429, 1},
		"large, with GetBody": {bytes.NewReader(bytes.Repeat([]byte("x"), 100)), 200, 2},
		"large, without":      {io.LimitReader(bytes.NewReader(bytes.Repeat([]byte("x"), 100)), 100), 429, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newQuota(1, 1)
				server.tokens = 0
				server.header = retryAfter("2")
				transport := pace.New(pace.Options{
					Base:      server,
					Random:    half,
					MaxReplay: 10,
					Algorithm: pace.Auto{Pause: pace.AP{First: time.Second}},
				})
				r, err := http.NewRequestWithContext(t.Context(), "POST", "http://api.example/", c.body)
				if err != nil {
					t.Fatal(err)
				}
				if limited, ok := c.body.(*io.LimitedReader); ok {
					r.ContentLength = limited.N
				}
				length, body := r.ContentLength, r.Body
				response, err := transport.RoundTrip(r)
				if got := status(t, response, err); got != c.status {
					t.Errorf("status %d, want %d", got, c.status)
				}
				if len(server.asked) != c.asked {
					t.Errorf("%d attempts, want %d", len(server.asked), c.asked)
				}
				for _, asked := range server.asked {
					if asked != server.asked[0] || len(asked) < 5 {
						t.Errorf("the server read %q, want the whole body every time", server.asked)
					}
				}
				if r.ContentLength != length || r.Body != body {
					t.Error("the caller's request was changed")
				}
			})
		})
	}
}

// A 503 with Retry-After pauses the queue, and only what may be processed twice is
// sent again.
func TestUnavailable(t *testing.T) {
	for method, want := range map[string]int{"GET": 200, "PUT": 200, "POST": 503, "PATCH": 503} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			transport := pace.New(pace.Options{Random: half,
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					if asked++; asked == 1 {
						return answer(r, http.StatusServiceUnavailable, http.Header{"Retry-After": {"1"}}, ""), nil
					}
					return answer(r, http.StatusOK, nil, ""), nil
				})})
			r := get(t, t.Context(), "a")
			r.Method = method
			response, err := transport.RoundTrip(r)
			if got := status(t, response, err); got != want {
				t.Errorf("%s: status %d, want %d", method, got, want)
			}
			pause := transport.Quotas()[0].Pause
			if want == 503 && pause == 0 {
				t.Errorf("%s: no pause after a 503 with Retry-After", method)
			}
		})
	}
}

// The queue and the table of quotas are bounded.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(1, 1)
		server.delay = time.Second
		transport := pace.New(pace.Options{
			Base: server, Random: half, MaxQueue: 2, MaxQuotas: 2, Algorithm: pace.UB{},
			Quota: func(r *http.Request) string { return r.URL.Path[:2] },
		})
		do := func(path string) error {
			response, err := transport.RoundTrip(get(t, t.Context(), path))
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		var wg sync.WaitGroup
		for range 3 { // one is sent, two wait
			wg.Go(func() { _ = do("a") })
		}
		wg.Go(func() { _ = do("b") })
		synctest.Wait()
		if throttled, ok := pace.AsThrottled(do("a")); !ok || throttled.Reason != pace.QueueFull {
			t.Errorf("got %v, want QueueFull", throttled)
		}
		if throttled, ok := pace.AsThrottled(do("c")); !ok || throttled.Reason != pace.TooManyQuotas {
			t.Errorf("got %v, want TooManyQuotas", throttled)
		}
		wg.Wait()
		if err := do("c"); err != nil {
			t.Errorf("a third quota after the others are idle: %v", err)
		}
		if n := len(transport.Quotas()); n != 2 {
			t.Errorf("%d quotas are remembered, want 2", n)
		}
	})
}

// Whoever stops waiting leaves the queue, and his turn is not lost.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newQuota(10, 1)
		server.delay = time.Second
		transport := pace.New(pace.Options{Base: server, Random: half, Algorithm: pace.UB{}})
		var wg sync.WaitGroup
		wg.Go(func() {
			response, err := transport.RoundTrip(get(t, t.Context(), "1"))
			status(t, response, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := transport.RoundTrip(get(t, ctx, "2")); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			response, err := transport.RoundTrip(get(t, t.Context(), "3"))
			status(t, response, err)
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		if got := strings.Join(server.asked, " "); got != "/1 /3" {
			t.Errorf("the server was asked for %s, want /1 /3", got)
		}
		if s := transport.Quotas()[0]; s.Waiting != 0 || s.Unanswered != 0 || s.Attempts != 2 {
			t.Errorf("state %+v, want nothing waiting or unanswered, 2 attempts", s)
		}
	})
}

// endless is a body that never ends, until it is closed.
type endless struct{ closed chan struct{} }

func (e endless) Read([]byte) (int, error) { <-e.closed; return 0, io.ErrUnexpectedEOF }
func (e endless) Close() error {
	select {
	case <-e.closed:
	default:
		close(e.closed)
	}
	return nil
}

// A refusal whose body never ends keeps its request for two seconds, and the queue not at all.
func TestARefusalThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, began := true, time.Now()
		transport := pace.New(pace.Options{
			Random: half, Algorithm: pace.AP{First: time.Second},
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if !first {
					return answer(r, 200, nil, "served"), nil
				}
				first = false
				refusal := answer(r, 429, nil, "")
				refusal.Body, refusal.ContentLength = endless{make(chan struct{})}, -1
				return refusal, nil
			}),
		})
		response, err := transport.RoundTrip(get(t, t.Context(), "a"))
		if got := status(t, response, err); got != 200 || time.Since(began) != 2*time.Second {
			t.Errorf("status %d after %v, want 200 after 2s", got, time.Since(began))
		}
	})
}

// What panics below a Transport, and is recovered by somebody, leaves its queue as it was.
func TestAPanicBelow(t *testing.T) {
	panics := true
	transport := pace.New(pace.Options{Algorithm: pace.UB{},
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			if panics {
				panic("of Base")
			}
			return answer(r, 200, nil, ""), nil
		})})
	func() {
		defer func() { _ = recover() }()
		_, _ = transport.RoundTrip(get(t, t.Context(), "a"))
	}()
	panics = false
	response, err := transport.RoundTrip(get(t, t.Context(), "a"))
	if got, s := status(t, response, err), transport.Quotas()[0]; got != 200 || s.Unanswered != 0 || s.Waiting != 0 {
		t.Errorf("status %d and %+v, want the request served and none unanswered", got, s)
	}
}

// A storm of requests that are cancelled at any moment, of all quotas and priorities, leaves nothing
// behind: no turn is lost and none is given twice, whatever is refused or fails below.
func TestAStormOfCancellations(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 16))
			var mu sync.Mutex // guards what follows
			under, most := map[string]int{}, map[string]int{}
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return chance.IntN(n) }
			algorithm := []pace.Algorithm{pace.Auto{Pause: pace.AP{First: time.Second}}, pace.UB{}, pace.ATB{Rate: 10},
				pace.HATB{}}[seed%4]
			transport := pace.New(pace.Options{
				Random: half, Algorithm: algorithm, MaxQueue: 50, MaxQuotas: 3, MaxAttempts: 3,
				MaxWait:  20 * time.Second,
				Quota:    func(r *http.Request) string { return r.URL.Path[:2] },
				Priority: func(r *http.Request) int { return int(r.URL.Path[2]) },
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					quota, kind := r.URL.Path[:2], draw(5)
					mu.Lock()
					under[quota]++
					most[quota] = max(most[quota], under[quota])
					mu.Unlock()
					defer func() { mu.Lock(); under[quota]--; mu.Unlock() }()
					select {
					case <-r.Context().Done():
						return nil, r.Context().Err()
					case <-time.After(time.Duration(draw(500)) * time.Millisecond):
					}
					switch kind {
					case 0:
						return answer(r, 429, http.Header{"Retry-After": {strconv.Itoa(draw(4))}}, "no"), nil
					case 1:
						return nil, io.ErrUnexpectedEOF
					}
					return answer(r, 200, nil, "served"), nil
				}),
			})
			var wg sync.WaitGroup
			for range 400 {
				wg.Go(func() {
					time.Sleep(time.Duration(draw(10_000)) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+draw(3000))*time.Millisecond)
					defer cancel()
					if draw(2) == 0 {
						time.AfterFunc(time.Duration(draw(1000))*time.Millisecond, cancel)
					}
					response, err := transport.RoundTrip(get(t, ctx,
						string([]rune{rune('a' + draw(4)), rune('a' + draw(3))})))
					if err == nil {
						_ = response.Body.Close()
					}
				})
			}
			wg.Wait()
			for _, s := range transport.Quotas() {
				if s.Waiting != 0 || s.Unanswered != 0 {
					t.Errorf("seed %d: %+v is left", seed, s)
				}
			}
			for quota, n := range most {
				if n > 1 && seed%4 == 1 { // UB sends one at a time
					t.Errorf("seed %d: %d requests of quota %s at once, want 1", seed, n, quota)
				}
			}
			// Each quota still serves.
			for _, path := range []string{"aa", "ba", "ca"} {
				time.Sleep(time.Hour)
				response, err := transport.RoundTrip(get(t, t.Context(), path)) // may be refused, or fail
				if _, throttled := pace.AsThrottled(err); throttled {
					t.Errorf("seed %d: %s is not sent: %v", seed, path, err)
				}
				if err == nil {
					_ = response.Body.Close()
				}
			}
		})
	}
}

// A server that cannot be reached says nothing of its quota.
func TestFailuresDoNotPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection refused")
		transport := pace.New(pace.Options{
			Random: half,
			Base:   roundTripper(func(*http.Request) (*http.Response, error) { return nil, broken }),
		})
		for range 3 {
			if _, err := transport.RoundTrip(get(t, t.Context(), "a")); !errors.Is(err, broken) {
				t.Errorf("error %v, want %v", err, broken)
			}
		}
		if s := transport.Quotas()[0]; s.Pause != 0 || s.Refused != 0 || s.Attempts != 3 || s.Unanswered != 0 {
			t.Errorf("state %+v, want 3 attempts and no pause", s)
		}
	})
}
