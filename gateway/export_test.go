package gateway

import (
	"io"
	"log/slog"
	"net/http"

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
