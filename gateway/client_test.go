package gateway_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/gateway"
)

// seen returns the header that the API gets of a request with these lines.
func seen(t *testing.T, change func(*gateway.Options), lines ...string) http.Header {
	t.Helper()
	var got http.Header
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	base := newGateway(t, api, change).URL
	if response := send(t, base, "GET", "/v1/items/1", lines...); response.StatusCode != http.StatusOK {
		t.Fatalf("the gateway answers %s", response.Status)
	}
	return got
}

// TestClientHeader: what the API reads in the field that names the client was
// written by a trusted proxy, or is not there.
func TestClientHeader(t *testing.T) {
	for _, header := range []string{"CF-Connecting-IP", "True-Client-IP", "X-Real-IP", "Fly-Client-IP"} {
		stranger := func(o *gateway.Options) { o.ClientHeader = header }
		trusted := func(o *gateway.Options) { o.ClientHeader, o.TrustedProxy = header, netip.Addr.IsLoopback }
		lower := strings.ToLower(header)
		for _, c := range []struct {
			name   string
			change func(*gateway.Options)
			lines  []string
			want   []string
		}{
			{"a stranger's", stranger, []string{header, "6.6.6.6"}, nil},
			{"a stranger's in small letters", stranger, []string{lower, "6.6.6.6"}, nil},
			{"a stranger's twice", stranger, []string{header, "6.6.6.6", lower, "7.7.7.7"}, nil},
			{"a stranger's, called one of the connection", stranger,
				[]string{header, "6.6.6.6", "Connection", header}, nil},
			{"a proxy's", trusted, []string{lower, "203.0.113.9"}, []string{"203.0.113.9"}},
			{"a proxy's, called one of the connection", trusted,
				[]string{header, "203.0.113.9", "Connection", "close, " + lower}, []string{"203.0.113.9"}},
			{"a proxy's with a client's", trusted, []string{header, "6.6.6.6", header, "203.0.113.9"}, nil},
			{"none", trusted, nil, nil},
			{"of another name", func(*gateway.Options) {}, []string{header, "6.6.6.6"}, []string{"6.6.6.6"}},
		} {
			got := seen(t, c.change, c.lines...).Values(header)
			if strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("%s, %s: the API sees %q, want %q", header, c.name, got, c.want)
			}
		}
	}
}

// TestLookAlikesAreDropped: a server that turns hyphens into underscores must
// not find the client's field under the name of the proxy's.
func TestLookAlikesAreDropped(t *testing.T) {
	for _, change := range []func(*gateway.Options){
		func(o *gateway.Options) { o.ClientHeader = "X-Real-IP" },
		func(o *gateway.Options) { o.ClientHeader, o.TrustedProxy = "X-Real-IP", netip.Addr.IsLoopback },
	} {
		got := seen(t, change, "X_Forwarded_For", "6.6.6.6", "x-forwarded_for", "6.6.6.6", "X_FORWARDED_HOST", "evil",
			"X_Forwarded_Proto", "https",
			"X_Real_IP", "6.6.6.6", "X_Own_Field", "kept")
		for name, lines := range got {
			if strings.Contains(name, "_") && name != "X_own_field" {
				t.Errorf("the API sees %s: %q", name, lines)
			}
		}
		if got.Get("X_Own_Field") != "kept" {
			t.Errorf("the API sees %v, want X_Own_Field kept", got)
		}
	}
}

// TestKeysHaveNoSecondName: a key that the API finds under another name than
// the limiter does would be a way around the key's budget.
func TestKeysHaveNoSecondName(t *testing.T) {
	for _, c := range []struct{ header, kept string }{
		{"X-Api-Key", "X-Api-Key"}, {"x-api-key", "X-Api-Key"}, {"", "X-Api-Key X_api_key"},
		{"X_Api_Key", "X-Api-Key X_api_key"},
	} {
		got := seen(t, func(o *gateway.Options) { o.KeyHeader = c.header }, "X-Api-Key", "a", "X_Api_Key", "b")
		for _, name := range []string{"X-Api-Key", "X_api_key"} {
			if want := strings.Contains(c.kept, name); (len(got[name]) == 1) != want {
				t.Errorf("keys in %q: the API sees %s: %q, want it: %v", c.header, name, got[name], want)
			}
		}
	}
}

// TestForwardedForStaysWhatItIs: neither a Connection field nor an absent one
// (CVE-2022-32148) keeps the gateway from saying who its peer is.
func TestForwardedForStaysWhatItIs(t *testing.T) {
	trusted := func(o *gateway.Options) { o.TrustedProxy = netip.Addr.IsLoopback }
	for _, c := range []struct {
		name   string
		change func(*gateway.Options)
		lines  []string
		want   string
	}{
		{"none", trusted, nil, "127.0.0.1"},
		{"an empty one", trusted, []string{"X-Forwarded-For", ""}, ", 127.0.0.1"},
		{"called one of the connection", trusted,
			[]string{"X-Forwarded-For", "203.0.113.9", "Connection", "x-FORWARDED-for"}, "203.0.113.9, 127.0.0.1"},
		{"twice, with Connection", trusted, []string{"X-Forwarded-For", "6.6.6.6", "X-FORWARDED-FOR", "203.0.113.9",
			"Connection", "close", "Connection", "X-Forwarded-For"}, "6.6.6.6, 203.0.113.9, 127.0.0.1"},
		{"a stranger's with Connection", func(*gateway.Options) {},
			[]string{"X-Forwarded-For", "6.6.6.6", "Connection", "X-Forwarded-For"}, "127.0.0.1"},
	} {
		if got := strings.Join(seen(t, c.change, c.lines...).Values("X-Forwarded-For"), ", "); got != c.want {
			t.Errorf("%s: the API sees %q, want %q", c.name, got, c.want)
		}
	}
}
