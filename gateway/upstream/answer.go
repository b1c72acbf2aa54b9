package upstream

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"
)

// Answer is what a server answers to a request. It is filled in by Pool.Do and is to be closed
// then, whatever was read of it; closed, it may be used for the next one. It is for one goroutine.
type Answer struct {
	Status int     // 200 to 999
	Head   []byte  // its text, until Read or Close
	Fields []Field // in Head
	Length int64   // of the body in bytes, -1 if nobody knows; 0 for those that have none

	// Trailer are the fields behind the body, once that was read to its end.
	Trailer []TrailerField

	pool  *Pool
	conn  *conn
	head  head
	ended bool  // the body was read to its end
	left  int64 // of the body, or of the present chunk, in bytes
	shape int64 // of the body, as head.length
	part  part  // of a chunked body that comes next

	ctx     context.Context
	began   time.Time
	stop    func() bool // of watching ctx; nil while nobody does
	failed  error       // the connection is of no use any more
	sending *sending    // the request's body, while it is sent beside
}

// TrailerField is a field of a trailer.
type TrailerField struct{ Name, Value string }

type part uint8

const (
	chunkSize part = iota
	chunkData
	chunkEnd // the line end behind the data
	chunkTrailer
)

const (
	maxChunkLine    = 256      // bytes of the line with a chunk's size
	maxTrailer      = 16 << 10 // bytes
	maxTrailerLines = 64
)

// Ended reports whether the body was read to its end. It may be known before a Read returns io.EOF.
func (a *Answer) Ended() bool { return a.ended }

// Chunked reports whether the body comes in chunks, behind which there may be a trailer.
func (a *Answer) Chunked() bool { return a.shape == chunked }

// Waits reports whether the next Read may have to wait for the server.
func (a *Answer) Waits() bool { return !a.ended && a.conn.r == a.conn.w }

// Read reads the body. An answer that breaks off ends with io.ErrUnexpectedEOF or what the connection failed by.
func (a *Answer) Read(p []byte) (n int, err error) {
	switch {
	case a.ended:
		return 0, io.EOF
	case a.failed != nil:
		return 0, a.failed
	case len(p) == 0:
		return 0, nil
	case a.shape == chunked:
		n, err = a.readChunks(p)
	default:
		if a.shape != untilClose {
			p = p[:min(int64(len(p)), a.left)]
		}
		n, err = a.readSome(p)
		switch {
		case a.shape == untilClose && err == io.EOF:
			a.ended = true
			return n, io.EOF
		case a.shape != untilClose:
			a.left -= int64(n)
			a.ended = a.left == 0
		}
	}
	if a.ended {
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		a.failed = err
	}
	return n, err
}

// readSome reads what is there, or once from the server.
func (a *Answer) readSome(p []byte) (n int, err error) {
	c := a.conn
	if c.r < c.w {
		n = copy(p, c.buf[c.r:c.w])
		c.r += n
		return n, nil
	}
	for {
		n, err = c.Conn.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if err = a.goesOn(err); err != nil {
			return 0, err
		}
	}
}

// fill reads into the buffer.
func (a *Answer) fill() error {
	for {
		err := a.conn.fill()
		if err == nil {
			return nil
		}
		if err = a.goesOn(err); err != nil {
			return err
		}
	}
}

// readChunks reads chunks until p is full or the server is to be waited for.
func (a *Answer) readChunks(p []byte) (n int, err error) {
	for {
		switch a.part {
		case chunkData:
			if n == len(p) || n > 0 && a.conn.r == a.conn.w {
				return n, nil
			}
			m, err := a.readSome(p[n:min(int64(len(p)), int64(n)+a.left)])
			n, a.left = n+m, a.left-int64(m)
			if err != nil {
				return n, err
			}
			if a.left == 0 {
				a.part = chunkEnd
			}
			continue
		case chunkEnd, chunkSize, chunkTrailer:
		}
		if n > 0 && bytes.IndexByte(a.conn.unused(), '\n') < 0 {
			return n, nil // what is there does not wait for the next line
		}
		line, err := a.line()
		if err != nil {
			return n, err
		}
		switch a.part {
		case chunkEnd:
			if len(line) > 0 {
				return n, malformed("a chunk is longer than its size")
			}
			a.part = chunkSize
		case chunkSize:
			if a.left, err = parseChunkSize(line); err != nil {
				return n, err
			}
			a.part = chunkData
			if a.left == 0 {
				a.part = chunkTrailer
			}
		case chunkTrailer:
			if len(line) == 0 {
				a.ended = true
				return n, nil
			}
			if err := a.trailerLine(line); err != nil {
				return n, err
			}
		}
	}
}

// line returns the next line without its end. It is good until the next read.
func (a *Answer) line() ([]byte, error) {
	most := maxChunkLine
	switch a.part {
	case chunkEnd:
		most = 0
	case chunkTrailer:
		most = maxTrailer
	}
	c, seen := a.conn, 0
	for {
		text := c.unused()
		if n := bytes.IndexByte(text[seen:], '\n'); n >= 0 {
			end := seen + n
			if end == 0 || text[end-1] != '\r' {
				return nil, malformed("a line of its chunks ends without CR")
			}
			c.r += end + 1
			return text[:end-1], nil
		}
		if seen = len(text); seen > most+len("\r") {
			return nil, malformed("a line of its chunks has more than %d bytes", most)
		}
		if err := a.fill(); err != nil {
			return nil, err
		}
	}
}

// parseChunkSize reads 1a2;name=value. Extensions mean nothing to anybody (RFC 9112 section 7.1.1). Spaces
// behind the size are those with which some servers fill it up.
func parseChunkSize(line []byte) (n int64, err error) {
	digits := bytes.TrimRight(line, " \t")
	if semicolon := bytes.IndexByte(line, ';'); semicolon >= 0 {
		digits = line[:semicolon]
	}
	if len(digits) == 0 || len(digits) > 15 || len(line) > maxChunkLine || !plain(line) {
		return 0, malformed("the size of a chunk is %.40q", line)
	}
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, malformed("the size of a chunk is %.40q", line)
		}
		n = n<<4 | int64(c)
	}
	return n, nil
}

func (a *Answer) trailerLine(line []byte) error {
	a.left += int64(len(line))
	if len(a.Trailer) == maxTrailerLines || a.left > maxTrailer {
		return malformed("its trailer has more than %d fields, or %d bytes", maxTrailerLines, maxTrailer)
	}
	f, err := parseField(line, 0, len(line))
	if err != nil {
		return err
	}
	text := string(line)
	a.Trailer = append(a.Trailer, TrailerField{strings.Clone(f.Name(text)), strings.Clone(f.Value(text))})
	return nil
}

// Close gives the connection back, if it can be used again, or ends it.
func (a *Answer) Close() {
	if a.conn == nil {
		return
	}
	c := a.conn
	keep := a.ended && a.failed == nil && a.head.keep
	if a.sending != nil {
		keep = a.sending.over(keep)
	}
	if a.stop != nil && !a.stop() {
		keep = false // ctx is over, and whoever watches it may just be closing the connection
	}
	if !c.rest() {
		keep = false
	}
	now := a.began
	if a.stop != nil {
		now = time.Now() // it took a while
	}
	a.pool.release(c, keep, now)
	a.conn, a.stop, a.ctx, a.sending = nil, nil, nil, nil
	a.Head, a.Fields, a.Trailer = nil, nil, nil
}
