// Package connectlimit is the door for servers made with connect
// (connectrpc.com/connect): a handler that asks a Limiter about every call,
// whether it comes by the protocol of Connect, gRPC or gRPC-Web, and an
// interceptor for the messages of streams.
//
//	endpoints, err := connectlimit.Endpoints("shop.v1.Books")
//	limiter, err := headgate.New(headgate.Options{Endpoints: endpoints, Rules: []string{"default 20/s"}})
//	limited, err := connectlimit.Handler(limiter, mux, httplimit.Options{User: who})
//
// A call that is refused ends with an error in the client's protocol:
// resource_exhausted over a limit, with google.rpc.RetryInfo, and Retry-After
// where the protocol lets a client see it.
package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/refusal"
)

// Handler returns next, a mux of connect's handlers, behind limiter. A call by GET,
// which Connect has for methods without side effects, is charged as the POST that
// it stands for. Of the options, Reserve and logins that count failures do not go
// with it.
func Handler(limiter *headgate.Limiter, next http.Handler, o httplimit.Options) (http.Handler, error) {
	if o.Refuse == nil {
		errors := connect.NewErrorWriter()
		o.Refuse = func(w http.ResponseWriter, r *http.Request, d *headgate.Decision) {
			_ = errors.Write(w, r, refuse(d)) // the client is gone if it fails
		}
	}
	var gate httplimit.Gate
	if err := gate.Open(limiter, o); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charged := r
		if r.Method == http.MethodGet {
			post := *r
			post.Method, charged = http.MethodPost, &post
		}
		if gate.Admit(w, charged, nil) {
			call := &asked{limiter, &gate, charged}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askedKey{}, call)))
		}
	}), nil
}

// Endpoints returns the table of the methods of services, such as "shop.v1.Books",
// whose generated code is linked into the program.
func Endpoints(services ...string) (*endpoint.Table, error) {
	var templates []endpoint.Template
	var faults []error
	for _, name := range services {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		service, ok := found.(protoreflect.ServiceDescriptor)
		if err != nil || !ok {
			const want = "one whose generated code is linked into the program"
			faults = append(faults, fmt.Errorf("service is %q, want %s", name, want))
			continue
		}
		for i := range service.Methods().Len() {
			t, err := endpoint.ParseTemplate("POST /" + name + "/" + string(service.Methods().Get(i).Name()))
			if err != nil {
				faults = append(faults, err)
			}
			templates = append(templates, t)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return endpoint.Compile(templates, endpoint.Strictest())
}

// asked is what Handler asked about, for the messages of a call.
type asked struct {
	limiter *headgate.Limiter
	gate    *httplimit.Gate
	charged *http.Request
}

type askedKey struct{}

// MessageOptions configures Messages. The zero value is a safe default.
type MessageOptions struct {
	// Cost tells what a message costs, in tokens; 0 is what the endpoint costs.
	// Default 0.
	Cost func(ctx context.Context, method string, message any) int64
}

// Messages returns an interceptor that makes each message that a client sends on a
// stream count like a call, for handlers behind Handler. The first one is counted
// with the call. Under rules with algorithm leaky_bucket messages are held back,
// which the client feels once its window is full.
func Messages(o MessageOptions) connect.Interceptor {
	if o.Cost == nil {
		o.Cost = func(context.Context, string, any) int64 { return 0 }
	}
	return &messages{o}
}

var errOutside = errors.New("messages are counted for a handler that is not behind connectlimit.Handler")

type messages struct{ options MessageOptions }

func (m *messages) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (m *messages) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (m *messages) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if conn.Spec().StreamType&connect.StreamTypeClient == 0 {
			return next(ctx, conn)
		}
		call, ok := ctx.Value(askedKey{}).(*asked)
		if !ok {
			return connect.NewError(connect.CodeInternal, errOutside)
		}
		return next(ctx, &counted{
			StreamingHandlerConn: conn, by: m, ctx: ctx,
			limiter: call.limiter, request: call.gate.Request(call.charged),
		})
	}
}

// counted is a stream whose messages count.
type counted struct {
	connect.StreamingHandlerConn
	by      *messages
	ctx     context.Context
	limiter *headgate.Limiter
	request headgate.Request // that was asked about when the stream was opened
	more    bool             // the first message has come
}

// Receive is for one goroutine at a time, as that of connect.StreamingHandlerConn is.
func (c *counted) Receive(message any) error {
	if err := c.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	if first := !c.more; first {
		c.more = true
		return nil
	}
	request := c.request
	request.Cost = c.by.options.Cost(c.ctx, c.Spec().Procedure, message)
	d, err := c.limiter.Wait(c.ctx, request)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	case err != nil:
		return connect.NewError(connect.CodeCanceled, err)
	case !d.Allowed:
		return refuse(&d)
	}
	return nil
}

// refuse makes the error of a refusal.
func refuse(d *headgate.Decision) *connect.Error {
	why := refusal.Of(d)
	e := connect.NewError(connect.Code(why.Code), errors.New(why.Detail))
	if why.RetryAfter > 0 {
		retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(why.RetryAfter)}
		if detail, err := connect.NewErrorDetail(retry); err == nil {
			e.AddDetail(detail)
		}
	}
	return e
}
