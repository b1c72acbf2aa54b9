package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/headgate-io/headgate/pace/telemetry"
)

// ServerOptions configures a Server. Aggregator, or Reference in its place, and Log are required.
type ServerOptions struct {
	Aggregator *Aggregator

	// Reference answers by UDP in JSON, in the place of Aggregator. See Reference.
	Reference *Reference

	UDP   net.PacketConn // nil: none
	HTTP  net.Listener   // nil: none
	Admin net.Listener   // of metrics; nil: none

	// TLS is for HTTP; nil: in plain text.
	TLS *tls.Config

	// Origins are the web pages that may read answers by HTTP, as browsers name them, or "*".
	Origins []string

	// PerSource is how many reports a second are looked at of one address, and twice as many at
	// once. Default 100.
	PerSource int

	// Now reads the clock. Default time.Now.
	Now func() time.Time

	Log *slog.Logger
}

// Server receives reports and answers them.
type Server struct {
	o    ServerOptions
	live atomic.Pointer[live]

	reloads      [2]atomic.Uint64 // that failed, and that did not
	reloadFailed atomic.Bool      // the newest did
}

// live is what can change while a Server runs.
type live struct {
	origins   []string
	perSource int
	sources   *sources
}

// MaxConnections bounds what clients hold open by HTTP.
const MaxConnections = 1000

// NewServer returns a Server that does nothing before Run.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o}
	s.live.Store(&live{})
	next, err := s.next(o.Origins, o.PerSource)
	if err != nil {
		return nil, err
	}
	s.live.Store(next)
	return s, nil
}

// next is what Change puts in force. Sources are counted anew if they may send more, or less.
func (s *Server) next(origins []string, perSource int) (*live, error) {
	if perSource == 0 {
		perSource = 100
	}
	if perSource < 1 || perSource > 1_000_000 {
		return nil, fmt.Errorf("reports of one source are %d a second, want 1 to 1000000", perSource)
	}
	now := *s.live.Load()
	now.origins = origins
	if perSource == now.perSource {
		return &now, nil
	}
	from, err := newSources(perSource)
	now.perSource, now.sources = perSource, from
	return &now, err
}

// Change puts other options of the Aggregator in force (all but Window), and other Origins and PerSource of
// [ServerOptions]: or, with what is wrong with them, nothing. It is for a Server that has an Aggregator, and for one
// goroutine at a time.
func (s *Server) Change(o Options, origins []string, perSource int) error {
	next, err1 := s.next(origins, perSource)
	if _, err2 := o.filled(); err1 != nil || err2 != nil {
		return errors.Join(err1, err2)
	}
	s.live.Store(next)
	return s.o.Aggregator.Change(o, s.o.Now())
}

// Reloaded counts a reload of the settings for the metrics; err is why it failed.
func (s *Server) Reloaded(err error) {
	s.reloadFailed.Store(err != nil)
	if err != nil {
		s.reloads[0].Add(1)
	} else {
		s.reloads[1].Add(1)
	}
}

// Run serves until ctx ends, or a listener fails. It closes them.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running int
	ended := make(chan error)
	start := func(serve func() error) {
		running++
		go func() { ended <- serve() }()
	}
	var closers []io.Closer
	if s.o.UDP != nil {
		closers = append(closers, s.o.UDP)
		start(s.serveUDP)
	}
	serve := func(l net.Listener, h http.Handler, conf *tls.Config) {
		server := &http.Server{
			Handler: h, TLSConfig: conf, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
			IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
			// what clients do wrong is no line of ours
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		}
		closers = append(closers, server)
		l = netutil.LimitListener(l, MaxConnections)
		start(func() error {
			if conf != nil {
				return server.ServeTLS(l, "", "")
			}
			return server.Serve(l)
		})
	}
	if s.o.HTTP != nil {
		serve(s.o.HTTP, s.Handler(), s.o.TLS)
	}
	if s.o.Admin != nil {
		serve(s.o.Admin, s.admin(), nil)
	}
	var failed error
	for n := 0; n < running; {
		select {
		case <-ctx.Done():
			for _, c := range closers {
				_ = c.Close()
			}
			for ; n < running; n++ {
				<-ended // closed, as was wanted
			}
		case err := <-ended:
			n++
			failed = errors.Join(failed, err)
			stop()
		}
	}
	return failed
}

// serveUDP answers datagrams until the socket is closed.
func (s *Server) serveUDP() error {
	message, reply := make([]byte, 2<<10), make([]byte, 0, 2<<10)
	last := time.Time{}
	for {
		n, addr, err := s.o.UDP.ReadFrom(message)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		now := s.o.Now()
		if err != nil {
			// Such as an answer that nobody wanted. It is no reason to stop, nor to spin.
			if now.Sub(last) > 10*time.Second {
				s.o.Log.Warn("cannot read a datagram", "err", err)
				last = now
			}
			time.Sleep(time.Millisecond)
			continue
		}
		from, ok := addr.(*net.UDPAddr)
		if !ok || !answerable(from) {
			continue
		}
		if reply = s.datagram(now, from.AddrPort().Addr(), message[:n], reply[:0]); len(reply) > 0 {
			_, _ = s.o.UDP.WriteTo(reply, addr) // whoever asked has to live with loss
		}
	}
}

// answerable reports whether a source can be one client's.
func answerable(from *net.UDPAddr) bool {
	return from.Port != 0 && !from.IP.IsMulticast() && !from.IP.IsUnspecified() && !from.IP.Equal(net.IPv4bcast)
}

// datagram returns what there is to answer to one, in reply: nothing, or the answer.
func (s *Server) datagram(now time.Time, from netip.Addr, message, reply []byte) []byte {
	if s.o.Reference != nil {
		if !from.IsLoopback() {
			return nil
		}
		return s.o.Reference.Answer(now, message, reply)
	}
	if !s.live.Load().sources.allow(now, from) {
		s.o.Aggregator.Count(Flood)
		return nil
	}
	reply, _ = s.o.Aggregator.Answer(now, message, reply)
	return reply
}

// Path is where clients report by HTTP.
const Path = "/v1/telemetry"

// Handler takes reports as bodies of POST.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, s.post)
	mux.HandleFunc("OPTIONS "+Path, func(w http.ResponseWriter, r *http.Request) {
		s.expose(w, r)
		w.Header().Set("Access-Control-Allow-Methods", "POST")
		w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
		w.Header().Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// expose lets web pages of the configured origins read the answer.
func (s *Server) expose(w http.ResponseWriter, r *http.Request) {
	origins := s.live.Load().origins
	if len(origins) == 0 {
		return
	}
	w.Header().Add("Vary", "Origin")
	if origin := r.Header.Get("Origin"); origin != "" && (slices.Contains(origins, origin) ||
		slices.Contains(origins, "*")) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
	}
}

// httpStatus is what a fault is answered by HTTP, where the source of a request is known.
var httpStatus = map[Fault]int{
	Flood: http.StatusTooManyRequests, Malformed: http.StatusBadRequest, UnknownQuota: http.StatusNotFound,
	Forged: http.StatusForbidden,
	Stale:  http.StatusForbidden, Replayed: http.StatusConflict,
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	s.expose(w, r)
	now := s.o.Now()
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !s.live.Load().sources.allow(now, from.Addr()) {
		s.o.Aggregator.Count(Flood)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "telemetry: too many reports from this address", httpStatus[Flood])
		return
	}
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, telemetry.Size))
	if err != nil {
		s.o.Aggregator.Count(Malformed)
		http.Error(w, fmt.Sprintf("telemetry: want a body of %d bytes", telemetry.Size), httpStatus[Malformed])
		return
	}
	reply, fault := s.o.Aggregator.Answer(now, message, nil)
	if fault != none {
		http.Error(w, "telemetry: "+fault.String(), httpStatus[fault])
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(reply)
}

// admin serves metrics and health.
func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return mux
}
