//go:build unix

package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Conn is one connection to a server, made when it is needed: as little of a client as tests can do with.
type Conn struct {
	socket string

	mu   sync.Mutex
	conn net.Conn      // guarded by mu; nil if there is none
	in   *bufio.Reader // guarded by mu
}

// Dial connects to a socket, or to host:port, once something is asked.
func Dial(socket string) *Conn { return &Conn{socket: socket} }

// Throttle makes a Conn what buckets by CL.THROTTLE want. It gives up at the deadline of ctx.
func (c *Conn) Throttle(ctx context.Context, key string, args ...string) (any, error) {
	deadline, _ := ctx.Deadline()
	return c.Do(deadline, append([]string{"CL.THROTTLE", key}, args...)...)
}

// Eval makes a Conn what bucket/redis wants. It gives up at the deadline of ctx.
func (c *Conn) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	words := append([]string{command, script, strconv.Itoa(len(keys))}, keys...)
	deadline, _ := ctx.Deadline()
	answer, err := c.Do(deadline, append(words, args...)...)
	if expired := ctx.Err(); expired != nil {
		return nil, expired
	}
	return answer, err
}

// Do sends a command and reads the answer: a string, an int64, a []any, or nil.
func (c *Conn) Do(deadline time.Time, command ...string) (answer any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		network := "unix"
		if !strings.HasPrefix(c.socket, "/") {
			network = "tcp"
		}
		if c.conn, err = net.Dial(network, c.socket); err != nil {
			return nil, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, word := range command {
		text = append(fmt.Appendf(text, "$%d\r\n", len(word)), word+"\r\n"...)
	}
	if _, err = c.conn.Write(text); err == nil {
		answer, err = read(c.in)
	}
	var said serverError
	if err != nil && !errors.As(err, &said) {
		_ = c.conn.Close() // who knows what it answers next
		c.conn = nil
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the server closed the connection: %w", err)
		}
	}
	return answer, err
}

// Close ends the connection.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }

func read(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, serverError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, err
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	case kind != '*':
		return nil, fmt.Errorf("an answer begins with %q", kind)
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = read(in); err != nil {
			return nil, err
		}
	}
	return list, nil
}
