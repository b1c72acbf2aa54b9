package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// request is what one request line asks, as bytes.
type request struct {
	method, target string
	form           string // a body of a form; "" for none
}

func (r request) append(dst []byte, id int) []byte {
	dst = append(dst, r.method...)
	dst = append(dst, ' ')
	dst = append(dst, r.target...)
	dst = append(dst, " HTTP/1.1\r\nHost: api.example.com\r\nX-Id: "...)
	dst = strconv.AppendInt(dst, int64(id), 10)
	if r.form != "" || r.method == "POST" {
		dst = append(dst, "\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(r.form)), 10)
	}
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, r.form...)
}

func (r request) String() string { return strconv.Quote(string(r.append(nil, 1))) }

// answer is what came back.
type answer struct {
	status  int    // 0: the connection ended without an answer
	route   string // the one that served; "" or - for none
	method  string // as the server read it
	user    string // the field of a form as the server read it
	charged string // the endpoint whose budget paid, where a gateway stood between
	strange bool   // it is the answer to another request
}

// reached reports whether a route served the request.
func (a answer) reached() bool {
	// Apache, which refused it before it had looked
	return a.status != 0 && a.route != "" && a.route != "-" && a.route != "(null)"
}

const (
	clients      = 8
	frontClients = 16 // of a gateway: as many as the server with the fewest threads has
	patience     = 5 * time.Second
)

// ask sends requests to addr over several connections, window of them at a time on each, and
// returns the answers in order. A window of 0 is a connection for each. Each connection takes the
// next that nobody has taken: one that waits in vain, for as long as patience, holds up no others.
func ask(addr string, window int, requests []request) []answer {
	return askBy(clients, addr, window, requests)
}

// askBy is ask over so many connections.
func askBy(clients int, addr string, window int, requests []request) []answer {
	answers := make([]answer, len(requests))
	var next atomic.Int64
	var wg sync.WaitGroup
	size := max(window, 1)
	for range clients {
		wg.Go(func() {
			c := client{addr: addr}
			defer c.close()
			for {
				end := int(next.Add(int64(size)))
				at := end - size
				if at >= len(requests) {
					return
				}
				for end = min(end, len(requests)); at < end; {
					if window == 0 {
						c.close()
					}
					n := c.batch(requests[at:end], answers[at:end], at)
					at += max(n, 1) // what ends the connection unanswered is answered by that
				}
			}
		})
	}
	wg.Wait()
	return answers
}

// client is one connection, made anew when the other side ends it.
type client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	used bool
	buf  []byte
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn, c.used = nil, false
}

// batch sends requests at once and reads their answers as far as they come. It returns how many came.
func (c *client) batch(requests []request, answers []answer, first int) (n int) {
	for try := 0; ; try++ {
		fresh := !c.used
		if n = c.once(requests, answers, first); n > 0 || fresh || try > 1 {
			return n
		}
		// The connection was ended before: once more on a new one.
	}
}

func (c *client) once(requests []request, answers []answer, first int) (n int) {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			return 0
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	c.used = true
	c.buf = c.buf[:0]
	for i, r := range requests {
		c.buf = r.append(c.buf, first+i)
	}
	c.conn.SetDeadline(time.Now().Add(patience))
	c.conn.Write(c.buf) // an error shows when the answers are read
	for i, r := range requests {
		a, last, err := read(c.in, r.method, first+i)
		if err != nil {
			c.close()
			return n
		}
		answers[i] = a
		n++
		if last {
			c.close()
			return n
		}
	}
	return n
}

func read(in *bufio.Reader, method string, id int) (a answer, last bool, err error) {
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return a, true, err
	}
	if response.ContentLength < 0 && len(response.TransferEncoding) == 0 {
		response.Close = true // and nobody waits for the end
	} else if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return a, true, err
	}
	h := response.Header
	user, err := url.QueryUnescape(h.Get("X-User")) // escaped, as not every server may write all bytes into a field
	if err != nil {
		return a, true, fmt.Errorf("the server quotes a user as %q: %w", h.Get("X-User"), err)
	}
	a = answer{
		status:  response.StatusCode,
		route:   h.Get("X-Route"),
		method:  h.Get("X-Method"),
		user:    user,
		charged: charged(h),
	}
	if got := h.Get("X-Id"); got != "" && got != strconv.Itoa(id) {
		a.strange = true
	}
	return a, response.Close, nil
}

// charged is the name of the rule that RateLimit-Policy tells: the gateway of the garden has one for every template.
func charged(h http.Header) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(h.Get("RateLimit-Policy"), `"`), `"`)
	return name
}

// shrink returns a part of b that still fails, from which nothing can be left out. It costs at most tries calls.
func shrink(b string, tries int, fails func(string) bool) string {
	for size := len(b) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(b) && tries > 0; {
			less := b[:at] + b[at+size:]
			tries--
			if fails(less) {
				b = less
			} else {
				at += size
			}
		}
	}
	return b
}
