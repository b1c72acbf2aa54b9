package gateway_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/gateway"
)

// TestTook: what the API took is told by template, of requests in whose time their sender has no say.
func TestTook(t *testing.T) {
	left, arrived := make(chan struct{}), make(chan struct{})
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/items/left") {
			close(arrived)
			<-r.Context().Done()
			close(left)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	for _, way := range []string{"the gateway's own client", "net/http", "behind a base path", "no API"} {
		var mu sync.Mutex
		var told []string
		at := api
		switch way {
		case "behind a base path":
			at += "/base"
		case "no API":
			at = "http://127.0.0.1:1"
		}
		base := newGateway(t, at, func(o *gateway.Options) {
			if way == "net/http" {
				o.Transport = gateway.NewTransport(time.Minute, 0)
			}
			o.Times = func() bool { return true }
			o.Took = func(endpoint string, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, endpoint)
				if took <= 0 || took > time.Minute {
					t.Errorf("%s took %v", endpoint, took)
				}
			}
		}).URL
		post := func(size int) {
			response, err := http.Post(base+"/v1/items", "text/plain", strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
		}
		send(t, base, "GET", "/v1/items/7?a=%22b")
		send(t, base, "GET", "/v1//items/%37\"/")
		send(t, base, "GET", "/v1/items/8", "Connection", "Upgrade", "Upgrade", "websocket")
		send(t, base, "GET", "/nothing")
		send(t, base, "GET", "/limited")
		send(t, base, "GET", "/limited") // is denied
		post(10)
		if post(1 << 20); way == "the gateway's own client" {
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-arrived; leave() }()
			r, _ := http.NewRequestWithContext(ctx, "GET", base+"/v1/items/left", nil)
			if _, err := http.DefaultClient.Do(r); err == nil {
				t.Error("it was answered")
			}
			<-left
		}
		want := []string{"GET /v1/items/{id}", "GET /v1/items/{id}", "GET /limited", "POST /v1/items"}
		if way == "net/http" {
			want = want[:3] // which does not say whether it had sent the body
		}
		mu.Lock()
		if !slices.Equal(told, want) {
			t.Errorf("%s: told %q, want %q", way, told, want)
		}
		mu.Unlock()
	}
}

// Nobody is told while it has no use.
func TestTookIsNotTold(t *testing.T) {
	api := newAPI(t, func(http.ResponseWriter, *http.Request) {})
	for _, own := range []bool{true, false} {
		base := newGateway(t, api, func(o *gateway.Options) {
			if !own {
				o.Transport = gateway.NewTransport(time.Minute, 0)
			}
			o.Times = func() bool { return false }
			o.Took = func(endpoint string, _ time.Duration) { t.Errorf("told of %s", endpoint) }
		}).URL
		send(t, base, "GET", "/v1/items/7")
	}
}
