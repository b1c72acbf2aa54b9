package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
)

// reading is how the bodies of an endpoint's requests are looked at before they are decided.
type reading struct {
	most    int // bytes
	timeout time.Duration
}

const (
	defaultReadTimeout = 10 * time.Second
	mostReadTimeout    = 10 * time.Minute
)

// readTimeout is d or its default; an error says what it may be.
func readTimeout(d time.Duration) (time.Duration, error) {
	switch {
	case d == 0:
		return defaultReadTimeout, nil
	case d < 0 || d > mostReadTimeout:
		return d, fmt.Errorf("ReadTimeout is %v, want up to %v", d, mostReadTimeout)
	}
	return d, nil
}

// lookup finds the endpoint that text names in a table, or says what comes near.
func lookup(table *endpoint.Table, text string) (endpoint.ID, error) {
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		return 0, err
	}
	id, known := table.Lookup(template)
	if !known {
		near := ""
		if closest, ok := table.Closest(template); ok {
			near = fmt.Sprintf(", such as %q", closest)
		}
		return 0, fmt.Errorf("Endpoint is %q, want one that the table has%s", text, near)
	}
	return id, nil
}

// sites are endpoints with something that is done with the bodies of their requests. The zero
// value but for the table is ready.
type sites[T any] struct {
	table   *endpoint.Table
	at      map[endpoint.ID]T
	methods []string
}

// add has one more, by the template that the table has.
func (s *sites[T]) add(text string, made T) error {
	id, err := lookup(s.table, text)
	if err != nil {
		return err
	}
	if _, there := s.at[id]; there {
		return fmt.Errorf("Endpoint is %q, which stands twice, want it once", text)
	}
	if s.at == nil {
		s.at = map[endpoint.ID]T{}
	}
	s.at[id] = made
	method := s.table.Template(id).Method()
	s.methods = append(s.methods, method)
	if method == http.MethodGet {
		s.methods = append(s.methods, http.MethodHead)
	}
	return nil
}

// of returns what is done with a request, the zero value for nothing. Requests of other methods
// than any endpoint has are not even matched.
func (s *sites[T]) of(r *headgate.Request) (made T) {
	if !slices.Contains(s.methods, r.Method) {
		return made
	}
	if m := s.table.Match(r.Method, r.Target); m.Status == endpoint.Known {
		return s.at[m.ID]
	}
	return made
}

// tooLate answers a request whose body took too long to arrive, and reports whether it did.
func tooLate(w http.ResponseWriter, r *http.Request) bool {
	if !errors.Is(bodyError(r), os.ErrDeadlineExceeded) {
		return false
	}
	w.Header().Set("Connection", "close") // the rest may come as the next request otherwise
	problem.Write(w, r, problem.Details{
		Status: http.StatusRequestTimeout,
		Detail: "The body of the request took too long to arrive.",
	})
	return true
}

// buffer reads the body, as far as it may be looked at, and puts r.Body back to
// its beginning. Beyond what it returns nothing is held.
func (o *reading) buffer(w http.ResponseWriter, r *http.Request, room share) ([]byte, body.Fault) {
	most := o.most
	switch {
	case bodiless(r):
		return nil, body.Empty
	case r.ContentLength > int64(most):
		return nil, body.Long
	}
	if read, ok := r.Body.(*replay); ok && read.err == io.EOF { // it was looked at for something else
		if len(read.text) > most {
			return nil, body.Long
		}
		return read.text, body.None
	}
	done := o.hurry(w, r)
	size := 512 // a body of unknown length grows to what it needs
	if r.ContentLength > 0 {
		// And its end is seen. A long one grows too: what was only announced
		// holds no memory.
		size = min(int(r.ContentLength)+1, body.DefaultBytes+1)
	}
	text := make([]byte, 0, min(size, most+1))
	read := &replay{ReadCloser: r.Body, room: room}
	var err error
	crowded := false
	for err == nil && len(text) <= most {
		if len(text) == cap(text) {
			next := min(2*cap(text), most+1)
			if crowded = !read.grow(cap(text), next); crowded {
				break
			}
			grown := make([]byte, len(text), next)
			copy(grown, text)
			text = grown
		}
		var n int
		n, err = r.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		done() // else the server would wait for the rest before it closes
	}
	read.text, read.err = text, err
	r.Body = read
	switch {
	case crowded:
		return nil, body.Crowded
	case err == nil:
		return nil, body.Long
	case err != io.EOF:
		return nil, body.Unread
	case len(text) > most:
		return nil, body.Long
	}
	return text, body.None
}

// crowded answers a request whose body there is no room for.
func crowded(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Connection", "close") // the rest of the body is not waited for
	problem.Write(w, r, problem.Details{
		Status: http.StatusServiceUnavailable,
		Detail: "The bodies of other requests leave no room for this one. Retry in 1s.",
	})
}

// compressed answers a request whose body nobody here can read.
func compressed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Accept-Encoding", "identity") // RFC 9110 section 15.5.16
	problem.Write(w, r, problem.Details{
		Status: http.StatusUnsupportedMediaType,
		Detail: "This endpoint takes no compressed bodies: what they hold is counted.",
	})
}

// bodiless reports whether a request says that it has no body.
func bodiless(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0
}

// hurry sets the deadline for the body, until done is called.
func (o *reading) hurry(w http.ResponseWriter, r *http.Request) (done func()) {
	later := time.Time{}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 {
		if server.ReadTimeout <= o.timeout {
			return func() {} // the server's own comes first
		}
		later = time.Now().Add(server.ReadTimeout)
	}
	connection := http.NewResponseController(w)
	if connection.SetReadDeadline(time.Now().Add(o.timeout)) != nil {
		return func() {}
	}
	// It would end the connection under a handler that takes longer.
	return func() { _ = connection.SetReadDeadline(later) }
}

// replay is a body that begins with what was read of it.
type replay struct {
	io.ReadCloser
	text []byte
	err  error // that ended the reading; nil if the rest is still to come

	room share
	held atomic.Int64 // bytes of it

	id []byte // by which the message that it is wants to be answered, as JSON; nil for none
}

// grow takes what a buffer needs to become longer, and reports false if there is not so much.
func (b *replay) grow(from, to int) bool {
	const each = body.DefaultBytes + 1
	more := int64(to - max(from, each))
	if more <= 0 {
		return true
	}
	if !b.room.take(more) {
		return false
	}
	b.held.Add(more)
	return true
}

// free gives back what the buffer has of its room.
func (b *replay) free() {
	if held := b.held.Swap(0); held > 0 {
		b.room.giveBack(held)
	}
}

// release frees what a body holds, for a request that is over.
func release(of io.ReadCloser) {
	for b, ok := of.(*replay); ok; b, ok = b.ReadCloser.(*replay) {
		b.free()
	}
}

// Read reads what was read, which is then no longer held: an answer may go on for long.
func (b *replay) Read(p []byte) (int, error) {
	if len(b.text) > 0 {
		n := copy(p, b.text)
		if b.text = b.text[n:]; len(b.text) == 0 {
			b.text = nil
			b.free()
		}
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}

func bodyError(r *http.Request) error {
	if b, ok := r.Body.(*replay); ok {
		return b.err
	}
	return nil
}
