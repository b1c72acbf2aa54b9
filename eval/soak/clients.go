package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// kind is what a client does on one connection until it ends it, or fails. What it returns is what was wrong.
type kind struct {
	name string
	do   func(c *client) error

	done *atomic.Int64
}

var kinds = []kind{
	{"asking", asking, new(atomic.Int64)},
	{"putting", putting, new(atomic.Int64)},
	{"uploading", uploading, new(atomic.Int64)},
	{"pipelining", pipelining, new(atomic.Int64)},
	{"refused", refused, new(atomic.Int64)},
	{"for net/http", forNetHTTP, new(atomic.Int64)},
	{"leaving", leaving, new(atomic.Int64)},
}

// client has one connection.
type client struct {
	net.Conn
	read *bufio.Reader
	ctx  context.Context
	done *atomic.Int64
	lost *atomic.Int64 // answers that could not be had
}

// repeat has clients of a kind come one after the other.
func (s *site) repeat(ctx context.Context, k kind) {
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("tcp", s.at, 10*time.Second)
		if err != nil {
			s.wrong(k.name, err)
			return
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		c := &client{Conn: conn, read: bufio.NewReader(conn), ctx: ctx, done: k.done, lost: &s.lost}
		if err := k.do(c); err != nil {
			s.wrong(k.name, err)
		}
		_ = conn.Close()
	}
}

// some is how many requests a client has for its connection.
func some() int { return 1 + rand.IntN(200) }

func (c *client) send(format string, about ...any) error {
	_, err := fmt.Fprintf(c, format, about...)
	return err
}

// answer reads one and compares it; a client cannot know what comes behind one that is wrong.
func (c *client) answer(method string, status int, body []byte) error {
	got, err := http.ReadResponse(c.read, &http.Request{Method: method})
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	read, err := io.ReadAll(got.Body)
	switch {
	case err != nil:
		return fmt.Errorf("of an answer %d bytes came: %w", len(read), err)
	case got.StatusCode != status:
		return &unexpected{got.StatusCode, status}
	case body != nil && !bytes.Equal(read, body):
		return fmt.Errorf("an answer of %d bytes is not the one of %d bytes that was asked for", len(read), len(body))
	}
	c.done.Add(1)
	return nil
}

// unexpected is an answer with another status than one that was asked for.
type unexpected struct{ status, want int }

func (u *unexpected) Error() string { return fmt.Sprintf("an answer is %d, want %d", u.status, u.want) }

func asking(c *client) error {
	for range some() {
		if c.ctx.Err() != nil {
			return nil
		}
		n := rand.IntN(100_000)
		if err := c.send("GET /v1/items/%d HTTP/1.1\r\nHost: a\r\n\r\n", n); err != nil {
			return err
		}
		if err := c.answer("GET", http.StatusOK, item(n)); err != nil {
			return err
		}
	}
	return nil
}

// putting sends bodies that the gateway can send again, to a server that takes the place of one that begins anew.
func putting(c *client) error {
	for range some() {
		if c.ctx.Err() != nil {
			return nil
		}
		if err := c.put(rand.IntN(1<<uint(rand.IntN(13)) + 1)); err != nil {
			return err
		}
	}
	return nil
}

// uploading sends bodies that pass as they come. Nobody has them any more when a server ends the connection that they
// were sent on, so that a 502 may be the answer to one.
func uploading(c *client) error {
	for range some() / 8 {
		if c.ctx.Err() != nil {
			return nil
		}
		var wrong *unexpected
		if err := c.put(8<<10 + rand.IntN(1<<20)); errors.As(err, &wrong) && wrong.status == http.StatusBadGateway {
			c.lost.Add(1)
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (c *client) put(size int) error {
	body := bytes.Repeat([]byte{byte(rand.Uint32())}, size)
	if err := c.send("PUT /v1/sums HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return err
	}
	return c.answer("PUT", http.StatusOK, fmt.Appendf(nil, "%x", sha256.Sum256(body)))
}

func pipelining(c *client) error {
	for range some() / 4 {
		if c.ctx.Err() != nil {
			return nil
		}
		var all bytes.Buffer
		asked := make([]int, 2+rand.IntN(6))
		for i := range asked {
			asked[i] = rand.IntN(100_000)
			fmt.Fprintf(&all, "GET /v1/items/%d HTTP/1.1\r\nHost: a\r\n\r\n", asked[i])
		}
		if _, err := c.Write(all.Bytes()); err != nil {
			return err
		}
		for _, n := range asked {
			if err := c.answer("GET", http.StatusOK, item(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func refused(c *client) error {
	for range some() {
		if c.ctx.Err() != nil {
			return nil
		}
		if err := c.send("GET /v1/spent HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		if err := c.answer("GET", http.StatusTooManyRequests, nil); err != nil {
			return err
		}
	}
	return nil
}

// forNetHTTP sends what the engine for plain requests does not read, behind what it does. A chunked request is the last
// one of its connection.
func forNetHTTP(c *client) error {
	n := rand.IntN(100_000)
	if err := c.send("GET /v1/items/%d HTTP/1.1\r\nHost: a\r\n\r\n", n); err != nil {
		return err
	}
	if err := c.answer("GET", http.StatusOK, item(n)); err != nil {
		return err
	}
	for range rand.IntN(10) {
		if err := c.send("GET /v1/items/%d HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\n\r\n", n); err != nil {
			return err
		}
		if err := c.answer("GET", http.StatusOK, item(n)); err != nil {
			return err
		}
	}
	text := fmt.Sprint(n)
	if err := c.send("PUT /v1/sums HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
		len(text), text); err != nil {
		return err
	}
	var wrong *unexpected
	err := c.answer("PUT", http.StatusOK, fmt.Appendf(nil, "%x", sha256.Sum256([]byte(text))))
	if errors.As(err, &wrong) && wrong.status == http.StatusBadGateway {
		c.lost.Add(1)
		return nil
	}
	return err
}

// leaving goes away in the middle: of a head, of a body, of an answer, or before one.
func leaving(c *client) error {
	defer c.done.Add(1)
	switch rand.IntN(5) {
	case 0:
		_ = c.send("GET /v1/items/1 HTTP/1.1\r\nHos")
	case 1:
		_ = c.send("PUT /v1/sums HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\nhalf")
	case 2:
		_ = c.send("GET /v1/large HTTP/1.1\r\nHost: a\r\n\r\n")
		_, _ = io.CopyN(io.Discard, c.read, 100_000)
	case 3:
		_ = c.send("GET /v1/slow HTTP/1.1\r\nHost: a\r\n\r\n")
		pause(c.ctx, time.Duration(rand.IntN(2000))*time.Millisecond)
	case 4:
		_ = c.send("PUT /v1/sums HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha")
	}
	if rand.IntN(2) == 0 {
		_ = c.Conn.(*net.TCPConn).SetLinger(0) // a reset
	}
	pause(c.ctx, time.Duration(rand.IntN(50))*time.Millisecond)
	return nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
