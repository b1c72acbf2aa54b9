package trace

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func newTracer(t *testing.T, o Options) *Tracer {
	t.Helper()
	if o.Endpoint == "" {
		collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		t.Cleanup(collector.Close)
		o.Endpoint = collector.URL
	}
	o.Caller = func(*identity.Principal) string { return "caller" }
	tracer, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Close(context.Background()) })
	return tracer
}

// TestWhatIsSampled: the sender decides where it is trusted, and against sampling always; else the draw does; and never
// more than so many in a second.
func TestWhatIsSampled(t *testing.T) {
	now := time.Unix(1_770_000_000, 0)
	trusted := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") }
	for _, test := range []struct {
		name, peer string
		fields     []string
		oneIn      int
		want       int // of 10 in a second
	}{
		{"all are drawn", "192.0.2.1:1", nil, 1, 3},
		{"all are drawn, and the sender says no", "192.0.2.1:1", []string{unsampled}, 1, 0},
		{"hardly any is drawn, and a stranger says yes", "192.0.2.1:1", []string{sampled}, 1e9, 0},
		{"hardly any is drawn, and a trusted proxy says yes", "10.0.0.1:1", []string{sampled}, 1e9, 3},
		{"the same, and says it twice", "10.0.0.1:1", []string{sampled, sampled}, 1e9, 0},
		{"the same, in words that mean nothing", "10.0.0.1:1", []string{"00-x-y-01"}, 1e9, 0},
	} {
		tracer := newTracer(t, Options{OneIn: test.oneIn, PerSecond: 3, Trusted: trusted,
			Now: func() time.Time { return now }})
		for second := range 2 {
			got := 0
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if tracer.Time(r.Context(), &headgate.Request{}) != nil {
					got++
				} else if len(r.Header[field]) != len(test.fields) {
					t.Errorf("%s: what is not sampled goes on with %q, want %q", test.name,
						r.Header[field], test.fields)
				}
			})
			for range 10 {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = test.peer
				if test.fields != nil {
					r.Header[field] = test.fields
				}
				tracer.Serve(nil, r, h)
			}
			if got != test.want {
				t.Errorf("%s: in second %d, %d of 10 are sampled, want %d", test.name, second, got, test.want)
			}
			now = now.Add(time.Second)
		}
	}
}

// TestMessagesOfOneConnection: however many messages come on a connection that is sampled, no more of them than
// requests are in a second.
func TestMessagesOfOneConnection(t *testing.T) {
	now := time.Unix(1_770_000_000, 0)
	tracer := newTracer(t, Options{OneIn: 1, PerSecond: 3, Now: func() time.Time { return now }})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if tracer.Time(r.Context(), &headgate.Request{}) == nil {
			t.Error("the request is not sampled")
		}
		for _, want := range []int{2, 3} {
			got := 0
			for range 10 {
				if tracer.Time(r.Context(), &headgate.Request{Message: true}) != nil {
					got++
				}
			}
			if got != want {
				t.Errorf("%d of 10 messages are sampled, want %d", got, want)
			}
			now = now.Add(time.Second)
		}
	})
	tracer.Serve(nil, httptest.NewRequest("GET", "/", nil), h)
}

// TestWhatIsNotSampledCostsNothing: no allocation, with a trace context and without.
func TestWhatIsNotSampledCostsNothing(t *testing.T) {
	tracer := newTracer(t, Options{OneIn: 1e9})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		tracer.Time(r.Context(), &headgate.Request{})
	})
	r := httptest.NewRequest("GET", "/", nil)
	if n := testing.AllocsPerRun(1000, func() { tracer.Serve(nil, r, h) }); n >= trial.Allocations {
		t.Errorf("a request that is not sampled allocates %v times, want 0", n)
	}
}

// TestACollectorThatIsAway: spans are lost, counted and told of; nothing else happens.
func TestACollectorThatIsAway(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer collector.Close()
	var told atomic.Int64
	tracer := newTracer(t, Options{Endpoint: collector.URL, OneIn: 1, Failed: func(error) { told.Add(1) }})
	tracer.Serve(
		nil,
		httptest.NewRequest("GET", "/", nil),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	)
	if err := tracer.Close(context.Background()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s := tracer.Stats(); s.Lost != 1 || s.Sent != 0 || told.Load() != 1 {
		t.Errorf("Stats = %+v, told %d times, want one span lost and told of", s, told.Load())
	}
}
