package pace_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// stepped is a clock that stands still until it is advanced.
type stepped struct {
	mu     sync.Mutex
	now    time.Time
	timers []*steppedTimer
	set    chan time.Duration // how far away what somebody waits for is
}

type steppedTimer struct {
	at   time.Time
	call func()
}

func newStepped() *stepped {
	return &stepped{now: time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), set: make(chan time.Duration, 100)}
}

func (c *stepped) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stepped) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &steppedTimer{c.now.Add(d), f}
	c.timers = append(c.timers, t)
	c.set <- d
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := len(c.timers)
		c.timers = slices.DeleteFunc(c.timers, func(o *steppedTimer) bool { return o == t })
		return len(c.timers) < before
	}
}

func (c *stepped) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []func()
	c.timers = slices.DeleteFunc(c.timers, func(t *steppedTimer) bool {
		if t.at.After(c.now) {
			return false
		}
		due = append(due, t.call)
		return true
	})
	c.mu.Unlock()
	for _, call := range due {
		go call()
	}
}

// With a clock and random numbers of one's own nothing of a Transport depends on the machine's.
func TestAClockOfOnesOwn(t *testing.T) {
	clock, sent, refused := newStepped(), make(chan time.Time, 10), false
	transport := pace.New(pace.Options{
		Random: half, Clock: clock, Algorithm: pace.HATB{Jitter: -1},
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			sent <- clock.Now()
			if refused = !refused; refused {
				date := clock.Now().Add(time.Hour).Format(http.TimeFormat)
				return answer(r, 429, http.Header{"Retry-After": {date}}, ""), nil
			}
			return answer(r, 200, nil, ""), nil
		}),
		MaxWait: 3 * time.Hour, MaxRetryAfter: 2 * time.Hour,
	})
	began, done := clock.Now(), make(chan int)
	go func() {
		response, err := transport.RoundTrip(get(t, t.Context(), "a"))
		done <- status(t, response, err)
	}()
	for d := range clock.set { // the bound of the wait, and then the refusal's hour
		if d == time.Hour {
			break
		}
	}
	clock.advance(time.Hour - time.Nanosecond)
	if n := len(sent); n != 1 {
		t.Errorf("%d attempts before the hour was over, want 1", n)
	}
	clock.advance(time.Nanosecond)
	if got := <-done; got != 200 {
		t.Errorf("status %d, want 200", got)
	}
	<-sent
	if at := (<-sent).Sub(began); at != time.Hour {
		t.Errorf("sent again after %v, want an hour", at)
	}
	if s := transport.Quotas()[0]; s.Attempts != 2 || s.Waited != time.Hour {
		t.Errorf("%+v, want 2 attempts and an hour of waiting", s)
	}
}
