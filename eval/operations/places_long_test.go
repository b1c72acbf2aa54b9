//go:build long

package operations

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
)

// crowd is what a caller may have under way, who asks for more than that all the time.
const crowd = 8

// busyAPI answers within a fifth of a second, or now and then within four, and sees how many requests it has at once.
type busyAPI struct {
	*httptest.Server
	live, served atomic.Int64
	opens        atomic.Pointer[chan struct{}] // until which no answer ends, if not nil

	mu     sync.Mutex
	beyond []tooMany // guarded by mu
}

// tooMany is a request that came beside a crowd.
type tooMany struct {
	at   time.Time
	live int64
}

func newBusyAPI(t *testing.T) *busyAPI {
	t.Helper()
	a := new(busyAPI)
	a.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		now := a.live.Add(1)
		defer a.live.Add(-1)
		a.served.Add(1)
		if now > crowd {
			a.mu.Lock()
			a.beyond = append(a.beyond, tooMany{time.Now(), now})
			a.mu.Unlock()
		}
		if opens := a.opens.Load(); opens != nil {
			<-*opens
			return
		}
		longest := 200 * time.Millisecond
		if rand.IntN(5) == 0 {
			longest = 4 * time.Second
		}
		time.Sleep(rand.N(longest))
	}))
	t.Cleanup(a.Close)
	return a
}

// A place that is kept without a request is half as old at most as it may be, and is found missing in that time and
// two seconds more (docs/in-flight.md).
const (
	keptFor = 6 * time.Second
	missed  = keptFor/2 + 2*time.Second
)

// TestPlacesOutliveTheirStore kills and stops a Redis with the places of three gateways, and these too, at random,
// while a caller asks all of them for more than it may have: as long as the store keeps its places, never is one more
// under way than may be; where it starts empty, twice as many until all are counted again. In the end
// all places are there.
func TestPlacesOutliveTheirStore(t *testing.T) {
	for _, scope := range []string{"strict", "lease"} {
		t.Run(scope+", kept", func(t *testing.T) { t.Parallel(); outlive(t, scope, false, "--appendonly", "yes") })
		t.Run(scope+", empty", func(t *testing.T) { t.Parallel(); outlive(t, scope, true) })
	}
}

// outage is a time around which a store lost its places.
type outage struct{ from, to time.Time }

func outlive(t *testing.T, scope string, empties bool, settings ...string) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	api, store := newBusyAPI(t), redistest.Start(t, settings...)
	dir := placesDir(t, api.URL, crowd, keptFor, "store:\n  redis: ["+store.Socket+
		"]\n  secret_file: one.secret\n  deadline: 100ms\n", "--scope", scope)
	var gateways [3]atomic.Pointer[harness.Gateway]
	serve := func(i int) { gateways[i].Store(harness.Serve(t, dir, "--config", "headgate.yaml")) }
	for i := range gateways {
		serve(i)
	}
	// After this nobody asks again. Who left while it is answered would have its place given back before
	// the API knows.
	var ended atomic.Bool
	var callers sync.WaitGroup
	ask := func(ctx context.Context, i int) bool {
		request, err := http.NewRequestWithContext(ctx, "GET", gateways[i].Load().URL+"/slow", nil)
		if err != nil {
			panic(err) // the address is ours
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false // that gateway died, or stands still
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode == http.StatusOK
	}
	for i := range 3 * crowd {
		callers.Go(func() {
			for !ended.Load() {
				if !ask(t.Context(), i%len(gateways)) {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	pause := func(least, more time.Duration) { time.Sleep(least + time.Duration(r.Int64N(int64(more)))) }
	var outages []outage
	faults := []func(){
		func() {
			o := outage{from: time.Now()}
			store.Kill()
			pause(0, time.Second)
			store.Start()
			if o.to = time.Now(); empties {
				outages = append(outages, o)
				time.Sleep(missed)
			}
		},
		func() { store.Freeze(); pause(0, time.Second); store.Thaw() },
		func() { i := r.IntN(3); gateways[i].Load().Kill(); serve(i) },
		func() {
			i := r.IntN(3)
			if err := gateways[i].Load().Stop(); err != nil {
				t.Errorf("a gateway that was stopped: %v", err)
			}
			serve(i)
		},
		func() {
			g := gateways[r.IntN(3)].Load()
			if err := g.Freeze(); err != nil {
				t.Fatal(err)
			}
			pause(0, time.Second)
			if err := g.Thaw(); err != nil {
				t.Fatal(err)
			}
		},
	}
	for round := range 2 {
		for _, i := range r.Perm(len(faults)) {
			faults[i]()
			served := api.served.Load()
			if !harness.Eventually(10*time.Second, func() bool { return api.served.Load() > served+crowd }) {
				t.Errorf("round %d: nobody is served 10 s after fault %d", round, i)
			}
			pause(1500*time.Millisecond, time.Second) // breakers close
		}
	}
	ended.Store(true)
	callers.Wait()

	opens := make(chan struct{})
	api.opens.Store(&opens)
	defer close(opens)
	ctx, stop := context.WithCancel(t.Context())
	defer callers.Wait()
	defer stop()
	for i := range 3 * crowd {
		callers.Go(func() {
			for ctx.Err() == nil && !ask(ctx, i%len(gateways)) {
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	if !harness.Eventually(time.Minute, func() bool { return api.live.Load() == crowd }) {
		t.Errorf("%d are under way when all faults are over, want %d", api.live.Load(), crowd)
	}
	if harness.Eventually(2*time.Second, func() bool { return api.live.Load() > crowd }) {
		t.Errorf("%d are under way when all faults are over, want %d", api.live.Load(), crowd)
	}

	api.mu.Lock()
	defer api.mu.Unlock()
	for _, one := range api.beyond {
		most := int64(crowd)
		for _, o := range outages {
			if one.at.After(o.from) && one.at.Before(o.to.Add(missed)) {
				most = 2 * crowd
			}
		}
		if one.live > most {
			t.Errorf("%d are under way at %v, want %d at most: the store was gone in %v", one.live, one.at, most,
				outages)
		}
	}
	t.Logf("%d were served, %d beside a crowd", api.served.Load(), len(api.beyond))
}
