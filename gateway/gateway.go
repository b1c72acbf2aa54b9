// Package gateway is a reverse proxy that limits: httplimit in front of a round
// trip to the API by package upstream. What that does not speak, HTTP/2 to the API
// and connections that become WebSockets, goes by httputil.ReverseProxy.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/internal/problem"
)

// Options configures a gateway. Limiter and Upstream are required; every other
// zero value is a safe default.
type Options struct {
	Limiter *headgate.Limiter

	// Upstream is the base URL of the API behind the gateway: scheme http or
	// https, host, optional base path.
	Upstream *url.URL

	// Limit configures the answers, and by Limit.Reserve whether requests pay
	// what the API says they cost.
	Limit httplimit.Options

	// TrustedProxy says whether the forwarding fields of a peer are passed on
	// and added to. Those of anyone else are dropped, so that the API never
	// sees what a client made up. Default: nobody is trusted.
	TrustedProxy func(netip.Addr) bool

	// ForwardedHeader is the one field that trusted proxies manage, and so the
	// one of theirs that is passed on: X-Forwarded-For (default), with
	// X-Forwarded-Host and -Proto, or Forwarded (RFC 7239). The other one
	// comes from the client unseen.
	ForwardedHeader string

	// ClientHeader is the field in which trusted proxies name the client, such
	// as CF-Connecting-IP, if they do. Theirs is passed on if it stands there
	// once; anyone else's is dropped.
	ClientHeader string

	// KeyHeader is the field in which API keys stand, if any. Fields that some
	// servers take for it, such as X_Api_Key, are dropped: a key in one of those
	// would be believed and not counted.
	KeyHeader string

	// PassOverrides names fields that pass although they ask the API for another
	// method or target than those of the request line, such as
	// X-HTTP-Method-Override: the API then serves what was not charged. See
	// Overrides. Default none.
	PassOverrides []string

	// WebSockets names, by the template of an endpoint, the connections whose messages
	// count: "GET /v1/chat". Rules for its messages are for the endpoints "WS-SEND
	// /v1/chat" and "WS-RECEIVE /v1/chat" (WebSocket.MessageEndpoints), which the
	// Limiter's table has to have: a message of none ends its connection. Default none:
	// opening one counts, and nothing after it.
	WebSockets map[string]WebSocket

	// Streams names, by the template of an endpoint, the gRPC calls whose messages count:
	// "POST /shop.v1.Books/Watch". Rules for their messages are for the endpoints
	// "GRPC-SEND /shop.v1.Books/Watch" and "GRPC-RECEIVE …" (Stream.MessageEndpoints),
	// which the Limiter's table has to have. Default none: a call counts, and nothing in it.
	Streams map[string]Stream

	// Tunnels keeps the WebSockets that are open, so that they can be told when the
	// process ends. Default nil: they are not told.
	Tunnels *Tunnels

	// Outgoing, if set, is given every request that is about to be sent to the
	// API, and may change its header and query: to take credentials out.
	Outgoing func(*http.Request)

	// UpstreamTimeout bounds the wait for the API's response header; bodies
	// may stream for as long as they like. Default 60 s. A request over it is
	// answered with 504.
	UpstreamTimeout time.Duration

	// MaxUpstream bounds the connections to the API; requests beyond it wait for
	// one. Default 0: there is no bound.
	MaxUpstream int

	// Pool carries requests to the servers of the API. Default one with the
	// server that Upstream names, unless Transport is set.
	Pool *upstream.Pool

	// Transport carries all requests to the API if there is no Pool, and else what
	// that does not speak. The default keeps connections open, never asks a
	// proxy, and connects to the servers of the Pool.
	Transport http.RoundTripper

	// Log receives failures of the API, at most one a second. Default
	// slog.Default.
	Log *slog.Logger

	// Failed, if set, is told the status of every answer the gateway gives in
	// the API's place: 502 or 504, and 500 where it would have asked for another
	// target than the one that was charged, which would be a fault of its own.
	Failed func(status int)

	// Took, if set, is told what the API took to begin an answer, or not to give one, by the template of the endpoint.
	// It is not told of requests whose sender has a say in that: those whose body was on its way, or who left; nor of
	// gRPC, nor of connections that become another protocol. Default nil: nothing is timed.
	Took func(endpoint string, took time.Duration)

	// Times, if set, reports whether Took has a use for it now: to find the endpoint again costs more than to ask.
	Times func() bool
}

// New returns the gateway, or an error that names every field at fault.
func New(o Options) (http.Handler, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("gateway options: %w", err)
	}
	if o.TrustedProxy == nil {
		o.TrustedProxy = func(netip.Addr) bool { return false }
	}
	if o.ForwardedHeader == "" {
		o.ForwardedHeader = xForwardedFor
	}
	o.ClientHeader = http.CanonicalHeaderKey(o.ClientHeader)
	if o.UpstreamTimeout == 0 {
		o.UpstreamTimeout = 60 * time.Second
	}
	if o.Pool == nil && o.Transport == nil {
		pool, err := NewPool(o.Upstream, upstream.Options{HeaderTimeout: o.UpstreamTimeout, MaxConns: o.MaxUpstream})
		if err != nil {
			return nil, fmt.Errorf("gateway options: %w", err)
		}
		o.Pool = pool
	}
	if o.Transport == nil {
		transport := NewTransport(o.UpstreamTimeout, o.MaxUpstream)
		transport.DialContext = o.Pool.DialContext
		o.Transport = transport
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Failed == nil {
		o.Failed = func(int) {}
	}
	if o.Limit.Peer == nil {
		o.Limit.Peer = httplimit.Peer
	}
	if o.Tunnels == nil {
		o.Tunnels = new(Tunnels)
	}
	g := &gateway{
		options: o,
		fields:  newFields(&o),
		buffers: newBufferPool(),
		base:    strings.TrimSuffix(o.Upstream.EscapedPath(), "/"),
	}
	if err := g.asksAboutMessages(); err != nil {
		return nil, err
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       g.rewrite,
		Transport:     faithful{o.Transport, overHTTP2(o.Transport), g},
		FlushInterval: -1, // a stream that waits for a buffer to fill is not a stream
		BufferPool:    g.buffers,
		ErrorHandler:  g.upstreamFailed,
		ErrorLog:      log.New(proxyLog{g}, "", 0),
	}
	o.Limit.Merge = true // what the API says of limits of its own
	return Framed(statuses(httplimit.HandlerOfTargets(o.Limiter, g.serve, o.Limit))), nil
}

func (o *Options) validate() error {
	var errs []error
	if o.Limiter == nil {
		errs = append(errs, errors.New("Limiter is nil, want one"))
	}
	if o.ForwardedHeader != "" && o.ForwardedHeader != xForwardedFor && o.ForwardedHeader != forwarded {
		errs = append(errs, fmt.Errorf("ForwardedHeader is %q, want %q or %q", o.ForwardedHeader,
			xForwardedFor, forwarded))
	}
	if o.MaxUpstream < 0 {
		errs = append(errs, fmt.Errorf("MaxUpstream is %d, want 0 or more", o.MaxUpstream))
	}
	for _, name := range o.PassOverrides {
		if !Overrides(name) {
			errs = append(errs,
				fmt.Errorf("PassOverrides has %q, want the name of a field that would be dropped, such as "+
					"X-HTTP-Method-Override", name))
		}
	}
	errs = append(errs, o.webSocketFaults()...)
	errs = append(errs, o.streamFaults()...)
	if o.UpstreamTimeout < 0 {
		errs = append(errs, fmt.Errorf("UpstreamTimeout is %v, want 0 or more", o.UpstreamTimeout))
	}
	switch u := o.Upstream; {
	case u == nil:
		errs = append(errs, errors.New("Upstream is nil, want a URL"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		errs = append(errs, fmt.Errorf("Upstream is %q, want http://host or https://host", u.Redacted()))
	case u.RawQuery != "" || u.Fragment != "":
		errs = append(errs, fmt.Errorf("Upstream is %q, want no query and no fragment", u.Redacted()))
	}
	return errors.Join(errs...)
}

type gateway struct {
	options Options
	fields  *fields
	base    string // of every path of the API, without a slash at the end
	proxy   *httputil.ReverseProxy
	buffers *bufferPool // for bodies

	messages httplimit.Gate // how those of WebSockets and calls are described
	logged   struct {
		sync.Mutex
		at      time.Time // guarded by Mutex
		skipped int       // guarded by Mutex
	}
}

// rewrite points the request at the API. The path goes on as it came: what
// was limited is the canonical form of the same bytes, and a signature over
// the path still verifies behind us.
func (g *gateway) rewrite(p *httputil.ProxyRequest) {
	// How a body is to be read was asked before, so the client cannot take it
	// back by calling it a field of the connection.
	if media, ok := p.In.Header["Content-Type"]; ok {
		p.Out.Header["Content-Type"] = media
	}
	g.direct(p)
	g.prepare(p, new([3]string))
}

// prepare makes the rest of the request: what it says of the client, and whose body it has. The first is kept in said,
// for as long as the request is sent.
func (g *gateway) prepare(p *httputil.ProxyRequest, said *[3]string) {
	p.Out.Host = p.In.Host
	watch(p.Out)
	peer := g.options.Limit.Peer(p.In).Unmap()
	trusted := g.options.TrustedProxy(peer)
	g.passTrailer(p)
	countSent(p.Out)
	g.fields.clean(p.Out.Header, trusted)
	g.passClientHeader(p, trusted)
	if !trusted {
		setXForwarded(p, said)
		return
	}
	if g.options.ForwardedHeader == forwarded {
		setXForwarded(p, said)
		p.Out.Header.Set(forwarded, appendForwarded(p.In, peer))
		return
	}
	if chain := p.In.Header.Values(xForwardedFor); len(chain) > 0 {
		p.Out.Header[xForwardedFor] = chain
	}
	setXForwarded(p, said) // appends to X-Forwarded-For, replaces the other two
	for _, name := range []string{xForwardedHost, xForwardedProto} {
		if value := p.In.Header.Get(name); value != "" {
			p.Out.Header.Set(name, value)
		}
	}
}

// setXForwarded is httputil.ProxyRequest.SetXForwarded, which allocates for each of the three fields.
func setXForwarded(p *httputil.ProxyRequest, said *[3]string) {
	h := p.Out.Header
	if client, _, err := net.SplitHostPort(p.In.RemoteAddr); err != nil {
		delete(h, xForwardedFor)
	} else {
		if prior := h[xForwardedFor]; len(prior) > 0 {
			client = strings.Join(prior, ", ") + ", " + client
		}
		said[0] = client
		h[xForwardedFor] = said[0:1:1]
	}
	said[1], said[2] = p.In.Host, "http"
	if p.In.TLS != nil {
		said[2] = "https"
	}
	h[xForwardedHost], h[xForwardedProto] = said[1:2:2], said[2:3:3]
}

// passClientHeader passes on what a trusted proxy says of the client, even if
// the client called it a field of the connection, and nothing else.
func (g *gateway) passClientHeader(p *httputil.ProxyRequest, trusted bool) {
	if g.options.ClientHeader == "" {
		return
	}
	lines := p.In.Header.Values(g.options.ClientHeader)
	if !trusted || len(lines) != 1 {
		p.Out.Header.Del(g.options.ClientHeader)
		return
	}
	p.Out.Header[g.options.ClientHeader] = lines
}

// appendForwarded returns the Forwarded field with an element for peer (RFC
// 7239 section 4; IPv6 is bracketed and quoted, section 6).
func appendForwarded(r *http.Request, peer netip.Addr) string {
	element := "for=" + peer.WithZone("").String()
	switch {
	case !peer.IsValid():
		element = "for=unknown"
	case peer.Is6():
		element = `for="[` + peer.WithZone("").String() + `]"`
	}
	return strings.Join(append(slices.Clone(r.Header.Values(forwarded)), element), ", ")
}

// upstreamFailed answers in the API's place.
func (g *gateway) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// The client went away: nobody is left to answer, and the API did
		// nothing wrong.
		panic(http.ErrAbortHandler)
	}
	if s := streamOf(r); s != nil && s.refuse(w) {
		return
	}
	if brokenBody(r) {
		answer := problem.Details{Status: http.StatusBadRequest, Detail: "The body of the request could not be read."}
		if errors.Is(err, os.ErrDeadlineExceeded) { // set by who serves, as the client was too slow
			answer = problem.Details{
				Status: http.StatusRequestTimeout,
				Detail: "The body of the request took too long to arrive.",
			}
		}
		problem.Write(w, r, answer)
		return
	}
	if !neverSent(err) {
		httplimit.Unanswered(w)
	}
	answer := problem.Details{
		Status: http.StatusBadGateway,
		Detail: "The API behind the gateway did not answer properly.",
	}
	switch {
	case errors.Is(err, errUnfaithful):
		answer.Status = http.StatusInternalServerError
		answer.Detail = "The gateway could not pass the request on as it was charged."
	case isTimeout(err):
		answer.Status = http.StatusGatewayTimeout
		answer.Detail = "The API behind the gateway took too long to answer."
	}
	g.options.Failed(answer.Status)
	g.logFailure(answer.Status, err)
	problem.Write(w, r, answer)
}

// neverSent reports whether a request failed before the API can have seen any of it.
func neverSent(err error) bool {
	var dial *net.OpError
	return errors.Is(err, upstream.ErrNotSent) || errors.As(err, &dial) && dial.Op == "dial"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func (g *gateway) logFailure(status int, err error) {
	g.warn("upstream failed", "status", status, "upstream", g.options.Upstream.Redacted(), "error",
		clip.To(err.Error(), maxLogged))
}

// maxLogged bounds what an error may say, in bytes: some quote what a client or
// the API sent, which can be as long as a header.
const maxLogged = 512

// proxyLog takes what the proxy says of an answer that broke off.
type proxyLog struct{ *gateway }

func (l proxyLog) Write(line []byte) (int, error) {
	l.brokeOff(errors.New(strings.TrimSpace(string(line))))
	return len(line), nil
}

func (g *gateway) brokeOff(err error) {
	g.warn("upstream failed in the middle of an answer", "error", clip.To(err.Error(), maxLogged))
}

// warn writes at most a line a second: an API that is down under load must not
// fill a disk.
func (g *gateway) warn(message string, about ...any) {
	g.logged.Lock()
	defer g.logged.Unlock()
	now := time.Now()
	if now.Sub(g.logged.at) < time.Second {
		g.logged.skipped++
		return
	}
	g.options.Log.Warn(message, append(about, "not_logged", g.logged.skipped)...)
	g.logged.at, g.logged.skipped = now, 0
}

// NewPool returns a Pool for what is behind the base URL of an API. Servers and TLS of o default to
// what that says; the name that certificates have to have is the host of the URL.
func NewPool(base *url.URL, o upstream.Options) (*upstream.Pool, error) {
	if base.Scheme == "https" {
		if o.TLS == nil {
			o.TLS = new(tls.Config)
		}
		o.TLS = o.TLS.Clone()
		if o.TLS.ServerName == "" {
			o.TLS.ServerName = base.Hostname()
		}
	}
	if len(o.Servers) == 0 {
		port := base.Port()
		switch {
		case port != "":
		case base.Scheme == "https":
			port = "443"
		default:
			port = "80"
		}
		o.Servers = []upstream.Server{{Address: net.JoinHostPort(base.Hostname(), port)}}
	}
	return upstream.New(o)
}

// NewTransport returns the default of Options.Transport, for Options.UpstreamTimeout and Options.MaxUpstream.
func NewTransport(timeout time.Duration, most int) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ResponseHeaderTimeout: timeout,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxConnsPerHost:       most,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   1024, // there is one host, and reconnecting costs more than the request
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // bodies are the API's business
	}
}

// overHTTP2 is t for calls by gRPC to an API without TLS, which speaks HTTP/2 from the first byte.
func overHTTP2(t http.RoundTripper) http.RoundTripper {
	own, ok := t.(*http.Transport)
	if !ok {
		return t
	}
	own = own.Clone()
	own.Protocols = new(http.Protocols)
	own.Protocols.SetUnencryptedHTTP2(true)
	own.Protocols.SetHTTP2(true)
	return own
}

// bufferPool recycles the 32 KiB copy buffers, else the largest allocation of
// a proxied request.
type bufferPool struct{ pool sync.Pool }

func newBufferPool() *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}
}

func (p *bufferPool) Get() []byte  { return p.pool.Get().(*[32 << 10]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[32 << 10]byte)(b)) }
