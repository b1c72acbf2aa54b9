package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// client sends requests of one kind and counts what became of them.
type client struct {
	name  string
	story string
	pace  time.Duration
	make  func(n int) (*http.Request, error)
	obeys bool // waits as Retry-After says

	admitted, limited, refused, failed atomic.Int64
}

// newClients returns the three characters. Their keys are of different
// projects, so each has a budget of its own; the attacker has none and shares
// its address's.
func newClients(base string, keys map[string]string) []*client {
	book := func(key string) func(n int) (*http.Request, error) {
		return func(n int) (*http.Request, error) {
			r, err := http.NewRequest(http.MethodGet, base+"/v1/books/"+strconv.Itoa(n%500), nil)
			if err == nil {
				r.Header.Set("X-Api-Key", key)
			}
			return r, err
		}
	}
	return []*client{
		{
			name:  "polite",
			story: "sends 4 requests a second and waits when told to",
			pace:  250 * time.Millisecond,
			make:  book(keys["polite"]),
			obeys: true,
		},
		{
			name:  "greedy",
			story: "sends 50 a second and listens to nobody",
			pace:  20 * time.Millisecond,
			make:  book(keys["greedy"]),
		},
		{
			name:  "attacker",
			story: "sends 50 a second, each with another spelling, address and key",
			pace:  20 * time.Millisecond,
			make:  disguised(base),
		},
	}
}

// spellings are ways to write /v1/books/{n} that naive limiters count apart.
var spellings = []string{
	"/v1/books/%d", "//v1/books/%d", "/v1/./books/%d", "/v1/x/../books/%d", "/v1/%%62ooks/%d",
	"/v1/books/%d/", "/v1/books/%d?cache=bust", "/%%761/books/%d?v=1", "/v1/%%2e/books/%d",
}

// disguised sends the same request in every disguise it knows.
func disguised(base string) func(n int) (*http.Request, error) {
	host := base[len("http://"):]
	return func(n int) (*http.Request, error) {
		r, err := http.NewRequest(http.MethodGet, base, nil)
		if err != nil {
			return nil, err
		}
		r.URL.Opaque = "//" + host + fmt.Sprintf(spellings[n%len(spellings)], n%500)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", rand.IntN(256)))
		r.Header.Set("X-Api-Key", fmt.Sprintf("hg_%043d", rand.Int64()))
		return r, nil
	}
}

func (c *client) run(ctx context.Context) {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}
	defer transport.CloseIdleConnections()
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := c.send(ctx, transport, n)
		// By the clock and not by the answer, so that it is as many a second as
		// the screen says; what a busy machine misses is not made up for.
		now := time.Now()
		next = next.Add(c.pace)
		if next.Before(now.Add(-c.pace)) {
			next = now
		}
		timer.Reset(max(next.Sub(now), wait))
	}
}

// send makes one request and returns how long the answer asks to wait, if the
// client cares.
func (c *client) send(ctx context.Context, transport http.RoundTripper, n int) time.Duration {
	r, err := c.make(n)
	if err != nil {
		c.failed.Add(1)
		return 0
	}
	response, err := transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if ctx.Err() == nil {
			c.failed.Add(1)
		}
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	switch {
	case response.StatusCode < 300:
		c.admitted.Add(1)
	case response.StatusCode == http.StatusTooManyRequests:
		c.limited.Add(1)
	default:
		c.refused.Add(1)
	}
	if !c.obeys {
		return 0
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}
