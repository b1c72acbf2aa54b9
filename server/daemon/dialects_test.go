package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-io/headgate/server/config"
)

// A dialect that the configuration takes is one that the daemon knows.
func TestDialectsAreThoseOfTheConfiguration(t *testing.T) {
	text, err := os.ReadFile("../config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Headers struct {
				Properties struct{ Legacy struct{ Enum []string } }
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	words := schema.Properties.Headers.Properties.Legacy.Enum
	if len(words) != len(dialects) {
		t.Errorf("headers.legacy takes %q, and there are %d dialects", words, len(dialects))
	}
	for _, word := range words {
		if _, ok := dialects[word]; !ok {
			t.Errorf("headers.legacy takes %q, which is no dialect", word)
		}
	}
}

// TestDialectsAtEveryDoor asks every door about the same request in every dialect, and wants of each what the gateway
// tells the client; Envoy's filter ratelimit, which names a limit of its own, has the same fields about that one.
func TestDialectsAtEveryDoor(t *testing.T) {
	ours := newAuthority(t, "ours")
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(limits, []byte(`
domain: d
descriptors:
- {key: a, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 9}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _ := tlsGateway(t, ours, nil, "none", func(c *config.Config) {
		c.Decisions.Listen, c.Decisions.GRPC, c.Decisions.RateLimit = "127.0.0.1:0", "127.0.0.1:0", []string{limits}
		c.Decisions.RateLimitFields = true
	})
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	do := func(method, url, body string, header ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	for _, rule := range []string{
		`{"endpoint":"*","limit":5,"per":"1h","subject":"ip","name":"wide"}`,
		`{"endpoint":"*","limit":70,"per":"1h","subject":"endpoint","name":"secret","refusal":"503 without fields"}`,
	} {
		url := "http://" + d.Admin().String() + "/v1/policies"
		if got := do("PUT", url, rule, "Content-Type", "application/json"); got.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", rule, got.Status)
		}
	}
	conn, err := grpc.NewClient(d.called.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	of := func(headers []*core.HeaderValueOption) http.Header {
		h := http.Header{}
		for _, o := range headers {
			h.Add(o.GetHeader().GetKey(), o.GetHeader().GetValue())
		}
		return h
	}
	asked := "http://" + d.asked.Addr().String()
	doors := map[string]func() http.Header{
		"gateway": func() http.Header { return do("GET", "https://"+d.Gateway().String()+"/x", "").Header },
		"forward": func() http.Header {
			return do("GET", asked+"/forward", "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/x",
				"X-Forwarded-For", "127.0.0.1").Header
		},
		"nginx": func() http.Header {
			return do("GET", asked+"/nginx", "", "X-Original-Method", "GET", "X-Original-Uri", "/x",
				"X-Real-Ip", "127.0.0.1").Header
		},
		"JSON": func() http.Header {
			response := do("POST", asked+"/v1/check", `{"method":"GET","target":"/x","client":"127.0.0.1"}`)
			var answer struct{ Header map[string]string }
			if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			for name, value := range answer.Header {
				h.Set(name, value)
			}
			return h
		},
		"ext_authz": func() http.Header {
			answer, err := auth.NewAuthorizationClient(conn).Check(context.Background(), &auth.CheckRequest{
				Attributes: &auth.AttributeContext{
					Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
						SocketAddress: &core.SocketAddress{Address: "127.0.0.1"}}}},
					Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
						Method: "GET", Path: "/x"}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return of(append(answer.GetDeniedResponse().GetHeaders(),
				answer.GetOkResponse().GetResponseHeadersToAdd()...))
		},
		"ratelimit": func() http.Header {
			question := &ratelimit.RateLimitRequest{Domain: "d"}
			for _, key := range []string{"a", "b"} {
				question.Descriptors = append(question.Descriptors, &common.RateLimitDescriptor{
					Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "x"}},
				})
			}
			answer, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), question)
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			for _, v := range answer.GetResponseHeadersToAdd() {
				h.Add(v.GetKey(), v.GetValue())
			}
			return h
		},
	}
	for range 2 { // from now on every door refuses
		doors["gateway"]()
		doors["ratelimit"]()
	}
	doors["ratelimit"]()

	reload := func(h config.Headers) {
		t.Helper()
		d.reloads.read = func() (config.Config, error) {
			c := d.parts.loaded.Load().conf
			c.Headers = h
			return c, c.Complete()
		}
		if _, err := d.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, rules := range []string{"all", "binding"} {
		for _, draft := range slices.Sorted(maps.Keys(drafts)) {
			for _, legacy := range slices.Sorted(maps.Keys(dialects)) {
				h := config.Headers{RateLimit: true, Draft: draft, Rules: rules, Legacy: legacy}
				reload(h)
				want := fieldsOf(doors["gateway"]())
				for _, door := range []string{"forward", "nginx", "JSON", "ext_authz"} {
					if got := fieldsOf(doors[door]()); got != want {
						t.Errorf("%+v: %s tells\n%s\nwant, as the gateway,\n%s", h, door, got, want)
					}
				}
				if strings.Contains(want, "secret") {
					t.Errorf("%+v: clients are told of a rule without fields:\n%s", h, want)
				}
				got := fieldsOf(doors["ratelimit"]())
				if got, want := names(got), names(want); got != want {
					t.Errorf("%+v: the filter ratelimit has %s, want %s", h, got, want)
				}
				if told := ofRateLimit[draft+" "+rules]; told != "" && !strings.Contains(got, told) {
					t.Errorf("%+v: the filter ratelimit tells\n%s\nwant\n%s", h, got, told)
				}
			}
		}
	}
	reload(config.Headers{Draft: "draft-10", Rules: "all", Legacy: "none"})
	for door, ask := range doors {
		if got := fieldsOf(ask()); !strings.HasPrefix(got, "Retry-After: ") || strings.Count(got, "\n") != 1 {
			t.Errorf("without fields %s tells\n%s", door, got)
		}
	}
}

// ofRateLimit is what the filter ratelimit tells of its limits, the time apart.
var ofRateLimit = map[string]string{
	"draft-10 all":     `Ratelimit: "a";r=0;t=N, "b";r=7;t=N` + "\nRatelimit-Policy: \"a\";q=2;w=N, \"b\";q=9;w=N\n",
	"draft-10 binding": `Ratelimit: "a";r=0;t=N` + "\nRatelimit-Policy: \"a\";q=2;w=N\n",
	"draft-11 all":     `Ratelimit: "a";r=0;t=N, "b";r=7;t=N` + "\n",
	"proposal-166 all": `Ratelimit: "a";a=0;w=N;c=1, "b";a=7;w=N;c=1` +
		"\nRatelimit-Partition: \"a\";headgate-descriptor, \"b\";headgate-descriptor\n",
	"draft-07 all":     "Ratelimit: limit=2, remaining=0, reset=N\nRatelimit-Policy: 2;w=N, 9;w=N\n",
	"draft-06 binding": "Ratelimit-Limit: 2\nRatelimit-Policy: 2;w=N\nRatelimit-Remaining: 0\nRatelimit-Reset: N\n",
	"draft-03 all":     "Ratelimit-Limit: 2, 2;w=N, 9;w=N\nRatelimit-Remaining: 0\nRatelimit-Reset: N\n",
}

var times = regexp.MustCompile(`[0-9]{4}-[0-9T:-]+Z|[0-9]{3,}`)

// fieldsOf writes the fields that tell of limits, a line each, without what passes while a test runs.
func fieldsOf(h http.Header) string {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(h)) {
		name = http.CanonicalHeaderKey(name)
		if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
			fmt.Fprintf(&b, "%s: %s\n", name, times.ReplaceAllString(strings.Join(h.Values(name), ", "), "N"))
		}
	}
	return b.String()
}

// names are those of the fields that fieldsOf has written.
func names(fields string) string {
	return regexp.MustCompile(`(?m): .*$`).ReplaceAllString(fields, "")
}
