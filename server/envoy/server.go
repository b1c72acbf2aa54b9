package envoy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	quotas "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate-io/headgate/serve/decisions"
)

// Bounds of what one who asks may hold: a message has the whole head of a request
// in it, or a report of all buckets of an Envoy.
const (
	maxMessage = 4 << 20
	maxStreams = 1000 // under way on one connection
)

// workers is how many goroutines are kept for calls. A call that finds none of them idle has one started, which grows
// its stack first: that is a fifth of what a call costs. An Envoy has some dozens of calls under way when it is busy.
const workers = 128

// Server is a gRPC server for those who may ask.
type Server struct {
	grpc    *grpc.Server
	options decisions.Options
	most    int
	leaving chan struct{} // closed when streams are to end
	leave   sync.Once
}

// New returns a Server for the filters ext_authz and, unless d is nil, ratelimit
// and rate_limit_quota, with health and reflection beside, or an error that names every option at fault.
// Most is how many connections it holds at once: the rest wait.
func New(o decisions.Options, d *Descriptors, most int) (*Server, error) {
	answers, err := decisions.NewAnswers(o)
	if err != nil {
		return nil, err
	}
	if o.Failed == nil {
		o.Failed = func(decisions.Fault, error) {}
	}
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(workers),
		grpc.StaticStreamWindowSize(256<<10), grpc.StaticConnWindowSize(1<<20), // else they are estimated, by pings
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(32<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
	)
	auth.RegisterAuthorizationServer(s, &authorization{answers: answers, failed: o.Failed})
	leaving := make(chan struct{})
	if d != nil {
		s.RegisterService(&rateLimitService, &rateLimiting{Descriptors: *d, failed: o.Failed})
		if d.Quotas != nil {
			quotas.RegisterRateLimitQuotaServiceServer(s,
				&quotaService{book: d.Quotas, failed: o.Failed, leaving: leaving})
		}
	}
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	return &Server{grpc: s, options: o, most: most, leaving: leaving}, nil
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(netutil.LimitListener(&listener{l, s.options}, s.most))
}

// Shutdown ends streams, and lets the calls under way finish, or cuts them off when
// ctx ends, which is its error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave.Do(func() { close(s.leaving) })
	done := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}

// recovered, deferred, answers a call that panics with an error, as net/http answers a
// request: one mistake is not the end of the process, and is no yes.
func recovered(failed func(decisions.Fault, error), err *error) {
	if v := recover(); v != nil {
		failed(decisions.Panicked, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		*err = grpcstatus.Error(codes.Unavailable, "the decision cannot be made")
	}
}

// listener leaves out the connections of those who may not ask.
type listener struct {
	net.Listener
	options decisions.Options
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil && l.options.Trusted(from.Addr()) {
			return c, nil
		}
		l.options.Failed(decisions.Untrusted, fmt.Errorf("%v may not ask", c.RemoteAddr()))
		_ = c.Close()
	}
}
