package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/gateway"
)

// TestExchangesAreTold: the limiter learns of each request that goes to the API, and of none in whose time its sender
// has a say; of failures, and of those that no API answers; by each way to it.
func TestExchangesAreTold(t *testing.T) {
	arrived := make(chan struct{})
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/left"):
			close(arrived)
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/broken"):
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	for way, failed := range map[string]bool{"the gateway's own client": false, "net/http": false, "no API": true} {
		const items, post = "GET /v1/items/{id}", "POST /v1/items"
		var now atomic.Int64 // also of who has left, whose end nobody waits for
		now.Store(1e18)
		table := &adaptive.Table{}
		settings := adaptive.Settings{SLO: 20 * time.Second, Floor: 100}
		table.Use(map[string]adaptive.Settings{items: settings, post: settings}, now.Load())
		lim := newLimiter(t, func(o *headgate.Options) {
			o.Adaptive, o.Now = table, func() time.Time { return time.Unix(0, now.Load()) }
		})
		at := api
		if way == "no API" {
			at = "http://127.0.0.1:1"
		}
		base := newGateway(t, at, func(o *gateway.Options) {
			o.Limiter = lim
			if way == "net/http" {
				o.Transport = gateway.NewTransport(time.Minute, 0)
			}
		}).URL
		for range 50 {
			send(t, base, "GET", "/v1/items/7")
		}
		for _, size := range []int{10, 1 << 20} { // of which the second is on its way for longer
			for range 50 {
				response, err := http.Post(base+"/v1/items", "text/plain", strings.NewReader(strings.Repeat("x", size)))
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
		}
		if way == "the gateway's own client" {
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-arrived; leave() }()
			r, _ := http.NewRequestWithContext(ctx, "GET", base+"/v1/items/left", nil)
			if _, err := http.DefaultClient.Do(r); err == nil {
				t.Error("it was answered")
			}
		}
		now.Add(int64(time.Minute))
		want := adaptive.Held
		if failed {
			want = adaptive.Lowered
		}
		for _, name := range []string{items, post} {
			if way == "net/http" && name == post {
				continue // which does not say whether it had sent the body
			}
			if s := table.Named(name).Status(now.Load()); s.Windows[want] != 1 || s.Voices.Callers != 1 {
				t.Errorf("%s, %s: %+v", way, name, s)
			}
		}
		if failed {
			continue
		}
		for range 50 {
			send(t, base, "GET", "/v1/items/broken")
		}
		now.Add(int64(time.Minute))
		if s := table.Named(items).Status(now.Load()); s.Last != adaptive.Lowered || s.Voices.Failed != 1 {
			t.Errorf("%s, broken: %+v", way, s)
		}
	}
}
