package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of one command.
const (
	maxArguments = 1 << 10
	maxArgument  = 64 << 10 // bytes
	maxCommand   = 256 << 10

	maxKept = 8 << 10 // bytes that a connection keeps between commands
)

// protocolError is what is said to a client that does not speak the protocol,
// before its connection is closed.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

// commands reads those of one connection.
type commands struct {
	in   *bufio.Reader
	text []byte // of the arguments, one behind the other
	ends []int  // of each
	args [][]byte
}

// next returns the arguments of the next command, in memory that the one after it
// reuses. A command is an array of bulk strings, or a line of words. An empty one
// is skipped.
func (c *commands) next() ([][]byte, error) {
	for {
		c.args = c.args[:0]
		if c.whole() {
			return c.args, nil
		}
		if cap(c.text) > maxKept { // connections are many, and long commands seldom
			c.text = nil
		}
		c.text, c.ends, c.args = c.text[:0], c.ends[:0], c.args[:0]
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		switch {
		case len(line) == 0:
			continue
		case line[0] != '*':
			c.args = append(c.args, bytes.Fields(line)...)
		default:
			if err := c.array(line[1:]); err != nil {
				return nil, err
			}
		}
		if len(c.args) > 0 {
			return c.args, nil
		}
	}
}

// whole reads an array of bulk strings that has come as a whole, as most do, where it lies. It reports false for
// whatever else is there, and for what is wrong, which array is to read.
func (c *commands) whole() bool {
	all, _ := c.in.Peek(c.in.Buffered())
	count, rest, ok := length(all, '*', maxArguments)
	if !ok || count == 0 {
		return false
	}
	for ; count > 0; count-- { // the buffer is smaller than maxCommand
		var size int
		if size, rest, ok = length(rest, '$', maxArgument); !ok {
			return false
		}
		if len(rest) < size+2 || rest[size] != '\r' || rest[size+1] != '\n' {
			return false
		}
		c.args = append(c.args, rest[:size:size])
		rest = rest[size+2:]
	}
	_, _ = c.in.Discard(len(all) - len(rest)) // it stays in the buffer until that is read into
	return true
}

// length takes a line off b that is a kind and a number of at most four or five digits, as almost all are.
func length(b []byte, kind byte, most int) (n int, rest []byte, ok bool) {
	if len(b) < 4 || b[0] != kind {
		return 0, nil, false
	}
	at := 1
	for ; at < min(len(b), 7) && '0' <= b[at] && b[at] <= '9'; at++ {
		n = n*10 + int(b[at]-'0')
	}
	if at == 1 || n > most || len(b) < at+2 || b[at] != '\r' || b[at+1] != '\n' {
		return 0, nil, false
	}
	return n, b[at+2:], true
}

// array reads the elements of an array; count is its length in digits.
func (c *commands) array(count []byte) error {
	n, err := number(count, maxArguments)
	if err != nil {
		return protocolError("invalid multibulk length")
	}
	for range n {
		line, err := c.line()
		if err != nil {
			return unexpected(err)
		}
		if len(line) == 0 || line[0] != '$' {
			return protocolError("expected '$'")
		}
		size, err := number(line[1:], maxArgument)
		if err != nil || len(c.text)+size > maxCommand {
			return protocolError("invalid bulk length")
		}
		start := len(c.text)
		c.text = append(c.text, make([]byte, size+2)...)
		if _, err := io.ReadFull(c.in, c.text[start:]); err != nil {
			return unexpected(err)
		}
		if c.text[start+size] != '\r' || c.text[start+size+1] != '\n' {
			return protocolError("a bulk string does not end where it says")
		}
		c.text = c.text[:start+size]
		c.ends = append(c.ends, len(c.text))
	}
	start := 0
	for _, end := range c.ends { // only now, as text may have moved
		c.args = append(c.args, c.text[start:end:end])
		start = end
	}
	return nil
}

// line reads up to a line break, and returns what is before it.
func (c *commands) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, protocolError("too big inline request")
	case err == io.EOF && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// number reads digits, of a number that is at most most.
func number(digits []byte, most int) (int, error) {
	if len(digits) == 0 || len(digits) > 10 {
		return 0, errors.New("no length")
	}
	n := 0
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, errors.New("no length")
		}
		n = n*10 + int(d-'0')
	}
	if n > most {
		return 0, fmt.Errorf("%d is more than %d", n, most)
	}
	return n, nil
}

// unexpected says that a command broke off.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Replies, each appended to b.

func appendInt(b []byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, ':'), n, 10), '\r', '\n')
}

func appendLength(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

func appendBulk(b []byte, text string) []byte {
	return append(append(appendLength(b, '$', len(text)), text...), '\r', '\n')
}

func appendStatus(b []byte, text string) []byte {
	return append(append(append(b, '+'), text...), '\r', '\n')
}

// appendError writes an error. What a client sent may be in it, so that line breaks
// are left out.
func appendError(b []byte, text string) []byte {
	b = append(b, '-')
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c != 0x7f {
			b = append(b, c)
		}
	}
	return append(b, '\r', '\n')
}
