package engine

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/headgate-io/headgate/internal/streams"
)

// oracle is a server that reads what it is sent.
type oracle struct {
	listener *streams.Listener
	serve    func(net.Listener) error
	end      func() error
	seen     []streams.Request
}

// newOracle has net/http read.
func newOracle() *oracle {
	o := &oracle{listener: streams.NewListener()}
	server := &http.Server{
		Handler: o.handler(), DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	o.serve, o.end = server.Serve, server.Close
	go func() { _ = o.serve(o.listener) }()
	return o
}

func (o *oracle) handler() http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { o.seen = append(o.seen, streams.Seen(r)) })
}

// read returns the requests in a stream, as far as the oracle takes them.
func (o *oracle) read(stream []byte) []streams.Request {
	o.seen = nil
	c := streams.NewConn(stream)
	o.listener.Connect(c)
	<-c.Closed()
	return o.seen
}
