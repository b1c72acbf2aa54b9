package connectlimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/connectlimit"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/routertest"
)

// text is the message of all methods.
type text = wrapperspb.StringValue

// init registers shop.v1.Books, as generated code does.
func init() {
	method := func(name string, streams bool) *descriptorpb.MethodDescriptorProto {
		of := proto.String(".google.protobuf.StringValue")
		return &descriptorpb.MethodDescriptorProto{
			Name:            &name,
			InputType:       of,
			OutputType:      of,
			ClientStreaming: &streams,
			ServerStreaming: &streams,
		}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("shop.proto"), Package: proto.String("shop.v1"),
		Dependency: []string{"google/protobuf/wrappers.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name:   proto.String("Books"),
			Method: []*descriptorpb.MethodDescriptorProto{method("Get", false), method("Chat", true)},
		}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	if err := protoregistry.GlobalFiles.RegisterFile(file); err != nil {
		panic(err)
	}
}

const (
	get  = "/shop.v1.Books/Get"
	chat = "/shop.v1.Books/Chat"
)

// start serves both methods, and returns where. The field Session says who is logged in.
func start(t *testing.T, o connectlimit.MessageOptions, rules ...string) (*http.Client, string) {
	t.Helper()
	endpoints, err := connectlimit.Endpoints("shop.v1.Books")
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := headgate.New(headgate.Options{Endpoints: endpoints, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	echo := func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(r.Msg), nil
	}
	mux.Handle(get, connect.NewUnaryHandler(get, echo, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle(chat, connect.NewBidiStreamHandler(chat,
		func(_ context.Context, s *connect.BidiStream[text, text]) error {
			for {
				m, err := s.Receive()
				if err != nil {
					return err
				}
				if err := s.Send(m); err != nil {
					return err
				}
			}
		}, connect.WithInterceptors(connectlimit.Messages(o))))
	limited, err := connectlimit.Handler(limiter, mux,
		httplimit.Options{User: func(r *http.Request) *identity.User {
			return &identity.User{ID: r.Header.Get("Session")}
		}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(limited)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Client(), server.URL
}

var protocols = map[string][]connect.ClientOption{
	"Connect": nil, "Connect by GET": {connect.WithHTTPGet(),
		connect.WithIdempotency(connect.IdempotencyNoSideEffects)}, "gRPC": {connect.WithGRPC()},
	"gRPC-Web": {connect.WithGRPCWeb()},
}

// Whatever the protocol, calls spend one budget, and a refusal is an error that its clients read.
func TestCalls(t *testing.T) {
	client, at := start(t, connectlimit.MessageOptions{}, "POST "+get+" 2/h", "default 100/h")
	for name, options := range protocols {
		c := connect.NewClient[text, text](client, at+get, options...)
		for i := range 3 {
			r := connect.NewRequest(&text{Value: "a"})
			r.Header().Set("Session", name)
			answer, err := c.CallUnary(t.Context(), r)
			if i < 2 {
				if err != nil || answer.Msg.GetValue() != "a" {
					t.Errorf("%s, call %d: %v, %v", name, i, answer, err)
				}
				continue
			}
			var refused *connect.Error
			if !errors.As(err, &refused) || refused.Code() != connect.CodeResourceExhausted ||
				!strings.Contains(refused.Message(), "2 per 1h") || len(refused.Details()) != 1 {
				t.Fatalf("%s, call %d: %v", name, i, err)
			}
			detail, err := refused.Details()[0].Value()
			if retry, ok := detail.(*errdetails.RetryInfo); err != nil || !ok ||
				retry.GetRetryDelay().AsDuration().Round(time.Minute) != 30*time.Minute {
				t.Errorf("%s: %v, %v", name, detail, err)
			}
		}
	}
	// All protocols together, as one who is logged in.
	served := 0
	for range 3 {
		for _, options := range protocols {
			r := connect.NewRequest(&text{Value: "a"})
			r.Header().Set("Session", "ann")
			if _, err := connect.NewClient[text, text](client, at+get, options...).CallUnary(t.Context(),
				r); err == nil {
				served++
			}
		}
	}
	if served != 2 {
		t.Errorf("%d calls were served by four protocols, want 2", served)
	}
	_, err := connect.NewClient[text, text](client, at+"/shop.v1.Books/Drop").CallUnary(t.Context(),
		connect.NewRequest(&text{}))
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("a method that is none: %v", err)
	}
}

// Messages of a stream count, by their length if the program says so.
func TestMessages(t *testing.T) {
	for want, o := range map[int]connectlimit.MessageOptions{
		4: {}, 2: {Cost: func(_ context.Context, method string, message any) int64 {
			if m, ok := message.(*text); ok && method == chat {
				return int64(len(m.GetValue()))
			}
			return 0
		}},
	} {
		client, at := start(t, o, "POST "+chat+" 4/h", "default 100/h")
		for _, name := range []string{"gRPC", "Connect"} {
			stream := connect.NewClient[text, text](client, at+chat, protocols[name]...).CallBidiStream(t.Context())
			stream.RequestHeader().Set("Session", name)
			n := 0
			var err error
			for range 9 {
				if err = stream.Send(&text{Value: "ab"}); err != nil {
					break
				}
				if _, err = stream.Receive(); err != nil {
					break
				}
				n++
			}
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
			if connect.CodeOf(err) != connect.CodeResourceExhausted || n != want {
				t.Errorf("%s: %v after %d messages, want resource_exhausted after %d", name, err, n, want)
			}
		}
	}
}

func TestEndpointsNamesFaults(t *testing.T) {
	_, err := connectlimit.Endpoints("shop.v1.Books", "shop.v1.Book", "google.protobuf.StringValue")
	if err == nil || !strings.Contains(err.Error(), `"shop.v1.Book"`) ||
		!strings.Contains(err.Error(), `"google.protobuf.StringValue"`) {
		t.Errorf("%v, want both", err)
	}
}

// The calls that all doors answer are refused by statuses of Connect.
func TestConforms(t *testing.T) {
	router := routertest.Router{Name: "connect", Statuses: map[int]int{404: 501, 405: 501}, Start: program}
	router.Conforms(t)
}

// program serves what it is opened with.
func program([]string, func(*http.Request) *identity.User) routertest.Program {
	var limited http.Handler
	return routertest.Program{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(w, r) }),
		Open: func(o headgate.Options) (*headgate.Limiter, error) {
			limiter, err := headgate.New(o)
			if err != nil {
				return nil, err
			}
			ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			limited, err = connectlimit.Handler(limiter, ok, httplimit.Options{Methods: o.Endpoints.Allowed})
			return limiter, err
		},
	}
}
