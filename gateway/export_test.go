package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"

	"github.com/headgate-io/headgate"
)

// NewTunnel returns what stands in the place of an API's connection once it has become
// a WebSocket, opened by a request for target.
func NewTunnel(lim *headgate.Limiter, of WebSocket, target string, api io.ReadWriteCloser) io.ReadWriteCloser {
	g := &gateway{options: Options{Limiter: lim, Tunnels: new(Tunnels), Log: slog.New(slog.DiscardHandler)}}
	in, _ := http.NewRequest(http.MethodGet, target, nil)
	message := headgate.Request{Target: target, Message: true, MaxWait: -1}
	return g.newTunnel(&opening{of: of, in: in, message: message}, api)
}

// NewCall returns the bodies of a gRPC call of target on their ways to the API and to the client.
func NewCall(lim *headgate.Limiter, of Stream, target string, sent, received io.ReadCloser) (up, down io.ReadCloser) {
	g := &gateway{options: Options{Limiter: lim, Log: slog.New(slog.DiscardHandler)}}
	in, _ := http.NewRequest(http.MethodPost, target, nil)
	s := &stream{of: of, in: in, message: headgate.Request{Target: target, Message: true, MaxWait: -1}, gateway: g}
	out := in.WithContext(context.WithValue(in.Context(), streamKey{}, s))
	out.Body = sent
	countSent(out)
	answer := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/grpc"}},
		Body:       received,
	}
	countReceived(out, answer)
	return out.Body, answer.Body
}

// SetXForwarded is setXForwarded.
func SetXForwarded(p *httputil.ProxyRequest) { setXForwarded(p, new([3]string)) }
