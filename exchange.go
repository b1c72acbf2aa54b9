package headgate

import (
	"hash/maphash"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

// Exchange is an admitted request on its way to the API behind, at an endpoint of Options.Adaptive: who sends it on
// says when, and when it is answered. The zero value is one that nothing is to be learned from, and does nothing.
//
//	x := lim.Exchange(&d)
//	x.Sent()
//	answer, err := send(request)
//	x.Answered(err != nil || answer.StatusCode >= 500)
type Exchange struct {
	endpoint *adaptive.Endpoint
	clock    Clock
	caller   uint64
	sent     int64
}

// callers has numbers stand for callers that nobody outside can choose.
var callers = maphash.MakeSeed()

// Exchange is what there is to learn from a request that d has admitted.
func (l *Limiter) Exchange(d *Decision) Exchange {
	if l.adaptive == nil || d.endpoints == nil || !d.Allowed {
		return Exchange{}
	}
	at := l.adaptive.At(d.endpoints, d.Endpoint.ID)
	if at == nil {
		return Exchange{}
	}
	var room [64]byte
	return Exchange{
		endpoint: at, clock: l.clock, caller: maphash.Bytes(callers, d.Principal.AppendSubject(room[:0])),
	}
}

// Zero reports whether nothing is to be learned.
func (x *Exchange) Zero() bool { return x.endpoint == nil }

// Sent says that the request is sent to the API now, whose time begins: nothing that its client has a say in comes
// after it, such as the rest of a body.
func (x *Exchange) Sent() {
	if x.endpoint != nil {
		x.sent = x.clock.Now()
		x.endpoint.Sent(x.sent, x.caller)
	}
}

// Answered says that the answer begins now, or that there is none. Failed is one that says that the API could not do
// what it should: a status of 5xx.
func (x *Exchange) Answered(failed bool) {
	if x.endpoint != nil {
		now := x.clock.Now()
		x.endpoint.Answered(now, x.caller, time.Duration(now-x.sent), failed)
	}
}

// Left says that nobody waits for the answer any more: its client has left, or the request goes another way.
func (x *Exchange) Left() {
	if x.endpoint != nil {
		now := x.clock.Now()
		x.endpoint.Left(now, x.caller, time.Duration(now-x.sent))
	}
}

// Adaptive is how the endpoint of a decision stands; false if its rates are never lowered.
func (l *Limiter) Adaptive(d *Decision) (s adaptive.Status, ok bool) {
	if l.adaptive == nil || d.endpoints == nil {
		return s, false
	}
	at := l.adaptive.At(d.endpoints, d.Endpoint.ID)
	if at == nil {
		return s, false
	}
	return at.Status(l.clock.Now()), true
}
