package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// overrides are fields by which some framework or proxy serves another method
// or target than the one asked for.
var overrides = []string{
	"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Http-Override-Method", "X-Method",
	"HTTP-Method-Override", "Method-Override", "HTTP-Method",
	"X-Original-URL", "X-Original-URI", "X-Original-Path", "X-Original-Method", "X-Rewrite-URL", "X-Rewrite-URI",
	"X-Rewritten-Path",
	"X-Forwarded-URI", "X-Forwarded-Url", "X-Forwarded-Method", "X-Forwarded-Path", "X-Envoy-Original-Path",
	"X-Matched-Path", "X-Invoke-Path", "X-Invoke-Query",
	"X-Middleware-Rewrite", "X-Middleware-Subrequest", "X-Proxy-Request-URI", "Path-Info", "Script-Name",
	"X-Script-Name", "X-Path-Info", "Request-URI", "X-Request-URI",
	"X-Original-Request-URI", "X-URL",
}

// ofProxies are fields by which proxies say what they did.
var ofProxies = []string{
	"X-Forwarded-Prefix", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Ssl",
	"X-Forwarded-Client-Cert",
	"X-Original-Forwarded-For", "X-Original-Host", "X-Host", "X-HTTP-Host-Override",
}

// harmless are fields that look like those and are an application's own.
var harmless = []string{"X-Own-Method", "X-Original-Filename", "X-Request-Id", "X-Path", "X-Methods", "Method",
	"X-Forwarder", "X_Own_Field", "Http-Client", "X-Real-Ip"}

// TestOverridesDoNotPass: a client must not be charged for one method or target
// and have another one served, whoever stands before the gateway.
func TestOverridesDoNotPass(t *testing.T) {
	trusted := func(o *gateway.Options) { o.TrustedProxy = netip.Addr.IsLoopback }
	for name, change := range map[string]func(*gateway.Options){
		"a stranger":      func(*gateway.Options) {},
		"a trusted proxy": trusted,
	} {
		var sent []string
		for _, field := range append(append(append([]string{}, overrides...), ofProxies...), harmless...) {
			sent = append(sent, field, "/v1/exports", strings.ToLower(strings.ReplaceAll(field, "-", "_")),
				"/v1/exports")
		}
		got := seen(t, change, sent...)
		for _, field := range overrides {
			if spelling := carries(got, field); spelling != "" {
				t.Errorf("from %s the API sees %s", name, spelling)
			}
		}
		for _, field := range ofProxies {
			if spelling := carries(got, field); (spelling != "") != (name == "a trusted proxy") {
				t.Errorf("from %s the API sees %q of %s, want it from a trusted proxy alone", name, spelling, field)
			}
		}
		for _, field := range harmless {
			if got.Get(field) == "" {
				t.Errorf("from %s the API does not see %s", name, field)
			}
		}
	}
}

// carries returns the spelling under which a header has a field to some server.
func carries(h http.Header, field string) string {
	for name := range h {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), field) {
			return name
		}
	}
	return ""
}

func TestNamedOverridesPass(t *testing.T) {
	got := seen(t, func(o *gateway.Options) {
		o.PassOverrides = []string{"x-http-method-override", "X-Forwarded-Prefix"}
	},
		"X-HTTP-Method-Override", "PUT", "X_HTTP_Method_Override", "PUT", "X-HTTP-Method", "PUT", "X-Forwarded-Prefix",
		"/a", "X-Forwarded-Port", "1")
	for name, want := range map[string]bool{
		"X-Http-Method-Override": true, "X_http_method_override": false, "X-Http-Method": false,
		"X-Forwarded-Prefix": true, "X-Forwarded-Port": false,
	} {
		if _, passed := got[name]; passed != want {
			t.Errorf("the API sees %s: %v, want %v", name, passed, want)
		}
	}
	// A key is read from its field, whatever that is called.
	if got := seen(t, func(o *gateway.Options) { o.KeyHeader = "X-Method" }, "X-Method", "key", "X_Method",
		"key"); got.Get("X-Method") != "key" || carries(got, "X-Method") != "X-Method" {
		t.Errorf("the API sees %v, want the key in X-Method alone", got)
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Own",
		"Authorization", ""} {
		_, err := gateway.New(gateway.Options{
			Limiter:       newLimiter(t),
			Upstream:      &url.URL{Scheme: "http", Host: "h"},
			PassOverrides: []string{name},
		})
		if err == nil || !strings.Contains(err.Error(), "PassOverrides") {
			t.Errorf("New with PassOverrides %q: %v, want an error that names it", name, err)
		}
	}
}

// TestNoFieldOfTheHeaderInATrailer: what the gateway reads, writes or drops in
// the header does not pass in the trailer, announced or not, over both versions.
func TestNoFieldOfTheHeaderInATrailer(t *testing.T) {
	var got http.Header
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r.Trailer
	})
	for _, trusted := range []bool{false, true} {
		base := newH2Gateway(t, api, func(o *gateway.Options) {
			o.Limiter, o.KeyHeader, o.ClientHeader = newLimiter(t), "X-Api-Key", "X-Real-IP"
			o.TrustedProxy = func(netip.Addr) bool { return trusted }
			o.PassOverrides = []string{"X-HTTP-Method"}
		})
		names := append(append([]string{
			"X-Api-Key", "X-Real-IP", "Authorization", "Proxy-Authorization", "Cookie", "Forwarded", "X-Forwarded-For",
			"X-Forwarded-Host", "X-Forwarded-Proto",
			"Content-Type", "Content-Encoding", "Host", "Expect", "If-Match", "Connection", "Upgrade", "Range",
			"Cache-Control", "Idempotency-Key",
		}, overrides...), ofProxies...)
		for _, announced := range []bool{false, true} {
			announcement, trailer := "X-Sum", "X-Sum: 1\r\nContent-Digest: 2\r\n"
			for _, name := range names {
				for _, spelling := range []string{name, strings.ToUpper(strings.ReplaceAll(name, "-", "_"))} {
					if announced {
						announcement += ", " + spelling
					}
					trailer += spelling + ": made-up\r\n"
				}
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/items HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\nTrailer: "+
				"%s\r\n\r\n1\r\nx\r\n0\r\n%s\r\n", announcement, trailer)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatal(response, err)
			}
			for name := range got {
				if name != "X-Sum" && name != "Content-Digest" {
					t.Errorf("trusted %v, announced %v: the API sees the trailer %s", trusted, announced, name)
				}
			}
			if got.Get("X-Sum") != "1" {
				t.Errorf("trusted %v, announced %v: the API sees the trailer %v, want X-Sum in it", trusted,
					announced, got)
			}
		}
	}
}

func BenchmarkFields(b *testing.B) {
	b.ReportAllocs()
	names := []string{"Accept", "Accept-Encoding", "User-Agent", "X-Api-Key", "X-Request-Id", "Content-Type",
		"Content-Length", "Traceparent", "X-Forwarded-For", "Cache-Control"}
	for b.Loop() {
		for _, name := range names {
			gateway.Overrides(name)
		}
	}
}
