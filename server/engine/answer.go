package engine

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/values"
)

const (
	// heldBytes is how much of a body is kept back to find its length, if the handler does not say it.
	heldBytes = 2 << 10

	// mostOut is how much is kept to be sent in one write, and smallOut what a connection has room for all the time.
	mostOut  = 20 << 10
	smallOut = 2 << 10
)

// answer is the ResponseWriter of a connection, and its http.ResponseController's: all but to take the connection over.
type answer struct {
	c      *conn
	header http.Header
	room   *values.Room
	toHEAD bool

	out      []byte // to be sent: in small, or in large
	small    []byte
	large    *[mostOut]byte
	held     []byte   // of a body whose length is not known
	names    []string // of what was announced to trail
	order    []string // of fields, as they are written
	status   int      // 0 until it is told
	length   int64    // that was declared; -1 if none was
	written  int64    // of the body
	ended    bool     // the head is in out, or sent
	chunked  bool
	closes   bool // the connection ends after it
	said     bool // the head says so
	sayAt    int  // where in out the head would say so; 0 unless it waits to be sent
	bodiless bool // by its status
	err      error
}

// begin forgets the answer before.
func (a *answer) begin(c *conn, toHEAD, closes bool) {
	if len(a.header) > 0 {
		clear(a.header)
	}
	a.room.Reset()
	*a = answer{
		c: c, header: a.header, room: a.room, toHEAD: toHEAD, closes: closes, length: -1, small: a.small,
		out: a.small[:0], held: a.held[:0], names: a.names[:0], order: a.order[:0],
	}
}

// Header is what WriteHeader sends.
func (a *answer) Header() http.Header { return a.header }

// Values is room for those of the header.
func (a *answer) Values() *values.Room { return a.room }

// WriteHeader begins the answer; one of 1xx is sent at once, and another one follows.
func (a *answer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("invalid WriteHeader code " + strconv.Itoa(status))
	}
	if a.status != 0 {
		a.c.server.logf("http: superfluous response.WriteHeader call for %d after %d", status, a.status)
		return
	}
	a.statusLine(status)
	if status < 200 {
		a.fields(false)
		a.out = append(a.out, "\r\n"...)
		a.send()
		return
	}
	a.status, a.bodiless = status, status == http.StatusNoContent || status == http.StatusNotModified
	if declared := a.header["Content-Length"]; len(declared) > 0 && declared[0] != "" {
		if n, err := strconv.ParseInt(declared[0], 10, 64); err == nil && n >= 0 {
			a.length = n
		} else {
			a.c.server.logf("http: invalid Content-Length of %q", declared[0])
		}
	}
	for _, line := range a.header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)); mayTrail(name) {
				a.names = append(a.names, name)
			}
		}
	}
	a.fields(true)
}

// mayTrail reports whether a field may stand in a trailer.
func mayTrail(name string) bool {
	switch name {
	case "", "Transfer-Encoding", "Content-Length", "Trailer":
		return false
	}
	return true
}

func (a *answer) statusLine(status int) {
	a.out = strconv.AppendInt(append(a.out, "HTTP/1.1 "...), int64(status), 10)
	a.out = append(a.out, ' ')
	if text := http.StatusText(status); text != "" {
		a.out = append(a.out, text...)
	} else {
		a.out = strconv.AppendInt(append(a.out, "status code "...), int64(status), 10)
	}
	a.out = append(a.out, "\r\n"...)
}

// sorted are the names of the fields that the handler set, in the order in which net/http writes
// them: whoever reads two answers one beside the other finds the same field in the same place.
func (a *answer) sorted() []string {
	a.order = a.order[:0]
	for name := range a.header {
		a.order = append(a.order, name)
	}
	slices.Sort(a.order)
	return a.order
}

// fields writes what the handler set, but for what frames the answer, unless the handler said how long it is: else that
// is decided when it is known.
func (a *answer) fields(last bool) {
	date := !last
	for _, name := range a.sorted() {
		values := a.header[name]
		switch name {
		case "Transfer-Encoding":
			continue
		case "Content-Length":
			if last && a.length >= 0 && !a.bodiless {
				a.contentLength(a.length)
			}
			continue
		case "Connection":
			if !last || !hasClose(values) {
				continue
			}
			a.closes, a.said = true, true
		case "Date":
			date = true
		case "Content-Type":
			if a.status == http.StatusNotModified {
				continue
			}
		}
		if len(name) > len(http.TrailerPrefix) && name[:len(http.TrailerPrefix)] == http.TrailerPrefix {
			continue
		}
		for _, value := range values {
			a.field(name, value)
		}
	}
	if !date {
		a.field("Date", a.c.server.now())
	}
}

func hasClose(values []string) bool {
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(textproto.TrimString(option), "close") {
				return true
			}
		}
	}
	return false
}

// field writes a field, if its name is one. What would end a line becomes a blank, as in net/http.
func (a *answer) field(name, value string) {
	for i := range len(name) {
		if is[name[i]]&inName == 0 && strings.IndexByte("!#$%&'*+.^_`|~", name[i]) < 0 {
			return
		}
	}
	if name == "" {
		return
	}
	a.out = append(append(a.out, name...), ": "...)
	value = textproto.TrimString(value)
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		value = lineEndsToBlanks.Replace(value)
	}
	a.out = append(append(a.out, value...), "\r\n"...)
}

var lineEndsToBlanks = strings.NewReplacer("\r", " ", "\n", " ")

// endHead frames the answer. first is how its body begins, and whole says that it is all of it.
func (a *answer) endHead(first []byte, whole bool) {
	a.ended = true
	trails := len(a.names) > 0
	for name := range a.header {
		trails = trails || strings.HasPrefix(name, http.TrailerPrefix)
	}
	switch {
	case a.bodiless || a.length >= 0:
	case whole && !trails && (!a.toHEAD || a.written > 0):
		a.length = a.written
		a.contentLength(a.length)
	case a.toHEAD:
	default:
		a.chunked = true
	}
	if _, set := a.header["Content-Type"]; !set && !a.bodiless && len(first) > 0 && a.sniffs() {
		a.field("Content-Type", http.DetectContentType(first))
	}
	a.closes = a.closes || a.c.server.leaving.Load()
	if a.sayAt = len(a.out); a.closes {
		a.sayClose()
	}
	if a.chunked {
		a.out = append(a.out, "Transfer-Encoding: chunked\r\n"...)
	}
	a.out = append(a.out, "\r\n"...)
}

const closing = "Connection: close\r\n"

// sayClose has the head say that the connection ends after the answer, unless it does, or was sent.
func (a *answer) sayClose() {
	if a.said || a.sayAt == 0 {
		return
	}
	a.out = append(a.out, closing...)
	copy(a.out[a.sayAt+len(closing):], a.out[a.sayAt:])
	copy(a.out[a.sayAt:], closing)
	a.said = true
}

// sniffs reports whether the media type of a body is told by its first bytes.
func (a *answer) sniffs() bool {
	coding := a.header["Content-Encoding"]
	return len(coding) == 0 || coding[0] == ""
}

func (a *answer) contentLength(n int64) {
	a.out = append(strconv.AppendInt(append(a.out, "Content-Length: "...), n, 10), "\r\n"...)
}

// Write writes a part of the body.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if a.bodiless {
		return 0, http.ErrBodyNotAllowed
	}
	a.written += int64(len(p))
	if a.length >= 0 && a.written > a.length {
		return 0, http.ErrContentLength
	}
	if !a.ended {
		if a.length < 0 {
			more := min(len(p), heldBytes-len(a.held))
			a.held = append(a.held, p[:more]...)
			if more == len(p) {
				return len(p), nil // that may be all
			}
			a.endHead(a.held, false)
			a.release()
			a.part(p[more:])
			return len(p), a.err
		}
		a.endHead(p, false)
	}
	a.part(p)
	return len(p), a.err
}

// release writes what was held.
func (a *answer) release() {
	a.part(a.held)
	a.held = a.held[:0]
}

// part writes a part of the body behind the head.
func (a *answer) part(p []byte) {
	if a.toHEAD || len(p) == 0 {
		return
	}
	if a.chunked {
		a.out = append(strconv.AppendInt(a.out, int64(len(p)), 16), "\r\n"...)
	}
	if a.fits(len(p) + len("\r\n")) {
		a.out = append(a.out, p...)
	} else {
		a.send()
		a.write(p)
	}
	if a.chunked {
		a.out = append(a.out, "\r\n"...)
	}
}

// fits reports whether so many bytes more may wait to be sent, and makes room for them.
func (a *answer) fits(more int) bool {
	need := len(a.out) + more
	switch {
	case need <= cap(a.out):
	case need > mostOut:
		return false
	case a.large == nil:
		a.large = larges.Get().(*[mostOut]byte)
		a.out = append(a.large[:0], a.out...)
	}
	return true
}

var larges = sync.Pool{New: func() any { return new([mostOut]byte) }}

// send sends what there is.
func (a *answer) send() {
	a.write(a.out)
	a.out, a.sayAt = a.out[:0], 0
}

func (a *answer) write(p []byte) {
	if a.err == nil && len(p) > 0 {
		_, a.err = a.c.net.Write(p)
	}
}

// FlushError sends what there is of the answer.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !a.ended {
		a.endHead(a.held, false)
		a.release()
	}
	a.send()
	return a.err
}

// Flush is FlushError for handlers that know no http.ResponseController.
func (a *answer) Flush() { _ = a.FlushError() }

// EnableFullDuplex is what this always is: the body of a request is not read for the sake of its answer.
func (a *answer) EnableFullDuplex() error { return nil }

// SetReadDeadline bounds the wait for the body of the request.
func (a *answer) SetReadDeadline(t time.Time) error {
	a.c.deadline.Store(true)
	return a.c.net.SetReadDeadline(t)
}

// SetWriteDeadline bounds the sending of the answer. To note a deadline for those who look after connections costs a
// tenth of what it costs to set one, and nearly every answer is sent long before.
func (a *answer) SetWriteDeadline(t time.Time) error {
	c := a.c
	c.unnote()
	left := time.Until(t)
	if c.deadline.Load() || !t.IsZero() && left < scanEvery {
		c.deadline.Store(true)
		return c.net.SetWriteDeadline(t)
	}
	if !t.IsZero() {
		c.writeBy.Store(c.server.tick.Load() + ticks(left))
	}
	return nil
}

// finish sends what is left, and reports whether another request may follow. whole says that all of the request's body
// has come.
func (a *answer) finish(whole bool) (more bool) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.closes = a.closes || !whole; a.closes {
		a.sayClose()
	}
	if !a.ended {
		a.endHead(a.held, true)
		a.release()
	}
	if a.chunked {
		a.out = append(a.out, "0\r\n"...)
		a.trailer()
		a.out = append(a.out, "\r\n"...)
	}
	a.send()
	if a.large != nil {
		larges.Put(a.large)
		a.large, a.out = nil, a.small[:0]
	}
	short := !a.toHEAD && !a.bodiless && a.length >= 0 && a.written != a.length
	return whole && !a.closes && !short && a.err == nil
}

// trailer writes the fields that were announced, and those that a handler marked as such.
func (a *answer) trailer() {
	for _, name := range a.sorted() {
		values := a.header[name]
		marked, ok := strings.CutPrefix(name, http.TrailerPrefix)
		switch {
		case ok:
			name = textproto.CanonicalMIMEHeaderKey(marked)
			if !mayTrail(name) {
				continue
			}
		case !slices.Contains(a.names, name):
			continue
		}
		for _, value := range values {
			a.field(name, value)
		}
	}
}
