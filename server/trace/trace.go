// Package trace tells a collector of OpenTelemetry about some requests: a span for the request, and one in it for each
// decision about it.
//
//	request ──▶ Serve: sampled? ──no──▶ on, untouched
//	                        └─yes──▶ span, traceparent for the API ──▶ Check ──▶ span of the decision ──▶ queue ──▶ collector
//
// It is decided at the head, before anything else is done: whoever sent the request has decided if
// it says that its trace is not sampled, or if it is a trusted proxy; else the draw is. At most
// Options.PerSecond requests are sampled in a second, so that nobody makes tracing costly by asking
// for it. Spans hold templates, rules and verdicts; callers by a hash; no path, query, field or
// credential.
package trace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
)

// Options configures a Tracer. Endpoint, OneIn and Caller are required.
type Options struct {
	// Endpoint is the URL that spans are sent to by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces.
	Endpoint string

	// Headers go with them.
	Headers map[string]string

	// OneIn has one request in so many sampled, 1 or more.
	OneIn int

	// PerSecond is how many requests are sampled in a second at most. Default 100.
	PerSecond int

	// Caller names a principal by a hash that says nothing of who it is.
	Caller func(*identity.Principal) string

	// Trusted reports whether a peer may have a request sampled. Nil: none may.
	Trusted func(netip.Addr) bool

	// Failed is told when spans could not be sent. Nil: nobody is.
	Failed func(error)

	Version string // of the program

	Now func() time.Time // default time.Now
}

// Tracer samples requests and sends what it learned of them. It is safe for concurrent use.
type Tracer struct {
	o        Options
	provider *sdk.TracerProvider
	tracer   trace.Tracer

	second  atomic.Int64 // that sampled counts in
	sampled atomic.Int64
	spans   *counting
}

// Stats is what became of spans.
type Stats struct {
	Sent, Lost uint64
}

// New returns a Tracer that sends in the background, until Close.
func New(ctx context.Context, o Options) (*Tracer, error) {
	var errs []error
	at, err := url.Parse(o.Endpoint)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		errs = append(errs, errors.New("Endpoint is no URL such as http://127.0.0.1:4318/v1/traces"))
	}
	if o.OneIn < 1 {
		errs = append(errs, fmt.Errorf("OneIn is %d, want 1 or more", o.OneIn))
	}
	if o.PerSecond == 0 {
		o.PerSecond = 100
	}
	if o.PerSecond < 1 {
		errs = append(errs, fmt.Errorf("PerSecond is %d, want 1 or more", o.PerSecond))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if o.Trusted == nil {
		o.Trusted = func(netip.Addr) bool { return false }
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint),
		otlptracehttp.WithHeaders(o.Headers))
	if err != nil {
		return nil, err
	}
	t := &Tracer{o: o, spans: &counting{SpanExporter: exporter, failed: o.Failed}}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(t.spans), sdk.WithSampler(sdk.AlwaysSample()), // what is not sampled makes no span
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "headgate"),
			attribute.String("service.version", o.Version))),
	)
	t.tracer = t.provider.Tracer("github.com/headgate-io/headgate/server/trace")
	return t, nil
}

// Close sends what is left, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Stats reports what became of spans since New.
func (t *Tracer) Stats() Stats { return Stats{Sent: t.spans.sent.Load(), Lost: t.spans.lost.Load()} }

const field = "Traceparent" // W3C Trace Context

// Serve serves a request by next, and some traced. All others go on as they came, their trace context too.
func (t *Tracer) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	parent := parentOf(r)
	if !t.samples(parent, r) {
		next.ServeHTTP(w, r)
		return
	}
	ctx := r.Context()
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := t.tracer.Start(
		ctx,
		"request",
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method(r.Method))),
	)
	defer span.End()
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header)) // for the API
	next.ServeHTTP(w, r)
}

// parentOf is the span that a request is part of; it is not valid if there is none, or several.
func parentOf(r *http.Request) trace.SpanContext {
	if len(r.Header[field]) != 1 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.HeaderCarrier(r.Header)))
}

func (t *Tracer) samples(parent trace.SpanContext, r *http.Request) bool {
	if parent.IsValid() && !parent.IsSampled() {
		return false // a trace with holes is none
	}
	if !t.drawn() && !(parent.IsSampled() && t.trusts(r)) {
		return false
	}
	return t.hasRoom()
}

func (t *Tracer) drawn() bool { return t.o.OneIn == 1 || rand.IntN(t.o.OneIn) == 0 }

func (t *Tracer) trusts(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && t.o.Trusted(peer.Addr().Unmap())
}

// hasRoom takes a place in this second, if there is one.
func (t *Tracer) hasRoom() bool {
	now := t.o.Now().Unix()
	if before := t.second.Load(); before != now && t.second.CompareAndSwap(before, now) {
		t.sampled.Store(0)
	}
	return t.sampled.Add(1) <= int64(t.o.PerSecond)
}

// Time asks for the times of decisions about requests that are sampled. Each further decision about what comes on the
// connection of one takes a place of its own in its second: one connection brings any number of messages. It fits
// headgate.Options.Time.
func (t *Tracer) Time(ctx context.Context, r *headgate.Request) *headgate.Stages {
	if !trace.SpanFromContext(ctx).IsRecording() || (r.Message || r.UnderWay) && !t.hasRoom() {
		return nil
	}
	return &headgate.Stages{Note: ctx}
}

// Observe tells of a decision that Time asked for the times of. It fits headgate.Options.Observe.
func (t *Tracer) Observe(r *headgate.Request, d *headgate.Decision) {
	if d.Stages == nil {
		return
	}
	ctx, ok := d.Stages.Note.(context.Context)
	if !ok {
		return
	}
	now := time.Now()
	attributes := t.attributes(d)
	_, span := t.tracer.Start(ctx, "decision", trace.WithTimestamp(now.Add(-d.Stages.Total())),
		trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(now))
	if r.Message {
		return // the request is that which opened the connection
	}
	request := trace.SpanFromContext(ctx)
	if route, ok := routeOf(d); ok {
		request.SetName(method(r.Method) + " " + route)
		request.SetAttributes(attribute.String("http.route", route))
	}
}

// routeOf is the path of the endpoint, without its method.
func routeOf(d *headgate.Decision) (string, bool) {
	if d.Endpoint.Status != endpoint.Known {
		return "", false
	}
	return headgate.Place(d.Template()).Path, true
}

func (t *Tracer) attributes(d *headgate.Decision) []attribute.KeyValue {
	verdict, at := "denied", "UNKNOWN"
	if d.Allowed {
		verdict = "allowed"
	}
	if d.Endpoint.Status == endpoint.Known {
		at = d.Template().String()
	}
	list := []attribute.KeyValue{
		attribute.String("headgate.verdict", verdict), attribute.String("headgate.reason", d.Reason.String()),
		attribute.String("headgate.endpoint", at),
		attribute.Int64("headgate.cost", d.Cost),
	}
	if v, ok := d.Binding(); ok {
		list = append(list, attribute.String("headgate.rule", d.Policies().Rule(v.Rule).Title()),
			attribute.Int64("headgate.remaining", v.Outcome.Remaining))
	}
	if d.RetryAfter > 0 {
		list = append(list, attribute.Float64("headgate.retry_after_seconds", d.RetryAfter.Seconds()))
	}
	if who := &d.Principal; who.Prefix.IsValid() || who.ID != "" {
		list = append(list, attribute.String("headgate.caller", t.o.Caller(who)),
			attribute.String("headgate.caller.kind", who.Kind.String()))
	}
	s := d.Stages
	for _, stage := range []struct {
		name string
		took time.Duration
	}{{"endpoint", s.Endpoint}, {"identity", s.Identity}, {"policy", s.Policy}, {"bucket", s.Bucket}} {
		if stage.took > 0 {
			list = append(list, attribute.Float64("headgate.stage."+stage.name+"_seconds", stage.took.Seconds()))
		}
	}
	return list
}

// method is a request's method, or what OpenTelemetry writes of one that a client has made up.
func method(name string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}, name) {
		return name
	}
	return "_OTHER"
}

// counting counts spans, and keeps errors from the library's global handler.
type counting struct {
	sdk.SpanExporter
	failed     func(error)
	sent, lost atomic.Uint64
}

func (c *counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.lost.Add(uint64(len(spans)))
		c.failed(err)
		return nil
	}
	c.sent.Add(uint64(len(spans)))
	return nil
}
