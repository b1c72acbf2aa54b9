package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
)

// The body of a gRPC call is messages, in both directions, and each has a head of five bytes
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, Length-Prefixed-Message):
//
//	compressed: 0 or 1 (1 byte) · length (4 bytes, big-endian) · the message
//
// What counts is decided at the head, before any of it goes on. A message that may not ends the
// call with a status, as a server would that refuses it: the API's stream is reset, and the client
// gets grpc-status in the trailer. The message itself is never looked at.

// Stream says what counts in the calls of a gRPC method after they were begun. One of Send and
// Receive at least is to be counted.
//
// A message over its limit ends the call with RESOURCE_EXHAUSTED and grpc-retry-pushback-ms, or
// UNAVAILABLE where limits cannot be checked. Under a rule with algorithm leaky_bucket messages are
// held back until their turn, which the sender feels once its window is full.
type Stream struct {
	Send    Unit // what the client sends
	Receive Unit // what the API sends

	// BytesPerToken makes a token of so many bytes of a message whose Unit is Bytes, or part of
	// them. Default 1024.
	BytesPerToken int64

	// MaxMessage is the longest message that a client may send, in bytes. Default 1 MiB; below 0
	// there is no bound.
	MaxMessage int64
}

// MessageEndpoints are the endpoints for which rules about the messages of a call are, given that
// of the method.
func (s Stream) MessageEndpoints(method endpoint.Template) (templates []endpoint.Template, err error) {
	if method.Method() != http.MethodPost {
		return nil, fmt.Errorf("endpoint is %q, want one with POST, by which gRPC calls methods", method)
	}
	return messageEndpoints(method, map[string]Unit{endpoint.SendCall: s.Send, endpoint.ReceiveCall: s.Receive})
}

// streamFaults says what is wrong with Options.Streams.
func (o *Options) streamFaults() (faults []error) {
	for text, s := range o.Streams {
		t, err := endpoint.ParseTemplate(text)
		if err == nil {
			_, err = s.MessageEndpoints(t)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("Streams: %w", err))
		}
	}
	return faults
}

// stream is a call whose messages count.
type stream struct {
	of      Stream
	in      *http.Request
	message headgate.Request // without a method
	gateway *gateway
	ended   atomic.Pointer[callStatus] // by our doing
}

type streamKey struct{}

func streamOf(r *http.Request) *stream {
	s, _ := r.Context().Value(streamKey{}).(*stream)
	return s
}

// streamed marks a call whose messages count. To such an endpoint nothing else is sent, and nil is
// returned once that is answered: what is framed in another way, nobody could count.
func (g *gateway) streamed(w http.ResponseWriter, r *http.Request, target string) *http.Request {
	if len(g.options.Streams) == 0 {
		return r
	}
	of, ok := g.options.Streams[g.endpointOf(r, target)]
	if !ok {
		return r
	}
	if !callsGRPC(r) {
		problem.Write(w, r, problem.Details{
			Status: http.StatusUnsupportedMediaType,
			Detail: "This endpoint takes calls by gRPC alone: Content-Type application/grpc.",
		})
		return nil
	}
	if of.BytesPerToken <= 0 {
		of.BytesPerToken = 1 << 10
	}
	if of.MaxMessage == 0 {
		of.MaxMessage = 1 << 20
	}
	s := &stream{of: of, in: r, message: g.message(r, target), gateway: g}
	return r.WithContext(context.WithValue(r.Context(), streamKey{}, s))
}

// callsGRPC reports whether r is a call by gRPC: its media type is application/grpc, alone or with
// the format of messages.
func callsGRPC(r *http.Request) bool {
	lines := r.Header["Content-Type"]
	return len(lines) == 1 && isGRPC(lines[0])
}

func isGRPC(media string) bool {
	kind, _, _ := strings.Cut(media, ";")
	rest, ok := strings.CutPrefix(strings.TrimSpace(kind), "application/grpc")
	return ok && (rest == "" || rest[0] == '+')
}

// headLength is that of what is before a message.
const headLength = 5

// messageHead reads heads of one direction, and says what messages cost.
type messageHead struct {
	unit          Unit
	bytesPerToken int64
	most          int64 // bytes of a message; 0 is no bound

	head    [headLength]byte
	ready   []byte // of head, that may go on
	payload int64  // that may go on behind it
}

var errBadMessage = errors.New("a message of a call has a head that is none")

// next waits for the next head in from. At the end it is io.EOF.
func (h *messageHead) next(from io.Reader) (cost int64, err error) {
	if _, err := io.ReadFull(from, h.head[:]); err != nil {
		return 0, err
	}
	if h.head[0] > 1 {
		return 0, errBadMessage
	}
	h.payload = int64(binary.BigEndian.Uint32(h.head[1:]))
	if h.unit == Bytes {
		cost = max(1, (h.payload+h.bytesPerToken-1)/h.bytesPerToken)
	}
	return cost, nil
}

func (h *messageHead) tooLong() bool { return h.most > 0 && h.payload > h.most }

// read returns what may go on: of the head first, then of the message.
func (h *messageHead) read(p []byte, from io.Reader) (n int, err error) {
	if len(h.ready) > 0 {
		n = copy(p, h.ready)
		h.ready = h.ready[n:]
		return n, nil
	}
	n, err = from.Read(p[:min(int64(len(p)), h.payload)])
	h.payload -= int64(n)
	if err == io.EOF && h.payload > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// sending is the body of a call on its way to the API.
type sending struct {
	io.ReadCloser
	messageHead
	of *stream
}

// countSent has the messages of a call count that goes to the API.
func countSent(out *http.Request) {
	s := streamOf(out)
	if s == nil || s.of.Send == Uncounted || out.Body == nil || out.Body == http.NoBody {
		return
	}
	out.Body = &sending{out.Body, messageHead{unit: s.of.Send, bytesPerToken: s.of.BytesPerToken,
		most: max(0, s.of.MaxMessage)}, s}
}

// errCallEnded resets the stream to the API.
var errCallEnded = errors.New("the call was ended")

func (b *sending) Read(p []byte) (int, error) {
	if b.of.ended.Load() != nil {
		return 0, errCallEnded
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(b.ready) == 0 && b.payload == 0 {
		cost, err := b.next(b.ReadCloser)
		switch {
		case errors.Is(err, errBadMessage):
			b.of.end(&callStatus{code: internal, message: "A message has a head that is none."})
		case err != nil:
			return 0, err
		case b.tooLong():
			b.of.end(&callStatus{
				code:     resourceExhausted,
				message:  "A message is longer than is allowed here.",
				pushback: never,
			})
		default:
			b.of.admit(endpoint.SendCall, cost)
		}
		if b.of.ended.Load() != nil {
			return 0, errCallEnded
		}
		b.ready = b.head[:]
	}
	return b.read(p, b.ReadCloser)
}

// receiving is the body of an answer on its way to the client.
type receiving struct {
	io.ReadCloser
	messageHead
	of       *stream
	answer   *http.Response
	declared int // trailers that the API has announced
}

// countReceived has the messages count that an API answers a call with, and lets a status of ours end it.
func countReceived(r *http.Request, answer *http.Response) {
	s := streamOf(r)
	if s == nil || answer.StatusCode != http.StatusOK || !isGRPC(answer.Header.Get("Content-Type")) {
		return
	}
	answer.Body = &receiving{answer.Body, messageHead{unit: s.of.Receive, bytesPerToken: s.of.BytesPerToken}, s, answer,
		len(answer.Trailer)}
}

func (b *receiving) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := b.more(p)
	if status := b.of.ended.Load(); status != nil && n == 0 {
		_ = b.ReadCloser.Close()
		b.conclude(status)
		return 0, io.EOF
	}
	return n, err
}

func (b *receiving) more(p []byte) (int, error) {
	switch {
	case b.of.ended.Load() != nil:
		return 0, errCallEnded
	case b.unit == Uncounted:
		return b.ReadCloser.Read(p)
	case len(b.ready) > 0 || b.payload > 0:
		return b.read(p, b.ReadCloser)
	}
	cost, err := b.next(b.ReadCloser)
	switch {
	case errors.Is(err, errBadMessage):
		b.of.gateway.warn("the API ended a call by a message that is none", "error", err)
		b.of.end(&callStatus{code: internal, message: "The API behind the gateway did not answer properly."})
		return 0, err
	case err != nil:
		return 0, err
	case !b.of.admit(endpoint.ReceiveCall, cost):
		return 0, errCallEnded
	}
	b.ready = b.head[:]
	return b.read(p, b.ReadCloser)
}

// Close also puts the trailer right: what the API announced is no more true.
func (b *receiving) Close() error {
	err := b.ReadCloser.Close()
	if status := b.of.ended.Load(); status != nil {
		b.conclude(status)
	}
	return err
}

// conclude makes the trailer that of a call that was ended here. httputil.ReverseProxy takes a trailer of
// as many fields as were announced for those, so ours has another number.
func (b *receiving) conclude(status *callStatus) {
	b.answer.Trailer = http.Header{}
	status.write(b.answer.Trailer)
	if len(b.answer.Trailer) == b.declared {
		b.answer.Trailer.Set("Headgate-Ended", "1")
	}
}

// end ends the call, once.
func (s *stream) end(status *callStatus) { s.ended.CompareAndSwap(nil, status) }

// refuse answers in the API's place if the call was ended before it answered.
func (s *stream) refuse(w http.ResponseWriter) bool {
	status := s.ended.Load()
	if status != nil {
		status.answer(w)
	}
	return status != nil
}

// admit asks about a message. If it may not go on, the call ends.
func (s *stream) admit(method string, cost int64) bool {
	r := s.message
	r.Method, r.Cost = method, cost
	d, err := s.gateway.options.Limiter.Wait(s.in.Context(), r)
	if s.gateway.options.Limit.Decided != nil {
		s.gateway.options.Limit.Decided(s.in, &d)
	}
	switch {
	case err != nil:
		s.end(&callStatus{code: canceled, message: "The call was ended."})
	case !d.Allowed && (d.Reason == headgate.UnknownEndpoint || d.Reason == headgate.UnknownMethod):
		s.end(&callStatus{code: unavailable, message: "The endpoint has changed. Call again."})
	case !d.Allowed:
		why := refusal.Of(&d)
		s.end(&callStatus{code: why.Code, message: why.Detail, pushback: pushbackOf(why.Code, why.RetryAfter)})
	default:
		return true
	}
	return false
}
