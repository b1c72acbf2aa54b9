package hold

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// headSlack is the request line and the empty line behind a head.
const headSlack = 2

var errTooManyHeaders = errors.New("the head has too many lines")

// head counts the lines of a head while it is read. net/http bounds the bytes of
// a head alone, and thousands of fields of a few bytes are what costs most to
// parse. What it reads between requests is a head, and a body behind it perhaps.
type head struct {
	on    bool // for this connection
	ended bool
	count int
	line  int // bytes of the line so far, without a CR
}

// lines goes on with p and returns how many lines the head has so far.
func (h *head) lines(p []byte) int {
	for len(p) > 0 && !h.ended {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			h.line += len(p) - bytes.Count(p, []byte{'\r'})
			break
		}
		h.line += end - bytes.Count(p[:end], []byte{'\r'})
		switch {
		case h.line > 0:
			h.count++
		case h.count > 0: // empty lines before the first one are passed over
			h.ended = true
		}
		h.line, p = 0, p[end+1:]
	}
	return h.count
}

const (
	tooMany = "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nCache-Control: no-store\r\n" +
		"Content-Length: 0\r\n\r\n"

	// restWithin and restBytes bound what is read of a head that was refused, so
	// that the answer is not lost: a socket with unread bytes is reset.
	restWithin = 500 * time.Millisecond
	restBytes  = 64 << 10
)

// tooManyHeaders answers in net/http's place.
func (c *conn) tooManyHeaders() {
	by := time.Now().Add(restWithin)
	if c.Conn.SetDeadline(by) != nil {
		return
	}
	if _, err := io.WriteString(c.Conn, tooMany); err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, restBytes)
	}
}
