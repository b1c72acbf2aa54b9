package gateway_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httputil"
	"reflect"
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// What is said of the client is what httputil says.
func TestSetXForwardedIsThatOfHTTPUtil(t *testing.T) {
	for _, remote := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "@", ""} {
		for _, secure := range []*tls.ConnectionState{nil, {}} {
			for _, prior := range [][]string{nil, {"a"}, {"a, b", "c"}} {
				in := &http.Request{RemoteAddr: remote, Host: "x", TLS: secure}
				want := &httputil.ProxyRequest{In: in, Out: &http.Request{Header: http.Header{}}}
				got := &httputil.ProxyRequest{In: in, Out: &http.Request{Header: http.Header{}}}
				if prior != nil {
					want.Out.Header["X-Forwarded-For"], got.Out.Header["X-Forwarded-For"] = prior, prior
				}
				want.SetXForwarded()
				gateway.SetXForwarded(got)
				if !reflect.DeepEqual(got.Out.Header, want.Out.Header) {
					t.Errorf("%q, %v: %v, want %v", remote, prior, got.Out.Header, want.Out.Header)
				}
			}
		}
	}
}
