package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestQueriesPassAsTheyCame: templates may tell endpoints apart by the query,
// so the API must be asked what the limiter was asked.
func TestQueriesPassAsTheyCame(t *testing.T) {
	var got string
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI })
	base := newGateway(t, api).URL
	for _, query := range []string{
		"b=2&a=1", "b=2;c&a=1", "a=%zz", "a=%2", "a=1&&", "sig=a%2fb+c;d", "",
		"action=login" + strings.Repeat("&", 12_000), // more than net/url parses
	} {
		target := "/v1/items/1?" + query
		if response := send(t, base, "GET", target); response.StatusCode != http.StatusOK || got != target {
			t.Errorf("GET %.60s = %s, and the API got %.60s", target, response.Status, got)
		}
	}
}
