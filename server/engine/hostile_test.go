package engine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// evil is an answer that nobody asked for.
const evil = "HTTP/1.1 200 OK\r\nX-Id: evil\r\nSet-Cookie: evil=1\r\nContent-Length: 4\r\n\r\nevil"

// way is one in which an API answers.
type way struct {
	name   string
	honest bool // the client has the whole answer
	early  bool // before the body of the request is read
	text   string
	ends   bool // the connection
	cut    bool // it breaks off, so that the client has a part, or nothing and the end
}

// Answers as they should be.
const (
	sized    = "HTTP/1.1 200 OK\r\nX-Id: ID\r\nContent-Length: LEN\r\n\r\nbody of ID"
	inChunks = "HTTP/1.1 200 OK\r\nX-Id: ID\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// ways answers request ID; a server that is not to be trusted chooses among them.
var ways = []way{
	{name: "a length", honest: true, text: sized},
	{name: "chunks", honest: true,
		text: inChunks + "5\r\nbody \r\n3\r\nof \r\nIDX\r\nID\r\n0\r\nX-Sum: ID\r\n\r\n"},
	{name: "until it closes", honest: true, ends: true, text: "HTTP/1.1 200 OK\r\nX-Id: ID\r\n\r\nbody of ID"},
	{name: "after others", honest: true,
		text: "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + sized},
	{name: "early", honest: true, early: true, text: sized},
	{name: "early, and it ends", early: true, ends: true,
		text: "HTTP/1.1 200 OK\r\nX-Id: ID\r\nConnection: close\r\nContent-Length: LEN\r\n\r\nbody of ID"},
	{name: "two answers", honest: true, text: sized + evil},
	{name: "two answers, in chunks", honest: true,
		text: inChunks + "8\r\nbody of \r\nIDX\r\nID\r\n0\r\n\r\n" + evil},
	{name: "early, and two answers", honest: true, early: true, text: sized + evil},
	{name: "no content, and an answer", text: "HTTP/1.1 204 No Content\r\nX-Id: ID\r\n\r\n" + evil},
	{name: "not modified, and an answer",
		text: "HTTP/1.1 304 Not Modified\r\nX-Id: ID\r\nContent-Length: 5\r\n\r\n" + evil},
	{name: "no content, in chunks",
		text: "HTTP/1.1 204 No Content\r\nX-Id: ID\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{name: "shorter", cut: true, ends: true,
		text: "HTTP/1.1 200 OK\r\nX-Id: ID\r\nContent-Length: 900000\r\n\r\nbody of ID"},
	{name: "fewer chunks", cut: true, ends: true, text: inChunks + "5\r\nbody "},
	{name: "a long chunk", cut: true, text: inChunks + "5\r\nbody " + evil},
	{name: "both lengths",
		text: "HTTP/1.1 200 OK\r\nX-Id: evil\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
			"\r\n" + evil},
	{name: "two lengths",
		text: "HTTP/1.1 200 OK\r\nX-Id: evil\r\nContent-Length: 0\r\nContent-Length: 4\r\n\r\n" + evil},
	{name: "a split header", text: "HTTP/1.1 200 OK\r\nX: a\nX-Id: evil\r\nContent-Length: 0\r\n\r\n"},
	{name: "a folded header", text: "HTTP/1.1 200 OK\r\nX: a\r\n X-Id: evil\r\nContent-Length: 0\r\n\r\n"},
	{name: "a header in a trailer", cut: true, text: inChunks + "0\r\nX: a\nX-Id: evil\r\n\r\n"},
	{name: "a flood of 1xx", text: strings.Repeat("HTTP/1.1 102 Processing\r\nX-Id: ID\r\n\r\n", 100) + evil},
	{name: "interim with a body", text: "HTTP/1.1 103 Early Hints\r\nContent-Length: 4\r\n\r\nevil" + evil},
	{name: "another protocol",
		text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + evil},
	{name: "no HTTP", text: "evil\r\n" + evil},
	{name: "nothing", ends: true},
}

// hostileAPI answers each request in a way that is chosen by its number.
type hostileAPI struct {
	listener net.Listener
	choose   func(id int) way
	all      sync.WaitGroup
}

func (h *hostileAPI) serve() {
	for {
		c, err := h.listener.Accept()
		if err != nil {
			return
		}
		h.all.Go(func() {
			defer c.Close()
			for in := bufio.NewReader(c); h.answer(c, in); {
			}
		})
	}
}

// answer answers one request, and reports whether another may follow.
func (h *hostileAPI) answer(c net.Conn, in *bufio.Reader) bool {
	head := textproto.NewReader(in)
	if _, err := head.ReadLine(); err != nil {
		return false
	}
	fields, err := head.ReadMIMEHeader()
	if err != nil {
		return false
	}
	number := fields.Get("X-Id")
	id, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	length, _ := strconv.ParseInt(fields.Get("Content-Length"), 10, 64)
	w := h.choose(id)
	text := strings.NewReplacer("IDX", strconv.FormatInt(int64(len(number)), 16), "ID", number,
		"LEN", strconv.Itoa(len("body of "+number))).Replace(w.text)
	if w.early {
		_, _ = io.WriteString(c, text)
		if w.ends {
			return false
		}
	}
	if _, err := io.CopyN(io.Discard, in, length); err != nil {
		return false
	}
	if !w.early {
		_, _ = io.WriteString(c, text)
	}
	return !w.ends
}

// hostileClient asks on connections that it keeps as long as it may.
type hostileClient struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (c *hostileClient) end() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn = nil
}

// ask sends request id, and says what is wrong with its answer. A connection that was used before may just end.
func (c *hostileClient) ask(id, length int, w way) error {
	if c.conn != nil {
		if err := c.once(id, length, w); !errors.Is(err, errEnded) {
			return err
		}
		c.end()
		if w.cut {
			return nil
		}
	}
	err := c.once(id, length, w)
	if w.cut && errors.Is(err, errEnded) {
		c.end()
		return nil
	}
	return err
}

var errEnded = errors.New("no answer")

func (c *hostileClient) once(id, length int, w way) error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	request := fmt.Sprintf("GET /v1/items/%d HTTP/1.1\r\nHost: a\r\nX-Id: %[1]d\r\n\r\n", id)
	method := http.MethodGet
	if length > 0 {
		method = http.MethodPost
		request = fmt.Sprintf("POST /v1/items HTTP/1.1\r\nHost: a\r\nX-Id: %d\r\nContent-Length: %d\r\n\r\n%s", id,
			length, strings.Repeat("x", length))
	}
	var sending sync.WaitGroup
	conn := c.conn
	sending.Go(func() { _, _ = io.WriteString(conn, request) })
	defer sending.Wait()
	for {
		if _, err := c.in.Peek(1); err != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		r, err := http.ReadResponse(c.in, &http.Request{Method: method})
		if err != nil {
			c.end()
			return err
		}
		body, err := io.ReadAll(r.Body)
		of := r.Header.Get("X-Id")
		if r.StatusCode < 200 && (of == "" || of == strconv.Itoa(id)) {
			continue
		}
		if err != nil || r.Close {
			c.end()
		} else if c.in.Buffered() > 0 {
			return fmt.Errorf("%d bytes behind the answer", c.in.Buffered())
		}
		whole := "body of " + strconv.Itoa(id)
		switch {
		case of == "evil" || r.Header.Get("Set-Cookie") != "" || strings.Contains(string(body), "evil"):
			return fmt.Errorf("the answer is %d %v %q", r.StatusCode, r.Header, body)
		case r.StatusCode == http.StatusBadGateway && of == "" && !w.honest:
			return nil
		case r.StatusCode >= 400 || of != strconv.Itoa(id):
			return fmt.Errorf("the answer is %d %v %q", r.StatusCode, r.Header, body)
		case w.honest && (err != nil || string(body) != whole):
			return fmt.Errorf("the body is %q, %v; want %q", body, err, whole)
		case !strings.HasPrefix(whole, string(body)):
			return fmt.Errorf("the body is %q, want a part of %q", body, whole)
		}
		return nil
	}
}

// TestHostileAPI: whatever an API says, no client has an answer to another request, or what is no answer; and those
// whose answer is one have all of it.
func TestHostileAPI(t *testing.T) {
	seed := rand.Uint64()
	choose := func(id int) way { return ways[rand.New(rand.NewPCG(seed, uint64(id))).IntN(len(ways))] }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api := &hostileAPI{listener: l, choose: choose}
	api.all.Go(api.serve)
	defer api.all.Wait()
	defer l.Close()
	pool, err := gateway.NewPool(&url.URL{Scheme: "http", Host: l.Addr().String()}, upstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	bench := trial.New(t, []string{"GET /v1/items/{id}", "POST /v1/items"},
		[]policy.Rule{{Endpoint: policy.Default, Limit: 1 << 30}})
	h, err := gateway.New(gateway.Options{
		Limiter: bench.Limiter, Pool: pool, Upstream: &url.URL{Scheme: "http", Host: l.Addr().String()},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	e, address := started(t, quiet(h))
	const clients, each = 8, 60
	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			c := &hostileClient{address: address}
			defer c.end()
			for range each {
				id := int(next.Add(1))
				w := choose(id)
				length := []int{0, 0, 10, 5000, 100_000}[id%5]
				err := c.ask(id, length, w)
				if err != nil {
					t.Errorf("seed %d, %s, request %d with %d bytes: %v", seed, w.name, id, length, err)
					c.end()
				}
			}
		})
	}
	all.Wait()
	if got := e.Stats(); got.Plain < clients*each*9/10 || got.Handed > 0 { // some come when the connection ends
		t.Errorf("%+v, want nearly all of %d requests read here", got, clients*each)
	}
}
