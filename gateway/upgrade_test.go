package gateway_test

import (
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// TestNoOtherHTTPBehindTheLimiter: a connection that goes over to HTTP/2 would
// carry requests that are never counted.
func TestNoOtherHTTPBehindTheLimiter(t *testing.T) {
	for _, c := range []struct{ offer, want string }{
		{"h2c", ""},
		{"H2C", ""},
		{"h2", ""},
		{"h2c-14", ""},
		{"HTTP/2.0", ""},
		{"TLS/1.2", ""},
		{"websocket, h2c", ""},
		{"h2c,websocket", ""},
		{"\xffwebsocket", ""},
		{"websocket", "websocket"},
		{"SPDY/3.1", "SPDY/3.1"},
	} {
		got := seen(t, func(*gateway.Options) {}, "Connection", "Upgrade, HTTP2-Settings", "Upgrade", c.offer,
			"HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
		if got.Get("Upgrade") != c.want || got.Get("HTTP2-Settings") != "" ||
			(got.Get("Connection") == "Upgrade") != (c.want != "") {
			t.Errorf("of the offer %q the API sees Upgrade %q, Connection %q, HTTP2-Settings %q; want %q alone",
				c.offer, got.Get("Upgrade"), got.Get("Connection"), got.Get("HTTP2-Settings"), c.want)
		}
	}
	got := seen(t, func(*gateway.Options) {}, "Connection", "Upgrade", "Upgrade", "h2c", "HTTP2-Settings",
		"AAMAAABkAARAAAAAAAIAAAAA")
	if got.Get("HTTP2-Settings") != "" {
		t.Errorf("the API sees HTTP2-Settings, which the client did not call one of the connection")
	}
}
