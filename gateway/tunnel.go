package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/refusal"
)

// tunnel stands in the place of the API's connection once that has become a
// WebSocket: httputil.ReverseProxy writes to it what the client sends, and reads from
// it what the client is to receive. What counts is decided at the head of a frame,
// before any of it goes on.
//
//	client ──Write──▶ heads read, messages charged ──▶ API
//	client ◀──Read─── heads read, messages charged ◀── API
//
// When it ends by our doing, both are sent a Close frame where the last frame to them
// is whole, the API is waited for, and what the client still sends is read: a
// connection that is closed with unread bytes is reset, and the Close frame lost.
type tunnel struct {
	*opening
	gateway *gateway
	api     io.ReadWriteCloser
	ctx     context.Context // ends when both connections do
	cancel  context.CancelFunc

	up   direction // touched by Write alone
	head [maxHead]byte
	have int // bytes of head

	down   direction // touched by Read alone
	reader *bufio.Reader
	out    []byte // goes to the client before anything else
	begun  bool
	said   bool // the client was sent a Close frame of ours

	mu    sync.Mutex // of who writes to the API
	whole bool       // guarded by mu: the last frame to the API is
	told  bool       // guarded by mu: it was sent a Close frame of ours

	ending     atomic.Pointer[ending]
	clientDone chan struct{} // the client has no more to say
	done       sync.Once
}

// direction is what is known of one.
type direction struct {
	messages
	method  string // of the endpoint of its messages
	unit    Unit
	left    int64 // bytes of the present frame that are still to go on
	payload int64 // bytes of the present message
	charged int64 // tokens
}

// ending is what Close frames say.
type ending struct {
	code   uint16
	reason string
}

var errEnded = errors.New("the WebSocket was ended")

const (
	tellWithin   = time.Second // how long an API may take to answer a Close frame
	lingerWithin = time.Second // how long a client may
)

func (g *gateway) newTunnel(o *opening, api io.ReadWriteCloser) *tunnel {
	t := &tunnel{
		opening:    o,
		gateway:    g,
		api:        api,
		reader:     bufio.NewReaderSize(api, 4<<10),
		whole:      true,
		clientDone: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(o.in.Context())
	t.up = direction{
		messages: messages{masked: true, most: max(0, o.of.MaxMessage)},
		method:   endpoint.Send,
		unit:     o.of.Send,
	}
	t.down = direction{method: endpoint.Receive, unit: o.of.Receive}
	return t
}

// switched counts the messages of a connection that has become a WebSocket.
func (g *gateway) switched(r *http.Request, answer *http.Response) {
	o, counts := r.Context().Value(openingKey{}).(*opening)
	if !counts || answer.StatusCode != http.StatusSwitchingProtocols {
		return
	}
	if conn, ok := answer.Body.(io.ReadWriteCloser); ok {
		answer.Body = g.newTunnel(o, conn)
	}
}

// Close ends both directions.
func (t *tunnel) Close() error {
	t.cancel()
	t.gateway.options.Tunnels.remove(t)
	return t.api.Close()
}

// CloseWrite is called when the client sends nothing more.
func (t *tunnel) CloseWrite() error {
	t.clientLeft()
	if half, ok := t.api.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errEnded
}

func (t *tunnel) clientLeft() { t.done.Do(func() { close(t.clientDone) }) }

// end begins to end the tunnel, once.
func (t *tunnel) end(code uint16, reason string) {
	if !t.ending.CompareAndSwap(nil, &ending{code, reason}) {
		return
	}
	time.AfterFunc(tellWithin, func() { _ = t.api.Close() })
	if t.mu.TryLock() { // else whoever writes does it
		t.tellAPI()
		t.mu.Unlock()
	}
}

func (t *tunnel) fail(why fault) { t.end(faults[why].code, faults[why].reason) }

// tellAPI is called with mu held.
func (t *tunnel) tellAPI() {
	if e := t.ending.Load(); e != nil && t.whole && !t.told {
		t.told = true
		_, _ = t.api.Write(closeFrame(e.code, e.reason, true))
	}
}

// forward sends p to the API, unless the tunnel ends. It says whether the last frame
// is whole with it.
func (t *tunnel) forward(p []byte, whole bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending.Load() != nil && t.whole {
		t.tellAPI()
		return nil
	}
	if len(p) > 0 {
		if _, err := t.api.Write(p); err != nil {
			return t.lost(err)
		}
	}
	t.whole = whole
	t.tellAPI()
	return nil
}

// lost is what Write says of an API that cannot be written to: nothing if the tunnel
// ends, since then the client is still to be read.
func (t *tunnel) lost(err error) error {
	if t.ending.Load() != nil {
		return nil
	}
	return err
}

// Write takes what the client sends.
func (t *tunnel) Write(p []byte) (int, error) {
	from, at := 0, 0 // p[from:at] may go on
	for at < len(p) {
		if t.up.left > 0 {
			n := int(min(t.up.left, int64(len(p)-at)))
			at, t.up.left = at+n, t.up.left-int64(n)
			continue
		}
		if t.up.closed || t.have < 0 { // nothing may follow a Close frame
			break
		}
		n := copy(t.head[t.have:], p[at:])
		h, more, why := readHead(t.head[:t.have+n])
		if more > 0 {
			t.have += n
			break // p is used up
		}
		begins := false
		if why == 0 {
			begins, why = t.up.next(h, time.Now())
		}
		if cost, counts := t.up.cost(&h, begins, t.of.BytesPerToken); why == 0 && counts && t.ending.Load() == nil {
			if err := t.forward(p[from:at], true); err != nil { // it does not wait for this one's turn
				return 0, err
			}
			from = at
			t.admit(t.up.method, cost)
		}
		switch {
		case why != 0:
			if err := t.forward(p[from:at], true); err != nil {
				return 0, err
			}
			t.fail(why)
			t.have = -1 // nobody knows where the next frame begins
			t.clientLeft()
			return len(p), nil
		case h.opcode == opClose && t.ending.Load() != nil:
			t.clientLeft()
		}
		if t.have > 0 { // it began in what was written before
			if err := t.forward(t.head[:h.bytes], h.length == 0); err != nil {
				return 0, err
			}
			from = at + h.bytes - t.have
		}
		at, t.have, t.up.left = at+h.bytes-t.have, 0, h.length
	}
	if err := t.forward(p[from:at], t.up.left == 0); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read returns what the client is to receive.
func (t *tunnel) Read(p []byte) (int, error) {
	if !t.begun {
		t.begun = true
		t.gateway.options.Tunnels.add(t)
	}
	for {
		switch {
		case len(t.out) > 0:
			n := copy(p, t.out)
			t.out = t.out[n:]
			if most := min(int64(len(p)-n), int64(t.reader.Buffered()), t.down.left); most > 0 && len(t.out) == 0 {
				m, _ := t.reader.Read(p[n : n+int(most)]) // what is there already
				n, t.down.left = n+m, t.down.left-int64(m)
			}
			return n, nil
		case t.said:
			t.linger()
			return 0, errEnded
		case t.down.left > 0:
			n, err := t.reader.Read(p[:min(int64(len(p)), t.down.left)])
			t.down.left -= int64(n)
			if n > 0 || err != nil {
				return n, err
			}
		case t.down.closed:
			return 0, io.EOF // the API said that nothing follows
		default:
			if err := t.nextFrame(); err != nil {
				return 0, err
			}
		}
	}
}

// nextFrame waits for the next frame of the API, until it may go on or the tunnel
// ends. What the API has to say until it answers our Close frame goes on: it is about
// what was let through.
func (t *tunnel) nextFrame() error {
	p, err := t.reader.Peek(2)
	h, more, why := readHead(p)
	if err == nil && more > 0 {
		p, err = t.reader.Peek(more)
		h, _, why = readHead(p)
	}
	switch ends := t.ending.Load() != nil; {
	case ends && (err != nil || h.opcode == opClose):
		t.say()
		return nil
	case err != nil:
		return err
	}
	begins := false
	if why == 0 {
		begins, why = t.down.next(h, time.Now())
	}
	if why != 0 {
		t.gateway.warn("the API ended a WebSocket by a frame that is none", "error", faults[why].reason)
		t.fail(why)
		t.say()
		return nil
	}
	if cost, counts := t.down.cost(&h, begins, t.of.BytesPerToken); counts && !t.admit(t.down.method, cost) {
		t.say()
		return nil
	}
	t.out = append(t.out[:0], p[:h.bytes]...)
	_, _ = t.reader.Discard(h.bytes)
	t.down.left = h.length
	return nil
}

// say sends the client a Close frame, and nothing after it.
func (t *tunnel) say() {
	e := t.ending.Load()
	t.out, t.said = closeFrame(e.code, e.reason, false), true
}

// linger waits for the client to close.
func (t *tunnel) linger() {
	within := time.NewTimer(lingerWithin)
	defer within.Stop()
	select {
	case <-t.clientDone:
	case <-within.C:
	case <-t.ctx.Done():
	}
}

// cost is what a frame costs, in tokens; 0 is what the endpoint of the message costs.
func (d *direction) cost(h *head, begins bool, bytesPerToken int64) (tokens int64, counts bool) {
	if d.unit == Uncounted || h.control() {
		return 0, false
	}
	if d.unit == Messages {
		return 0, begins
	}
	if begins {
		d.payload, d.charged = 0, 0
	}
	d.payload += h.length
	owed := max(1, (d.payload-1)/bytesPerToken+1)
	tokens = owed - d.charged
	d.charged = owed
	return tokens, tokens > 0
}

// admit asks about a message, or a part of one. If it may not go on, the tunnel ends.
func (t *tunnel) admit(method string, cost int64) bool {
	r := t.message
	r.Method, r.Cost = method, cost
	d, err := t.gateway.options.Limiter.Wait(t.ctx, r)
	if t.gateway.options.Limit.Decided != nil {
		t.gateway.options.Limit.Decided(t.in, &d)
	}
	switch {
	case err != nil: // one of the ends left
		t.end(goingAway, "The connection was closed.")
		return false
	case d.Allowed:
		return true
	}
	why := refusal.Of(&d)
	switch {
	case d.Reason == headgate.UnknownEndpoint || d.Reason == headgate.UnknownMethod:
		t.end(goingAway, "The endpoint has changed. Connect again.")
	case d.Reason == headgate.CostAboveBurst:
		t.end(messageTooBig, why.Detail)
	case why.Status == http.StatusServiceUnavailable:
		t.end(tryAgainLater, why.Detail)
	default:
		t.end(policyViolation, why.Detail)
	}
	return false
}
