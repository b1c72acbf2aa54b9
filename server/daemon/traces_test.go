package daemon_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net"
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

// TestTracesOfWebSockets: the API is told the trace of what opens a connection, by either engine. The span of the
// request is as long as the connection, and keeps its name whatever is sent; decisions about messages are in it.
func TestTracesOfWebSockets(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // spans are sent after some seconds
			c := newReceiver(t)
			arrived := make(chan string, 1)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived <- strings.Join(r.Header["Traceparent"], "+") + " " + r.Header.Get("Tracestate")
				conn, buffered, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"+
					"Connection: Upgrade\r\n\r\n")
				_, _ = io.CopyN(conn, buffered, int64(2*len(masked))) // what it was sent comes back as it is
			}))
			t.Cleanup(api.Close)
			p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100}}, func(conf *config.Config) {
				conf.Upstream, conf.Engine = api.URL, engine
				conf.Traces.Endpoint, conf.Traces.OneIn = c.URL+"/v1/traces", 1
				conf.WebSockets = map[string]config.WebSocket{"GET /v1/items/{id}": {}}
			})
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.gate, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "GET /v1/items/7 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Version: 13\r\nTraceparent: 00-%s-%s-01\r\nTracestate: vendor=1\r\n\r\n", trace, parent)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("the handshake is answered with %v, %v", answer, err)
			}
			told, state, _ := strings.Cut(<-arrived, " ")
			if len(told) != 55 || told[3:35] != trace || told[36:52] == parent ||
				told[53:] != "01" || state != "vendor=1" {
				t.Errorf("the API got %q and %q, want a span of trace %s", told, state, trace)
			}
			if _, err := io.WriteString(conn, masked+masked); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, conn) // until the API has gone
			conn.Close()
			verdicts, named := 0, 0
			for _, s := range c.await(t, 4) { // the request, and the decisions about it and two messages
				within := hexOf(s.ParentSpanId)
				switch {
				case hexOf(s.TraceId) != trace:
					t.Errorf("%s is of trace %s", s.Name, hexOf(s.TraceId))
				case s.Name == "decision" && within == told[36:52]:
					verdicts++
				case s.Name == "GET /v1/items/{id}" && within == parent &&
					attributesOf(s)["http.route"].GetStringValue() == "/v1/items/{id}":
					named++
				default:
					t.Errorf("there is a span %v", s)
				}
			}
			if verdicts != 3 || named != 1 {
				t.Errorf("%d spans of decisions and %d of requests, want 3 and 1", verdicts, named)
			}
		})
	}
}

// masked is a message of two bytes as a client sends it, under a mask of zeros.
const masked = "\x81\x82\x00\x00\x00\x00hi"

func hexOf(id []byte) string { return hex.EncodeToString(id) }

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	id, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
