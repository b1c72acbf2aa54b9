package envoy_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/envoy"
)

// faults are those that a server told of.
type faults struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (f *faults) add(fault decisions.Fault, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, fault.String()+": "+err.Error())
}

func (f *faults) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// start serves two requests a minute and client, for each endpoint, by a clock that stands.
func start(t testing.TB, trusted func(netip.Addr) bool) (*grpc.ClientConn, *faults) {
	t.Helper()
	return startWith(t, trusted, nil)
}

func startWith(t testing.TB, trusted func(netip.Addr) bool, d *envoy.Descriptors) (*grpc.ClientConn, *faults) {
	t.Helper()
	conn, told, _ := startServer(t, trusted, d)
	return conn, told
}

func startServer(t testing.TB, trusted func(netip.Addr) bool, d *envoy.Descriptors) (*grpc.ClientConn, *faults,
	*envoy.Server) {
	t.Helper()
	now := time.Now()
	lim, err := headgate.New(headgate.Options{
		Rules: []string{"GET /v1/items/{id} 2/m", "default 2/m"}, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	told := &faults{}
	s, err := envoy.New(decisions.Options{Limiter: lim, Trusted: trusted, Failed: told.add}, d, 4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		if err := errors.Join(s.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return conn, told, s
}

// question is what Envoy asks about a request of a client.
func question(method, path, client string) *auth.CheckRequest {
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source:  &auth.AttributeContext_Peer{Address: address(client)},
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: method, Path: path}},
	}}
}

func address(text string) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: text}}}
}

// fields returns those of an answer, by name.
func fields(options []*core.HeaderValueOption) http.Header {
	h := http.Header{}
	for _, o := range options {
		h.Add(o.GetHeader().GetKey(), o.GetHeader().GetValue())
	}
	return h
}

func TestCheck(t *testing.T) {
	conn, told := start(t, netip.Addr.IsLoopback)
	client := auth.NewAuthorizationClient(conn)
	for _, c := range []struct {
		method, path, client string
		status               int
		field, value         string
	}{
		{"GET", "/v1/items/1", "192.0.2.1", 200, "Ratelimit", `"GET /v1/items/{id}";r=1;t=30`},
		{"GET", "/v1/items/2?x", "192.0.2.1", 200, "Ratelimit", `"GET /v1/items/{id}";r=0;t=30`},
		{"GET", "/v1/items/3", "192.0.2.1", 429, "Retry-After", "30"},
		{"HEAD", "/v1/items/3", "192.0.2.1", 429, "Retry-After", "30"},
		{"GET", "/v1/items/3", "2001:db8::1", 200, "Ratelimit", `"GET /v1/items/{id}";r=1;t=30`},
		{"GET", "/v1/items/%00", "192.0.2.1", 400, "Content-Type", "application/problem+json"},
		{"GET", "http://other/v1/items/3", "192.0.2.1", 400, "Content-Type", "application/problem+json"},
		{"OPTIONS", "*", "192.0.2.1", 400, "Content-Type", "application/problem+json"},
		{"CONNECT", "/v1/items/3", "192.0.2.1", 400, "Content-Type", "application/problem+json"},
	} {
		answer, err := client.Check(t.Context(), question(c.method, c.path, c.client))
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		got, h := 200, fields(answer.GetOkResponse().GetResponseHeadersToAdd())
		if denied := answer.GetDeniedResponse(); denied != nil {
			got, h = int(denied.GetStatus().GetCode()), fields(denied.GetHeaders())
		}
		if got != c.status || h.Get(c.field) != c.value || (answer.GetStatus().GetCode() == 0) != (c.status == 200) {
			t.Errorf("%s %s of %s: %d with %s %q, want %d with %q", c.method, c.path, c.client, got, c.field,
				h.Get(c.field), c.status, c.value)
		}
	}
	if all := told.list(); len(all) > 0 {
		t.Errorf("told of %v, want no fault", all)
	}
}

// A question that is not about a request is an error, and no budget is charged.
func TestCheckWithoutARequest(t *testing.T) {
	conn, told := start(t, netip.Addr.IsLoopback)
	client := auth.NewAuthorizationClient(conn)
	for text, change := range map[string]func(*auth.CheckRequest){
		"attributes.request.http is missing, attributes.source.address has no socket_address, want the " +
			"client's": func(q *auth.CheckRequest) {
			q.Attributes = nil
		},
		"attributes.request.http is missing": func(q *auth.CheckRequest) {
			q.Attributes.Request = nil
		},
		"attributes.request.http.method is missing": func(q *auth.CheckRequest) {
			q.Attributes.Request.Http.Method = ""
		},
		"attributes.request.http.path is missing": func(q *auth.CheckRequest) {
			q.Attributes.Request.Http.Path = ""
		},
		"attributes.source.address has no socket_address, want the client's": func(q *auth.CheckRequest) {
			q.Attributes.Source = nil
		},
		"attributes.source.address is no address": func(q *auth.CheckRequest) {
			q.Attributes.Source.Address = address("client")
		},
	} {
		q := question("GET", "/v1/items/1", "192.0.2.1")
		change(q)
		_, err := client.Check(t.Context(), q)
		if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != text {
			t.Errorf("Check = %v, want InvalidArgument: %s", err, text)
		}
	}
	if len(told.list()) != 6 {
		t.Errorf("told of %v, want 6 faults", told.list())
	}
	answer, err := client.Check(t.Context(), question("GET", "/v1/items/1", "192.0.2.1"))
	if got := fields(answer.GetOkResponse().GetResponseHeadersToAdd()).Get("RateLimit"); err != nil ||
		got != `"GET /v1/items/{id}";r=1;t=30` {
		t.Errorf("after them RateLimit is %q, %v, want one request charged", got, err)
	}
}

// Fields come as they were, or joined; those that ask for something else are seen either way.
func TestCheckReadsFields(t *testing.T) {
	conn, _ := start(t, netip.Addr.IsLoopback)
	client := auth.NewAuthorizationClient(conn)
	for name, change := range map[string]func(*auth.AttributeContext_HttpRequest){
		"a map": func(r *auth.AttributeContext_HttpRequest) {
			r.Headers = map[string]string{":path": "/", "x-http-method-override": "DELETE"}
		},
		"values": func(r *auth.AttributeContext_HttpRequest) {
			r.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: ":path", Value: "/"},
				{Key: "x-http-method-override", Value: "DELETE"}}}
		},
		"raw values": func(r *auth.AttributeContext_HttpRequest) {
			r.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "x-rewrite-url",
				RawValue: []byte("/v1/other")}}}
		},
	} {
		q := question("GET", "/v1/items/1", "192.0.2.1")
		change(q.Attributes.Request.Http)
		answer, err := client.Check(t.Context(), q)
		if got := answer.GetDeniedResponse().GetStatus().GetCode(); err != nil || got != 400 {
			t.Errorf("%s: %v, %v, want 400", name, got, err)
		}
	}
}

func TestHealth(t *testing.T) {
	conn, _ := start(t, netip.Addr.IsLoopback)
	got, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health is %v, %v", got, err)
	}
}

func TestOnlyTrustedPeersMayAsk(t *testing.T) {
	conn, told := start(t, func(netip.Addr) bool { return false })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := auth.NewAuthorizationClient(conn).Check(ctx,
		question("GET", "/v1/items/1", "192.0.2.1")); status.Code(err) != codes.Unavailable {
		t.Errorf("Check = %v, want Unavailable", err)
	}
	if len(told.list()) == 0 {
		t.Error("told of no fault")
	}
}

// Bytes that are no message are an error of their call, and the next one is answered.
func FuzzCheck(f *testing.F) {
	conn, _ := start(f, netip.Addr.IsLoopback)
	whole, err := proto.Marshal(question("GET", "/v1/items/1", "192.0.2.1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, message []byte) {
		var answer auth.CheckResponse
		err := conn.Invoke(t.Context(), "/envoy.service.auth.v3.Authorization/Check", message, &answer,
			grpc.ForceCodecV2(raw{}))
		switch status.Code(err) {
		case codes.OK:
			if answer.GetOkResponse() == nil && answer.GetDeniedResponse().GetStatus().GetCode() < 400 {
				t.Fatalf("answered %v, want yes, or a status of 400 or more", &answer)
			}
		case codes.InvalidArgument, codes.Internal:
		default:
			t.Fatal(err)
		}
	})
}
