package gateway_test

import (
	"io"
	"net/http"
	"testing"
)

// TestContentTypePasses: how the limiter read a body is how the API may read
// it, even if the client calls the field one of the connection.
func TestContentTypePasses(t *testing.T) {
	var got []string
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r.Header["Content-Type"]
	})
	base := newGateway(t, api).URL
	for _, connection := range []string{"close", "Content-Type", "close, content-type"} {
		send(t, base, "GET", "/v1/items/1", "Content-Type", "application/x-www-form-urlencoded",
			"Connection", connection)
		if len(got) != 1 || got[0] != "application/x-www-form-urlencoded" {
			t.Errorf("Connection: %s: the API sees Content-Type %q", connection, got)
		}
	}
	if send(t, base, "GET", "/v1/items/1"); got != nil {
		t.Errorf("without one the API sees Content-Type %q", got)
	}
}
