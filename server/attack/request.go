package attack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Request is a request as it goes over the wire: nothing of it is cleaned.
type Request struct {
	Method, Target string
	Header         []Field
	Body           string

	// Closes says that the client ends its side of the connection behind the request, and waits for the answer.
	Closes bool
}

// Field is one header line.
type Field struct{ Name, Value string }

// With returns r with more header lines. It leaves r alone.
func (r Request) With(fields ...Field) Request {
	r.Header = append(r.Header[:len(r.Header):len(r.Header)], fields...)
	return r
}

// Client sends requests over one connection that it keeps, and follows no redirect. It is for one goroutine.
type Client struct {
	// Dial makes a connection.
	Dial func(context.Context) (net.Conn, error)

	// Host is the Host field, Agent the User-Agent.
	Host, Agent string

	// Patience bounds one request. Default 10s.
	Patience time.Duration

	// Outcome, if set, says as a status what became of a request whose answer begins with text. Default: the answer's.
	Outcome func(status int, header http.Header, text []byte) int

	// Whole says that answers are read to their end, and Moved how many bytes the bodies of the last request and its
	// answer had, of both as far as they came.
	Whole bool
	Moved int64

	conn    net.Conn
	answers *bufio.Reader
}

// Connect makes the connection, if there is none.
func (c *Client) Connect(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := c.Dial(ctx)
	if err == nil {
		c.conn, c.answers = conn, bufio.NewReader(conn)
	}
	return err
}

// maxAnswer bounds what is read of a body. Of a longer one the connection is not used again.
const maxAnswer = 64 << 10

// Do sends r and returns the status of the answer.
func (c *Client) Do(ctx context.Context, r Request) (status int, err error) {
	for attempt := 0; ; attempt++ {
		kept := c.conn != nil
		status, err = c.try(ctx, r)
		if err == nil || !kept || attempt > 0 || ctx.Err() != nil {
			return status, err
		}
		// The server may have closed a connection that it had kept.
	}
}

func (c *Client) try(ctx context.Context, r Request) (int, error) {
	if err := c.Connect(ctx); err != nil {
		return 0, err
	}
	patience := c.Patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		c.Close()
		return 0, err
	}
	if ctx.Err() != nil { // it may have ended before the deadline was set
		return 0, ctx.Err()
	}
	if _, err := io.WriteString(conn, c.text(r)); err != nil {
		c.Close()
		return 0, err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && r.Closes {
		_ = half.CloseWrite() // what the server has made of it is seen
	}
	c.Moved = int64(len(r.Body))
	status, reusable, err := c.read(r.Method)
	if err != nil || !reusable || r.Closes {
		c.Close()
	}
	return status, err
}

func (c *Client) text(r Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", r.Method, r.Target, c.Host, c.Agent)
	for _, f := range r.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	if r.Body != "" || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.Body))
	}
	b.WriteString("\r\n")
	b.WriteString(r.Body)
	return b.String()
}

func (c *Client) read(method string) (status int, reusable bool, err error) {
	for {
		answer, err := http.ReadResponse(c.answers, &http.Request{Method: method})
		if err != nil {
			return 0, false, err
		}
		if answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
		more := int64(0)
		if c.Whole && err == nil {
			more, err = io.Copy(io.Discard, answer.Body)
		}
		c.Moved += int64(len(text)) + more
		answer.Body.Close()
		// A body that breaks off was still an answer.
		reusable = err == nil && (len(text) <= maxAnswer || c.Whole) && !answer.Close
		if c.Outcome != nil {
			return c.Outcome(answer.StatusCode, answer.Header, text), reusable, nil
		}
		return answer.StatusCode, reusable, nil
	}
}

// open reports whether the server has kept a connection on which nobody says anything.
func (c *Client) open() bool {
	if c.conn == nil || c.conn.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	_, err := c.answers.Peek(1)
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// Close ends the connection. The next request makes another.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn, c.answers = nil, nil
	}
}
