package daemon_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// receiver is a collector of OpenTelemetry, by OTLP over HTTP.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*spans.Span // guarded by mu
	raw   bytes.Buffer  // guarded by mu
	auth  string        // guarded by mu
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	c := &receiver{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		text, err := io.ReadAll(body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(text, &sent) != nil {
			t.Errorf("what was sent to %s cannot be read: %v", r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.auth = r.Header.Get("Authorization")
		c.raw.Write(text)
		for _, resource := range sent.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// await waits until the collector has so many spans.
func (c *receiver) await(t *testing.T, n int) []*spans.Span {
	t.Helper()
	var got []*spans.Span
	eventually(t, "spans at the collector", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		got = c.spans
		return len(got) >= n
	})
	return got
}

func attributesOf(s *spans.Span) map[string]*common.AnyValue {
	all := map[string]*common.AnyValue{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value
	}
	return all
}

// TestTraces: a request that is sampled makes a span, with one of its decision in it; the API goes on with its trace.
// Every other request reaches the API with the trace context that it came with. Nothing secret is sent.
func TestTraces(t *testing.T) {
	c := newReceiver(t)
	var mu sync.Mutex
	var arrived []string
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, strings.Join(r.Header["Traceparent"], "+")+" "+r.Header.Get("Tracestate"))
	}))
	t.Cleanup(api.Close)
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("Authorization: Bearer of-the-collector\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 2, Per: time.Hour}}, func(conf *config.Config) {
		conf.Upstream = api.URL
		conf.Traces.Endpoint, conf.Traces.OneIn, conf.Traces.HeadersFile = c.URL+"/v1/traces", 1_000_000, headers
		conf.TrustedProxies = []string{"127.0.0.0/8"}
	})
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	const sampled, unsampled = "00-" + trace + "-" + parent + "-01", "00-" + trace + "-" + parent + "-00"
	call(t, "GET", p.gate+"/v1/items/secret-path?key=secret-query", "", "Traceparent", sampled, "Tracestate",
		"vendor=1", "X-Api-Key", "secret-key")
	call(t, "GET", p.gate+"/v1/items/2", "", "Traceparent", unsampled, "Tracestate", "vendor=2")
	if code, _ := call(t, "GET", p.gate+"/v1/items/3", "", "Traceparent", sampled); code != 429 {
		t.Errorf("the third request = %d, want 429", code)
	}

	got := c.await(t, 4) // two requests, and their decisions
	if len(got) != 4 {
		t.Fatalf("%d spans, want 4: of the requests that are sampled", len(got))
	}
	byID, verdicts := map[string]*spans.Span{}, map[string]bool{}
	for _, s := range got {
		byID[string(s.SpanId)] = s
		if hexOf(s.TraceId) != trace {
			t.Errorf("%s is of trace %s, want %s", s.Name, hexOf(s.TraceId), trace)
		}
	}
	for _, s := range got {
		about := attributesOf(s)
		if s.Name != "decision" {
			if s.Name != "GET /v1/items/{id}" || hexOf(s.ParentSpanId) != parent ||
				about["http.route"].GetStringValue() != "/v1/items/{id}" {
				t.Errorf("the span of a request is %v", s)
			}
			continue
		}
		verdicts[about["headgate.verdict"].GetStringValue()] = true
		within := byID[string(s.ParentSpanId)]
		if within == nil || s.StartTimeUnixNano < within.StartTimeUnixNano ||
			s.EndTimeUnixNano > within.EndTimeUnixNano || s.EndTimeUnixNano <= s.StartTimeUnixNano {
			t.Errorf("the span of a decision is %v, in %v", s, within)
		}
		if about["headgate.rule"].GetStringValue() != "default" ||
			about["headgate.endpoint"].GetStringValue() != "GET /v1/items/{id}" ||
			len(about["headgate.caller"].GetStringValue()) != 16 ||
			about["headgate.stage.bucket_seconds"].GetDoubleValue() <= 0 {
			t.Errorf("the attributes of a decision are %v", about)
		}
	}
	if !verdicts["allowed"] || !verdicts["denied"] {
		t.Errorf("the verdicts are %v, want both", verdicts)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Contains(c.raw.Bytes(), []byte("secret-")) || bytes.Contains(c.raw.Bytes(), []byte("127.0.0.1")) ||
		c.auth != "Bearer of-the-collector" {
		t.Errorf("the collector was sent a secret, or not its own (%q):\n%q", c.auth, c.raw.String())
	}
	mu.Lock()
	defer mu.Unlock()
	if len(arrived) != 2 || arrived[1] != unsampled+" vendor=2" {
		t.Fatalf("the API got %q, want what is not sampled as it came", arrived)
	}
	field, state, _ := strings.Cut(arrived[0], " ")
	parts := strings.Split(field, "-")
	if state != "vendor=1" || len(parts) != 4 || parts[1] != trace || parts[2] == parent || parts[3] != "01" ||
		byID[string(bytesOf(t, parts[2]))] == nil {
		t.Errorf("the API got %q, want the span of the request as its parent", arrived[0])
	}
}

func hexOf(id []byte) string { return hex.EncodeToString(id) }

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	id, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
