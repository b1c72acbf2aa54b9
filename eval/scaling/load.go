package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// traffic is how requests are spread over k gateways, and over time.
type traffic struct {
	name  string
	share func(i, k int) float64
	edges bool // only around full seconds of the clock
}

func even(_, k int) float64 { return 1 / float64(k) }

var traffics = []traffic{
	{name: "uniform", share: even},
	{name: "skewed", share: func(i, k int) float64 { // nine tenths meet one of them
		if k == 1 {
			return 1
		}
		if i == 0 {
			return 0.9
		}
		return 0.1 / float64(k-1)
	}},
	{name: "edges", share: even, edges: true},
}

// edge is for how long before and after a full second the traffic of that name comes.
const edge = 100 * time.Millisecond

// when moves a moment at which nobody sends to the next one at which somebody does.
func (t traffic) when(at time.Time) time.Time {
	into := at.Sub(at.Truncate(time.Second))
	if !t.edges || into < edge || into >= time.Second-edge {
		return at
	}
	return at.Add(time.Second - edge - into)
}

// pause is a random time between two requests, of so many a second in the long run.
func (t traffic) pause(each float64) time.Duration {
	if t.edges {
		each *= float64(time.Second) / float64(2*edge)
	}
	return time.Duration(rand.ExpFloat64() / each * float64(time.Second))
}

// way sends one request through a limiter, and reports whether the API got it. An error is that of
// a limiter which gave no answer.
type way func() (through bool, err error)

// sent is what became of a load.
type sent struct {
	count   int64
	errors  int64
	longest time.Duration // that the way of a request took which got through
	took    []span        // by every request that was answered
	failed  error         // the last of errors, nil for none
}

// span is from when to when a request was under way, since the beginning of the load.
type span struct{ from, to time.Duration }

// mostAtOnce is how many requests are under way to one gateway; beyond it none is sent, as no
// client has so many connections.
const mostAtOnce = 256

// load sends so many requests a second in all over ways until the time is over.
func load(lasts time.Duration, perSecond float64, ways []way, spread traffic) (total sent) {
	var mu sync.Mutex // guards total
	var all sync.WaitGroup
	began := time.Now()
	for i, through := range ways {
		each := perSecond * spread.share(i, len(ways))
		all.Go(func() {
			room := make(chan struct{}, mostAtOnce)
			next := spread.when(began.Add(spread.pause(each)))
			for ; next.Sub(began) < lasts; next = spread.when(next.Add(spread.pause(each))) {
				time.Sleep(time.Until(next))
				select {
				case room <- struct{}{}:
				default:
					continue
				}
				all.Go(func() {
					defer func() { <-room }()
					from := time.Since(began)
					ok, err := through()
					to := time.Since(began)
					mu.Lock()
					defer mu.Unlock()
					total.count++
					switch {
					case err != nil:
						total.errors++
						total.failed = err
						return
					case ok:
						total.longest = max(total.longest, to-from)
					}
					total.took = append(total.took, span{from, to})
				})
			}
		})
	}
	all.Wait()
	return total
}

// err is nil unless so many requests got no answer that what was measured is not what was meant.
func (s sent) err() error {
	if 100*s.errors <= s.count {
		return nil
	}
	return fmt.Errorf("%d of %d requests got no answer, the last: %w", s.errors, s.count, s.failed)
}

// percentile of how long requests took that began within a time.
func (s sent) percentile(p float64, from, to time.Duration) time.Duration {
	var took []time.Duration
	for _, one := range s.took {
		if one.from >= from && one.from < to {
			took = append(took, one.to-one.from)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(p*float64(len(took))))]
}

// newClient is for a load of requests over HTTP.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: mostAtOnce, IdleConnTimeout: 10 * time.Second},
		Timeout:   10 * time.Second,
	}
}

// get sends a request and reports whether it is answered 200.
func get(client *http.Client, url string) (bool, error) {
	response, err := client.Get(url)
	if err != nil {
		return false, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK, response.Body.Close()
}
