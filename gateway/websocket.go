package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
)

// WebSocket says what counts on a WebSocket after it was opened. One of Send and
// Receive at least is to be counted.
//
// A message over its limit ends the connection, in both directions, with a Close
// frame that says why: 1008 over a limit, 1009 for what no burst holds, 1013 where
// limits cannot be checked. Under a rule with algorithm leaky_bucket messages are
// held back until their turn, which the sender feels once buffers are full.
type WebSocket struct {
	Send    Unit // what the client sends
	Receive Unit // what the API sends

	// BytesPerToken makes a token of so many bytes of payload, or part of them, of a
	// message whose Unit is Bytes. Default 1024.
	BytesPerToken int64

	// MaxMessage is the longest message that a client may send, in bytes and with the
	// heads of its frames. Default 1 MiB; below 0 there is no bound.
	MaxMessage int64
}

// Unit is what counts of messages.
type Unit uint8

const (
	Uncounted Unit = iota
	Messages       // each costs what its endpoint costs, however many frames it has
	Bytes          // each costs what WebSocket.BytesPerToken says, frame by frame
)

// MessageEndpoints are the endpoints for which rules about the messages of a
// WebSocket are, given that which opens it.
func (s WebSocket) MessageEndpoints(opening endpoint.Template) (templates []endpoint.Template, err error) {
	if opening.Method() != http.MethodGet {
		return nil, fmt.Errorf("endpoint is %q, want one with GET, by which WebSockets are opened", opening)
	}
	return messageEndpoints(opening, map[string]Unit{endpoint.Send: s.Send, endpoint.Receive: s.Receive})
}

// messageEndpoints are those of the messages that count, by the methods of both directions.
func messageEndpoints(opening endpoint.Template, units map[string]Unit) (templates []endpoint.Template, err error) {
	path := strings.TrimPrefix(opening.String(), opening.Method())
	for _, method := range slices.Sorted(maps.Keys(units)) {
		if units[method] == Uncounted {
			continue
		}
		t, err := endpoint.ParseTemplate(method + path)
		if err != nil {
			return nil, err
		}
		templates = append(templates, t)
	}
	if len(templates) == 0 {
		return nil, fmt.Errorf("endpoint is %q, of which neither what is sent nor what is received counts", opening)
	}
	return templates, nil
}

// webSocketFaults says what is wrong with Options.WebSockets.
func (o *Options) webSocketFaults() (faults []error) {
	for text, s := range o.WebSockets {
		t, err := endpoint.ParseTemplate(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("WebSockets: %w", err))
			continue
		}
		if _, err := s.MessageEndpoints(t); err != nil {
			faults = append(faults, fmt.Errorf("WebSockets: %w", err))
		}
	}
	return faults
}

// opening is a request for a WebSocket whose messages count.
type opening struct {
	of      WebSocket
	in      *http.Request
	message headgate.Request // without a method
}

type openingKey struct{}

// counted marks a request for a WebSocket whose messages count. On such an endpoint
// no other protocol is offered, nor another version of this one (RFC 6455 section
// 4.1): nobody could count its messages.
func (g *gateway) counted(r *http.Request, target string) *http.Request {
	offers := r.Header["Upgrade"]
	if len(g.options.WebSockets) == 0 || len(offers) == 0 {
		return r
	}
	of, ok := g.options.WebSockets[g.endpointOf(r, target)]
	if !ok {
		return r
	}
	if len(offers) != 1 || !strings.EqualFold(strings.TrimSpace(offers[0]), "websocket") ||
		!slices.Equal(r.Header["Sec-Websocket-Version"], []string{"13"}) {
		delete(r.Header, "Upgrade")
		return r
	}
	if of.BytesPerToken <= 0 {
		of.BytesPerToken = 1 << 10
	}
	if of.MaxMessage == 0 {
		of.MaxMessage = 1 << 20
	}
	o := &opening{of: of, in: r, message: g.message(r, target)}
	return r.WithContext(context.WithValue(r.Context(), openingKey{}, o))
}

// endpointOf is the template that a request was charged as, "" for none.
func (g *gateway) endpointOf(r *http.Request, target string) string {
	table := g.options.Limiter.Endpoints()
	if m := table.Match(r.Method, target); m.Status == endpoint.Known {
		return table.Template(m.ID).String()
	}
	return ""
}

// message is what is asked about each message of what r opens, but for its method.
func (g *gateway) message(r *http.Request, target string) headgate.Request {
	m := g.messages.Request(r)
	m.Target, m.Message, m.Cost = target, true, 0
	return m
}

// asksAboutMessages opens the gate by which messages are described like the requests
// that opened their connections.
func (g *gateway) asksAboutMessages() error {
	limit := g.options.Limit
	return g.messages.Open(g.options.Limiter, httplimit.Options{
		Peer: limit.Peer, User: limit.User, Rewritten: limit.Rewritten, MaxWait: limit.MaxWait,
	})
}

// Tunnels are WebSockets that are open, of one gateway or of those that follow each
// other. The zero value is ready.
type Tunnels struct {
	mu     sync.Mutex
	open   map[*tunnel]struct{} // guarded by mu
	ending bool                 // guarded by mu
	empty  chan struct{}        // guarded by mu: closed when none is left, once they end
}

// Open is how many there are whose messages count.
func (s *Tunnels) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// End ends all with a Close frame of 1001, now and from now on, and returns when
// none is left: within about two seconds, whatever their ends do. An error says that
// ctx ended before.
func (s *Tunnels) End(ctx context.Context) error {
	s.mu.Lock()
	if !s.ending {
		s.ending, s.empty = true, make(chan struct{})
		if len(s.open) == 0 {
			close(s.empty)
		}
	}
	empty := s.empty
	for t := range s.open {
		go t.end(goingAway, leaving)
	}
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%d WebSockets were cut off", s.Open()), ctx.Err())
	}
}

const leaving = "The server is shutting down. Connect again."

func (s *Tunnels) add(t *tunnel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		go t.end(goingAway, leaving)
		return
	}
	if s.open == nil {
		s.open = map[*tunnel]struct{}{}
	}
	s.open[t] = struct{}{}
}

func (s *Tunnels) remove(t *tunnel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[t]; !ok {
		return
	}
	delete(s.open, t)
	if s.ending && len(s.open) == 0 {
		close(s.empty)
	}
}
