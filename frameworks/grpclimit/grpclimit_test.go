package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	proto "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/frameworks/grpclimit"
	"github.com/headgate-io/headgate/identity"
)

// who is the session of the program: a field that it believes.
func who(ctx context.Context) *identity.User {
	if names := metadata.ValueFromIncomingContext(ctx, "session"); len(names) > 0 {
		return &identity.User{ID: names[0]}
	}
	return nil
}

func as(name string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "session", name)
}

type program struct {
	proto.TestServiceClient
	conn   *grpc.ClientConn
	server *grpc.Server
	limits *grpclimit.Interceptors
}

func start(t *testing.T, o grpclimit.Options, dial ...grpc.DialOption) *program {
	t.Helper()
	o.User = who
	p := &program{limits: grpclimit.New(o)}
	p.server = grpc.NewServer(grpc.ChainUnaryInterceptor(p.limits.Unary), grpc.ChainStreamInterceptor(p.limits.Stream))
	proto.RegisterTestServiceServer(p.server, interop.NewTestServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.server.Serve(listener) }()
	t.Cleanup(p.server.Stop)
	if p.conn, err = grpc.NewClient(listener.Addr().String(),
		append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.conn.Close() })
	p.TestServiceClient = proto.NewTestServiceClient(p.conn)
	return p
}

func (p *program) open(t *testing.T, rules ...string) {
	t.Helper()
	if _, err := p.limits.Open(p.server, headgate.Options{Rules: rules}); err != nil {
		t.Fatal(err)
	}
}

func (p *program) empty(ctx context.Context) (trailer metadata.MD, err error) {
	_, err = p.EmptyCall(ctx, &proto.Empty{}, grpc.Trailer(&trailer))
	return trailer, err
}

const method = "/grpc.testing.TestService/"

// Each user has a budget, each method its rule, and a refusal says when to come back in every way that gRPC has.
func TestCalls(t *testing.T) {
	p := start(t, grpclimit.Options{})
	if trailer, err := p.empty(as("ann")); status.Code(err) != codes.Unavailable ||
		trailer.Get("grpc-retry-pushback-ms")[0] != "5000" {
		t.Errorf("before they are open: %v with %v", err, trailer)
	}
	p.open(t, "POST "+method+"EmptyCall 2/h", "default 1/h")
	for _, user := range []string{"ann", "bob"} {
		for i := range 3 {
			trailer, err := p.empty(as(user))
			if i < 2 {
				if err != nil || len(trailer) > 0 {
					t.Errorf("call %d of %s: %v with %v", i, user, err, trailer)
				}
				continue
			}
			s := status.Convert(err)
			var delay time.Duration
			var violations []*errdetails.QuotaFailure_Violation
			for _, d := range s.Details() {
				switch d := d.(type) {
				case *errdetails.RetryInfo:
					delay = d.GetRetryDelay().AsDuration()
				case *errdetails.QuotaFailure:
					violations = d.GetViolations()
				}
			}
			if s.Code() != codes.ResourceExhausted || delay < 29*time.Minute || delay > 30*time.Minute ||
				len(violations) != 1 || violations[0].GetSubject() != "POST "+method+"EmptyCall" ||
				!strings.Contains(s.Message(), "2 per 1h") || len(trailer.Get("grpc-retry-pushback-ms")) != 1 ||
				!strings.HasPrefix(trailer.Get("grpc-retry-pushback-ms")[0], "1") {
				t.Errorf("call %d of %s: %v, after %v, %v, with %v", i, user, err, delay, violations, trailer)
			}
		}
		if _, err := p.UnaryCall(as(user), &proto.SimpleRequest{}); err != nil {
			t.Errorf("another method of %s: %v", user, err)
		}
	}
	if _, err := p.UnimplementedCall(as("ann"), &proto.Empty{}); status.Code(err) != codes.ResourceExhausted &&
		status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that the service lacks: %v", err)
	}
}

// Of a stream the opening counts, or every message, and messages by size if the program says so.
func TestStreams(t *testing.T) {
	for _, c := range []struct {
		name            string
		options         grpclimit.Options
		opened, answers int // how many of 4 streams, and of 10 messages on the first
	}{
		{"by the opening", grpclimit.Options{}, 3, 10},
		{"by messages", grpclimit.Options{Messages: true}, 1, 3},
		{"by bytes", grpclimit.Options{Messages: true, Cost: func(_ context.Context, _ string, message any) int64 {
			if m, ok := message.(*proto.StreamingOutputCallRequest); ok {
				return int64(len(m.GetPayload().GetBody()))
			}
			return 1
		}}, 1, 2},
	} {
		p := start(t, c.options)
		p.open(t, "POST "+method+"FullDuplexCall 3/h", "default 100/h")
		opened, answers := 0, 0
		for i := range 4 {
			stream, err := p.FullDuplexCall(as("ann"))
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				_ = stream.Send(&proto.StreamingOutputCallRequest{
					ResponseParameters: []*proto.ResponseParameters{{Size: 1}},
					Payload:            &proto.Payload{Body: []byte("ab")},
				})
			}
			_ = stream.CloseSend()
			n := 0
			for err == nil {
				if _, err = stream.Recv(); err == nil {
					n++
				}
			}
			if !errors.Is(err, io.EOF) && status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: %v", c.name, err)
			}
			if opened += min(n, 1); i == 0 {
				answers = n
			}
		}
		if opened != c.opened || answers != c.answers {
			t.Errorf("%s: %d streams were opened and %d messages answered, want %d and %d", c.name, opened, answers,
				c.opened, c.answers)
		}
	}
}

// A client that retries by itself comes when the trailer says: once, and is served.
func TestClientsObeyPushback(t *testing.T) {
	p := start(t, grpclimit.Options{},
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
		"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
	p.open(t, "default 2/s burst 1")
	for range 3 {
		if _, err := p.empty(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// away cannot be asked.
type away struct{ bucket.Store }

func (away) TryConsume(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return false, errors.New("away")
}

// A limiter that cannot tell is UNAVAILABLE and says no more; a cost that no bucket holds must not be retried.
func TestRefusals(t *testing.T) {
	p := start(t, grpclimit.Options{Cost: func(context.Context, string, any) int64 { return 9 }})
	p.open(t, "default 1/s burst 5")
	if trailer, err := p.empty(as("ann")); status.Code(err) != codes.ResourceExhausted ||
		trailer.Get("grpc-retry-pushback-ms")[0] != "-1" {
		t.Errorf("a cost above the burst: %v with %v", err, trailer)
	}
	p = start(t, grpclimit.Options{})
	store, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.limits.Open(p.server, headgate.Options{Rules: []string{"default 1/s"},
		Buckets: away{store}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.empty(as("ann")); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "away") {
		t.Errorf("without a store: %v", err)
	}
}
