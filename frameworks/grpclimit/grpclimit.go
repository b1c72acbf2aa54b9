// Package grpclimit is the door for servers made with grpc-go
// (google.golang.org/grpc): interceptors that ask a Limiter about every call,
// and about every message of a stream if that is wanted.
//
//	limits := grpclimit.New(grpclimit.Options{User: who})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(logIn, limits.Unary),
//		grpc.ChainStreamInterceptor(logInStream, limits.Stream))
//	shop.RegisterBooksServer(server, books)
//	limiter, err := limits.Open(server, headgate.Options{Rules: []string{
//		"POST /shop.v1.Books/GetBook 20/s", "default 100/s",
//	}})
//
// A call that is refused ends with a status: RESOURCE_EXHAUSTED over a limit, with
// google.rpc.RetryInfo, google.rpc.QuotaFailure and the trailer
// grpc-retry-pushback-ms, which clients of gRPC obey when they retry by themselves
// (gRFC A6). UNAVAILABLE says that the limits could not be checked. grpc-go answers
// calls of methods that it does not have before any interceptor.
package grpclimit

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/refusal"
)

// Options configures Interceptors. The zero value is a safe default.
type Options struct {
	// User tells who interceptors before these have logged in, nil for nobody.
	// Default nil: headgate.Options.Identities tells callers apart, by the call's
	// metadata, address and certificate.
	User func(context.Context) *identity.User

	// Cost tells what a call or a message costs, in tokens; 0 is what the endpoint
	// costs. The message is nil at the opening of a stream. Default 0.
	Cost func(ctx context.Context, method string, message any) int64

	// Messages makes each message that a client sends on a stream count like a call.
	// The first one is counted with the opening. Default: a stream is one call,
	// however long.
	Messages bool

	// MaxWait is the longest that rules with algorithm leaky_bucket may hold a call
	// or a message back; on a stream that is back-pressure, and the client feels it
	// once its window is full. Default 10 s; below 0 nobody waits.
	MaxWait time.Duration

	// Decided, if set, is told of each decision, before the call goes on or ends.
	Decided func(ctx context.Context, method string, d *headgate.Decision)
}

// Interceptors ask about calls. Until they are open they refuse them as UNAVAILABLE.
type Interceptors struct {
	options Options
	limiter atomic.Pointer[headgate.Limiter]
}

// New returns Interceptors that are to be opened once the services are registered.
func New(o Options) *Interceptors {
	if o.User == nil {
		o.User = func(context.Context) *identity.User { return nil }
	}
	if o.Cost == nil {
		o.Cost = func(context.Context, string, any) int64 { return 0 }
	}
	if o.MaxWait == 0 {
		o.MaxWait = 10 * time.Second
	}
	return &Interceptors{options: o}
}

// Open makes a Limiter of o, with the server's methods for endpoints if o has
// none, and has it asked from now on.
func (i *Interceptors) Open(server *grpc.Server, o headgate.Options) (*headgate.Limiter, error) {
	if o.Endpoints == nil {
		table, err := Endpoints(server)
		if err != nil {
			return nil, err
		}
		o.Endpoints = table
	}
	limiter, err := headgate.New(o)
	if err != nil {
		return nil, err
	}
	i.limiter.Store(limiter)
	return limiter, nil
}

// Endpoints returns the table of the server's methods: gRPC sends
// POST /package.Service/Method.
func Endpoints(server *grpc.Server) (*endpoint.Table, error) {
	var templates []endpoint.Template
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			t, err := endpoint.ParseTemplate("POST /" + service + "/" + method.Name)
			if err != nil {
				return nil, err
			}
			templates = append(templates, t)
		}
	}
	return endpoint.Compile(templates, endpoint.Profile{})
}

// Unary is the grpc.UnaryServerInterceptor. It belongs behind the one that logs in,
// and before all others.
func (i *Interceptors) Unary(
	ctx context.Context, message any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if err := i.admit(ctx, info.FullMethod, message, nil, trailerOf(ctx)); err != nil {
		return nil, err
	}
	return next(ctx, message)
}

// Stream is the grpc.StreamServerInterceptor. It belongs behind the one that logs
// in, and before all others.
func (i *Interceptors) Stream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	proven := new(identity.Proven) // what is good once is so for the whole call
	if err := i.admit(stream.Context(), info.FullMethod, nil, proven, stream.SetTrailer); err != nil {
		return err
	}
	if i.options.Messages && info.IsClientStream {
		stream = &counted{ServerStream: stream, by: i, method: info.FullMethod, proven: proven}
	}
	return next(server, stream)
}

// counted is a stream whose messages count.
type counted struct {
	grpc.ServerStream
	by     *Interceptors
	method string
	proven *identity.Proven
	more   bool // the first message has come
}

// RecvMsg is for one goroutine at a time, as that of grpc.ServerStream is.
func (s *counted) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if first := !s.more; first {
		s.more = true
		return nil
	}
	return s.by.admit(s.Context(), s.method, message, s.proven, s.SetTrailer)
}

func trailerOf(ctx context.Context) func(metadata.MD) {
	return func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) } // it fails where there is no call left to tell
}

// admit returns nil for what may pass, and else the status to end the call with.
func (i *Interceptors) admit(ctx context.Context, method string, message any, proven *identity.Proven,
	trailer func(metadata.MD)) error {
	limiter := i.limiter.Load()
	if limiter == nil {
		return refuse(&headgate.Decision{Reason: headgate.NoPolicies}, trailer)
	}
	request := headgate.Request{
		Method: "POST", Target: method, User: i.options.User(ctx),
		Cost: i.options.Cost(ctx, method, message), MaxWait: i.options.MaxWait, Proven: proven,
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		request.Header = fields(md)
	}
	if p, ok := peer.FromContext(ctx); ok {
		request.Peer, request.Certificate = address(p.Addr), certificate(p.AuthInfo)
	}
	d, err := limiter.Wait(ctx, request)
	if i.options.Decided != nil {
		i.options.Decided(ctx, method, &d)
	}
	switch {
	case err != nil: // the caller left, or its deadline passed
		return status.FromContextError(err).Err()
	case !d.Allowed:
		return refuse(&d, trailer)
	}
	return nil
}

// fields are a call's metadata as identity reads fields.
type fields metadata.MD

func (f fields) Values(name string) []string { return metadata.MD(f).Get(name) }

// address is the zero Addr for what has none, such as a Unix socket.
func address(a net.Addr) netip.Addr {
	if a, ok := a.(*net.TCPAddr); ok {
		return a.AddrPort().Addr()
	}
	return netip.Addr{}
}

// certificate returns the client's certificate, if the handshake verified it.
func certificate(info credentials.AuthInfo) *x509.Certificate {
	if info, ok := info.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
		return info.State.VerifiedChains[0][0]
	}
	return nil
}

const pushback = "grpc-retry-pushback-ms" // gRFC A6

// refuse makes the status of a refusal, and tells clients when to retry.
func refuse(d *headgate.Decision, trailer func(metadata.MD)) error {
	why := refusal.Of(d)
	s := status.New(codes.Code(why.Code), why.Detail)
	switch {
	case why.RetryAfter > 0:
		ms := (why.RetryAfter-1)/time.Millisecond + 1 // rounded up
		trailer(metadata.Pairs(pushback, strconv.FormatInt(int64(ms), 10)))
	case codes.Code(why.Code) == codes.ResourceExhausted:
		trailer(metadata.Pairs(pushback, "-1")) // never
	}
	if why.RetryAfter > 0 {
		retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(why.RetryAfter)}
		if detailed, err := s.WithDetails(retry); err == nil {
			s = detailed
		}
	}
	if len(why.Violated) > 0 {
		failure := &errdetails.QuotaFailure{}
		for _, name := range why.Violated {
			violation := &errdetails.QuotaFailure_Violation{Subject: name, Description: why.Detail}
			failure.Violations = append(failure.Violations, violation)
		}
		if detailed, err := s.WithDetails(failure); err == nil {
			s = detailed
		}
	}
	return s.Err()
}
