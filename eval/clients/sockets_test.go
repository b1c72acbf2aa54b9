package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/pace"
	"github.com/headgate-io/headgate/slot"
)

// Over real connections, clients that pace themselves at a Headgate that reserves are all
// served, and hardly any request is refused twice: all that are sent before a client knows of
// the others may be refused together, once. The quota is the experiment's, 40 times as fast.
func TestOverSockets(t *testing.T) {
	const clients, each, burst, perSecond = 10, 20, 20, 50
	table := slot.New(slot.Options{Reserve: true})
	lim, err := headgate.New(headgate.Options{
		Rules: []string{fmt.Sprintf("GET /a %d/s burst %d by endpoint", perSecond, burst), "default 1000/s"},
		Slots: table,
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var served []time.Duration
	began := time.Now()
	server := httptest.NewServer(httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, time.Since(began))
	}), httplimit.Options{}))
	defer server.Close()
	var again, pending atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		// callers are told apart by address
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(10+i))}}
		base := &http.Transport{DialContext: from.DialContext}
		defer base.CloseIdleConnections()
		client := &http.Client{Transport: pace.New(pace.Options{
			Base: counting{base, &pending}, MaxAttempts: 100,
			OnAttempt: func(a pace.Attempt) {
				if a.Refused && a.Number > 1 {
					again.Add(1)
				}
			},
		})}
		for range each {
			wg.Go(func() {
				response, err := client.Get(server.URL + "/a")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != 200 {
					t.Errorf("status %d, want 200 in the end", response.StatusCode)
				}
			})
		}
	}
	wg.Wait()
	if len(served) != clients*each {
		t.Errorf("%d requests were served, want %d", len(served), clients*each)
	}
	// Since before the first, which may have been noted late.
	if took := served[len(served)-1]; float64(len(served)) > burst+perSecond*took.Seconds()+1 {
		t.Errorf("%d requests were served in %v, more than the rule allows", len(served), took)
	}
	// Without times of their own, most are refused several times at this load.
	if n := again.Load(); n > 4*clients {
		t.Errorf("requests were refused again %d times, want at most 4 for each client", n)
	}
	if s := lim.Slots(); s.Reserved == 0 || s.Kept == 0 || pending.Load() == 0 {
		t.Errorf("%+v and %d requests that say what waits, want reserved times that were kept", s, pending.Load())
	}
	t.Logf("%d refused again, %+v", again.Load(), lim.Slots())
}

// counting counts requests with Headgate-Pending.
type counting struct {
	http.RoundTripper
	pending *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get(pace.FieldPending) != "" {
		c.pending.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}
