package hold

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/internal/problem"
)

// exchange is a request under way whose client is watched: one with a body, or
// one of a stream of HTTP/2. It is the ResponseWriter and the body of the request.
type exchange struct {
	http.ResponseWriter
	l       *Limiter
	c       *conn // nil if it is not known
	control *http.ResponseController
	request *http.Request
	http2   bool
	body    io.ReadCloser // nil if there is none

	reads, writes watch

	active   atomic.Int64 // when a byte last passed, in Unix nanoseconds
	answered atomic.Bool  // the header of the answer is sent
	whole    atomic.Bool  // the body was read to its end
	done     atomic.Bool  // the handler has returned

	unflushed int // bytes; touched by the handler alone
}

func newExchange(l *Limiter, c *conn, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{
		ResponseWriter: w,
		l:              l,
		c:              c,
		control:        http.NewResponseController(w),
		request:        r,
		http2:          r.ProtoMajor != 1,
	}
	x.active.Store(time.Now().UnixNano())
	pace := l.o().Pace
	x.writes = watch{pace: pace, left: pace.Patience, cut: x.cutAnswer, silent: x.silentAnswer}
	if r.Body == nil || r.Body == http.NoBody {
		x.whole.Store(true)
		return x
	}
	x.reads = watch{pace: pace, left: pace.Patience, cut: x.cutBody, silent: x.silentBody}
	x.body = r.Body
	r.Body = (*incoming)(x)
	return x
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func (x *exchange) cutBody() {
	x.l.count(x.blame(SlowBody, x.answered.Load()))
	_ = x.control.SetReadDeadline(past)
}

func (x *exchange) cutAnswer() {
	x.l.count(x.blame(SlowAnswer, x.writes.since.IsZero()))
	_ = x.control.SetWriteDeadline(past)
}

func (x *exchange) blame(slow Reason, silent bool) Reason {
	if silent {
		return Silent
	}
	return slow
}

// silentBody: once the answer has begun, a body is one half of a conversation,
// and silent for as long as that may be.
func (x *exchange) silentBody() (since, most time.Duration) {
	if !x.answered.Load() {
		return 0, 0
	}
	return x.silence(), x.l.o().StreamIdle
}

// silentAnswer: an answer over HTTP/2 that does not wait for its client may pause.
func (x *exchange) silentAnswer() (since, most time.Duration) {
	if !x.writes.since.IsZero() {
		return 0, 0
	}
	return x.silence(), x.l.o().StreamIdle
}

func (x *exchange) silence() time.Duration {
	return time.Since(time.Unix(0, x.active.Load()))
}

func (x *exchange) passed(bytes int) {
	if bytes > 0 {
		x.active.Store(time.Now().UnixNano())
	}
}

// incoming is the body of an exchange.
type incoming exchange

func (b *incoming) Read(p []byte) (int, error) {
	if b.done.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.whole.Load() {
		return 0, io.EOF
	}
	if b.c != nil && !b.http2 {
		b.c.waiting.Store(b.l.tick.Load())
		defer b.c.waiting.Store(0)
	}
	b.reads.begin()
	n, err := b.body.Read(p)
	b.reads.end(n)
	(*exchange)(b).passed(n)
	if err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}

// Close does nothing. The server closes its bodies itself; to do it sooner would
// be to wait for the rest of one.
func (b *incoming) Close() error { return nil }

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader begins the answer.
func (x *exchange) WriteHeader(status int) {
	x.begin(status)
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) begin(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols || x.answered.Swap(true) {
		return
	}
	x.passed(1)
}

// buffered is less than what the server keeps back of an answer over HTTP/1
// before it sends the header, in bytes.
const buffered = 1 << 10

// send is called before a part of the answer is sent over HTTP/1. The server would
// first wait for the body, which whoever answers has not asked for, or not yet.
func (x *exchange) send() {
	if !x.whole.Load() {
		_ = x.control.EnableFullDuplex()
	}
}

// Write writes a part of the answer.
func (x *exchange) Write(p []byte) (int, error) {
	x.begin(http.StatusOK)
	x.unflushed += len(p)
	if !x.http2 {
		if x.unflushed > buffered {
			x.send()
		}
		n, err := x.ResponseWriter.Write(p)
		x.passed(n)
		return n, err
	}
	x.writes.begin()
	n, err := x.ResponseWriter.Write(p)
	x.writes.end(n)
	x.passed(n)
	return n, err
}

// FlushError sends what there is.
func (x *exchange) FlushError() error {
	x.begin(http.StatusOK)
	x.unflushed = 0
	if !x.http2 {
		x.send()
		return x.control.Flush()
	}
	x.writes.begin()
	err := x.control.Flush()
	x.writes.end(0)
	return err
}

// Flush is FlushError for handlers that know no http.ResponseController.
func (x *exchange) Flush() { _ = x.FlushError() }

// flushRest sends what is left of the answer while the exchange is still watched
// and counted. The server would do it afterwards.
func (x *exchange) flushRest() {
	if x.http2 && x.unflushed > 0 {
		_ = x.FlushError()
	}
}

// finish ends the watches. A body that has not arrived by now is given up: the
// server would wait for it.
func (x *exchange) finish() {
	x.done.Store(true)
	x.writes.over()
	if x.body == nil {
		return
	}
	x.reads.over()
	if x.http2 || x.whole.Load() {
		return
	}
	given := x.Header().Get("Connection") == "close"
	if given || !problem.Discard(x.control, x.request, x.body) {
		_ = x.control.SetReadDeadline(past)
	}
}
