package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// newGateway starts a gateway before api; change adjusts its options.
func newGateway(t *testing.T, api string, change ...func(*gateway.Options)) *httptest.Server {
	t.Helper()
	upstream, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	o := gateway.Options{Limiter: newLimiter(t), Upstream: upstream, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	h, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func newLimiter(t testing.TB, change ...func(*headgate.Options)) *headgate.Limiter {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "POST /v1/items", "GET /limited"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: 1000},
		{Endpoint: "GET /limited", Limit: 1, Per: time.Hour},
	}}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := headgate.Options{Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who}
	for _, c := range change {
		c(&o)
	}
	lim, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func newAPI(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// send sends a request target as it is, byte for byte.
func send(t *testing.T, base, method, target string, header ...string) *http.Response {
	t.Helper()
	host := strings.TrimPrefix(base, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
	}
	fmt.Fprint(conn, "\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestRequestsPassAsTheyCame(t *testing.T) {
	var got *http.Request
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { got = r })
	base := newGateway(t, api).URL
	for _, target := range []string{"/v1/items/a%20b?x=1&y=%2F", "//v1/./items/7", "/v1/%69tems/7/",
		"/v1/items/7?v=2;w"} {
		if response := send(t, base, "GET", target, "X-Own", "kept"); response.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %s, want 200", target, response.Status)
			continue
		}
		if got.RequestURI != target || got.Header.Get("X-Own") != "kept" ||
			got.Host != strings.TrimPrefix(base, "http://") {
			t.Errorf("the API got %s for host %s with X-Own %q, want %s, the client's host and header", got.RequestURI,
				got.Host, got.Header.Get("X-Own"), target)
		}
	}
}

func TestLimitsHoldBeforeTheAPI(t *testing.T) {
	var served atomic.Int64
	api := newAPI(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
	base := newGateway(t, api).URL
	for i, c := range []struct {
		target string
		want   int
	}{{"/limited", 200}, {"//limited/", 429}, {"/%6cimited", 429}, {"/nothing/here", 404}, {"/v1/items/%00", 400}} {
		if response := send(t, base, "GET", c.target); response.StatusCode != c.want {
			t.Errorf("request %d to %s = %d, want %d", i, c.target, response.StatusCode, c.want)
		}
	}
	if n := served.Load(); n != 1 {
		t.Errorf("the API served %d requests, want 1", n)
	}
}

func TestForwardedFieldsOfStrangersAreDropped(t *testing.T) {
	var got http.Header
	api := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	trustLoopback := func(o *gateway.Options) { o.TrustedProxy = netip.Addr.IsLoopback }
	trustForwarded := func(o *gateway.Options) {
		o.TrustedProxy, o.ForwardedHeader = netip.Addr.IsLoopback, "Forwarded"
	}
	sent := []string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.example",
		"Forwarded", "for=203.0.113.9", "Connection", "X-Forwarded-For"}
	for name, c := range map[string]struct {
		change                        func(*gateway.Options)
		chain, proto, host, forwarded string
	}{
		"stranger":                     {func(*gateway.Options) {}, "127.0.0.1", "http", "", ""},
		"trusted with X-Forwarded-For": {trustLoopback, "203.0.113.9, 127.0.0.1", "https", "shop.example", ""},
		"trusted with Forwarded":       {trustForwarded, "127.0.0.1", "http", "", "for=203.0.113.9, for=127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			base := newGateway(t, api, c.change).URL
			send(t, base, "GET", "/v1/items/1", sent...)
			if c.host == "" {
				c.host = strings.TrimPrefix(base, "http://")
			}
			for header, want := range map[string]string{
				"X-Forwarded-For": c.chain, "X-Forwarded-Proto": c.proto, "X-Forwarded-Host": c.host,
				"Forwarded": c.forwarded,
			} {
				if got := got.Get(header); got != want {
					t.Errorf("%s = %q, want %q", header, got, want)
				}
			}
		})
	}
}

func TestUpstreamFailuresAreTheGatewaysOwn(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hang := make(chan struct{})
	silent := newAPI(t, func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	garbage := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "no HTTP at all\r\n\r\n")
			conn.Close()
		}
	})
	for name, c := range map[string]struct {
		api    string
		within time.Duration
		status int
	}{
		"down": {closed.URL, time.Minute, 502}, "silent": {silent, 50 * time.Millisecond, 504},
		"garbage": {garbage, time.Minute, 502},
	} {
		t.Run(name, func(t *testing.T) {
			var told []int
			base := newGateway(t, c.api, func(o *gateway.Options) {
				o.UpstreamTimeout = c.within
				o.Failed = func(status int) { told = append(told, status) }
			}).URL
			response := send(t, base, "GET", "/v1/items/1")
			var problem struct {
				Status int
				Detail string
			}
			err := json.NewDecoder(response.Body).Decode(&problem)
			if response.StatusCode != c.status || err != nil || problem.Status != c.status || problem.Detail == "" {
				t.Errorf("GET = %d with problem %+v, %v, want %d with its details", response.StatusCode, problem,
					err, c.status)
			}
			if kind := response.Header.Get("Content-Type"); kind != "application/problem+json" {
				t.Errorf("Content-Type = %q, want problem details", kind)
			}
			if len(told) != 1 || told[0] != c.status {
				t.Errorf("Failed was told %v, want %d once", told, c.status)
			}
		})
	}
}

func TestErrorsOfTheAPIPassThrough(t *testing.T) {
	api := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "17")
		http.Error(w, "the API's own words", http.StatusServiceUnavailable)
	})
	response := send(t, newGateway(t, api).URL, "GET", "/v1/items/1")
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != 503 || string(body) != "the API's own words\n" ||
		response.Header.Get("Retry-After") != "17" {
		t.Errorf("GET = %d %q, Retry-After %q, want the API's answer", response.StatusCode, body,
			response.Header.Get("Retry-After"))
	}
}

// A streamed response reaches the client as it is made, not when it ends.
func TestStreamsPassPieceByPiece(t *testing.T) {
	next := make(chan struct{})
	api := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "piece %d\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	response := send(t, newGateway(t, api).URL, "GET", "/v1/items/1")
	lines := bufio.NewReader(response.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if want := fmt.Sprintf("piece %d\n", i); line != want || err != nil {
			t.Fatalf("read %q, %v, want %q before the API goes on", line, err, want)
		}
		next <- struct{}{}
	}
}

func TestTrailersPass(t *testing.T) {
	var fromClient string
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fromClient = r.Trailer.Get("X-Sum")
		w.Header().Set("Trailer", "X-Count")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Count", "4")
	})
	r, err := http.NewRequest("POST", newGateway(t, api).URL+"/v1/items", io.NopCloser(strings.NewReader("x")))
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"X-Sum": {"1"}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if fromClient != "1" || response.Trailer.Get("X-Count") != "4" {
		t.Errorf("trailers: the API got %q, the client %q, want 1 and 4", fromClient, response.Trailer.Get("X-Count"))
	}
}

// WebSocket's opening handshake (RFC 6455 §4) passes, and then bytes both ways.
func TestWebSocketPasses(t *testing.T) {
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") == "" {
			http.Error(w, "no handshake", http.StatusBadRequest)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		fmt.Fprint(conn, "echo "+line)
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(newGateway(t, api).URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/items/1 HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	answers := bufio.NewReader(conn)
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols ||
		response.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("handshake = %s %v, want 101 with the API's acceptance", response.Status, response.Header)
	}
	if response.Header.Get("RateLimit") == "" {
		t.Error("the handshake's answer has no RateLimit, want it like any other")
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := answers.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("read %q, %v, want the echo", line, err)
	}
}

// A client that goes away is not an upstream failure.
func TestClientsThatLeaveAreNotFailures(t *testing.T) {
	arrived, hang := make(chan struct{}), make(chan struct{})
	api := newAPI(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-hang
	})
	t.Cleanup(func() { close(hang) })
	var failed atomic.Int64
	server := newGateway(t, api, func(o *gateway.Options) { o.Failed = func(int) { failed.Add(1) } })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/v1/items/1", nil)
		_, err := http.DefaultClient.Do(r)
		done <- err
	}()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client got %v, want its own cancellation", err)
	}
	server.Close() // waits for the handler
	if n := failed.Load(); n != 0 {
		t.Errorf("%d failures were counted, want 0", n)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		o    gateway.Options
		want []string
	}{
		"nothing": {gateway.Options{UpstreamTimeout: -1, ForwardedHeader: "X-Real-Ip"},
			[]string{"Limiter is nil", "Upstream is nil", "UpstreamTimeout is -1ns", `ForwardedHeader is "X-Real-Ip"`}},
		"scheme": {gateway.Options{Upstream: &url.URL{Scheme: "ftp", Host: "h"}}, []string{`Upstream is "ftp://h"`}},
		"query": {gateway.Options{Upstream: &url.URL{Scheme: "http", Host: "h", RawQuery: "x"}},
			[]string{"want no query"}},
		"secret": {gateway.Options{Upstream: &url.URL{Scheme: "http", User: url.UserPassword("u", "hidden"),
			Path: "x"}}, []string{"u:xxxxx@"}},
	} {
		_, err := gateway.New(c.o)
		if err == nil {
			t.Errorf("%s: New succeeds, want an error", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", name, err, want)
			}
		}
	}
}

// An API whose answers break off is told of once a second like one that does
// not answer.
func TestBrokenAnswersDoNotFillTheLog(t *testing.T) {
	api := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	var mu sync.Mutex
	var lines strings.Builder
	gate := newGateway(t, api, func(o *gateway.Options) {
		o.Log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return lines.Write(p)
		}), nil))
	})
	began := time.Now()
	for range 20 {
		response, err := http.Get(gate.URL + "/v1/items/7")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err == nil {
			t.Error("half an answer was passed on as a whole one")
		}
		response.Body.Close()
	}
	most := 1 + int(time.Since(began)/time.Second)
	gate.Close() // waits for the handlers
	if n := strings.Count(lines.String(), "\n"); n < 1 || n > most+1 ||
		!strings.Contains(lines.String(), "in the middle of an answer") {
		t.Errorf("the log has %d lines, want one a second:\n%s", n, lines.String())
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOutgoingRequestsMayBeChanged(t *testing.T) {
	api := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s key=%q", r.RequestURI, r.Header.Get("X-Api-Key"))
	})
	gate := newGateway(t, api, func(o *gateway.Options) {
		o.Outgoing = func(r *http.Request) {
			r.Header.Del("X-Api-Key")
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "api_key=K&", "", 1)
		}
	})
	body, err := io.ReadAll(send(t, gate.URL, "GET", "/v1/items/7?api_key=K&x=%2f", "X-Api-Key", "K").Body)
	if want := `/v1/items/7?x=%2f key=""`; err != nil || string(body) != want {
		t.Errorf("the API sees %s, %v, want %s", body, err, want)
	}
}
