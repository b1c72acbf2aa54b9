package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/policy"
)

// withChat makes a limiter of these rules for a WebSocket at /chat.
func withChat(t testing.TB, lines ...string) func(*headgate.Options) {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{"GET /chat", "WS-SEND /chat", "WS-RECEIVE /chat", "GET /plain"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	var rules []policy.Rule
	for _, line := range lines {
		line, leaky := strings.CutSuffix(line, " leaky_bucket")
		rule, err := policy.ParseRule(line)
		if err != nil {
			t.Fatal(err)
		}
		if leaky {
			rule.Algorithm = policy.LeakyBucket
		}
		rules = append(rules, rule)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return func(o *headgate.Options) { o.Endpoints, o.Policies = table, headgate.Fixed(set) }
}

// socket is one end of a WebSocket, as frames.
type socket struct {
	net.Conn
	in *bufio.Reader
}

// read returns the next frame, unmasked. It is gone at the end of the stream.
func (s *socket) read(t *testing.T) (first int, payload []byte) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	head := make([]byte, 2)
	if _, err := io.ReadFull(s.in, head); err != nil {
		return gone, []byte("closed")
	}
	n := uint64(head[1] & 0x7f)
	if extra := map[uint64]int{126: 2, 127: 8}[n]; extra > 0 {
		long := make([]byte, 8)
		if _, err := io.ReadFull(s.in, long[8-extra:]); err != nil {
			t.Fatal(err)
		}
		n = binary.BigEndian.Uint64(long)
	}
	var key [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(s.in, key[:]); err != nil {
			t.Fatal(err)
		}
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return gone, []byte("cut off")
	}
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	return int(head[0]), payload
}

// closing reads until a Close frame, and returns its code and reason, or what was in its
// place.
func (s *socket) closing(t *testing.T) (code int, reason string) {
	t.Helper()
	for {
		switch first, payload := s.read(t); {
		case first == gone:
			return 0, string(payload)
		case first == 0x88 && len(payload) >= 2:
			return int(binary.BigEndian.Uint16(payload)), string(payload[2:])
		case first == 0x88:
			return 1005, ""
		}
	}
}

func (s *socket) write(p ...[]byte) { _, _ = s.Write(bytes.Join(p, nil)) }

// chat opens a WebSocket through a gateway, and returns both of its ends.
func chat(t *testing.T, of gateway.WebSocket, limiter *headgate.Limiter,
	change ...func(*gateway.Options)) (client, api *socket) {
	t.Helper()
	ends := make(chan *socket, 1)
	upstream := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "plain")
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		ends <- &socket{conn, buffered.Reader}
	})
	base := newGateway(t, upstream, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Limiter, o.WebSockets = limiter, map[string]gateway.WebSocket{"GET /chat": of}
	}}, change...)...).URL
	client, status := dial(t, base, "/chat")
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake is answered with %d, want 101", status)
	}
	api = <-ends
	t.Cleanup(func() { _ = api.Close() })
	return client, api
}

func dial(t *testing.T, base, target string, header ...string) (s *socket, status int) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if len(header) == 0 {
		header = []string{"Upgrade: websocket", "Sec-WebSocket-Version: 13"}
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\n%s\r\n\r\n", target,
		strings.Join(header, "\r\n"))
	s = &socket{conn, bufio.NewReader(conn)}
	response, err := http.ReadResponse(s.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, response.StatusCode
}

const (
	text, ping, pong = 0x81, 0x89, 0x8a
	begin, more, end = 0x01, 0x00, 0x80
	gone             = -1 // no frame: the stream is at its end
)

// A message over the limit does not reach the API, and both are told why.
func TestMessagesCount(t *testing.T) {
	cost := gateway.WebSocket{Send: gateway.Messages}
	bytesCount := gateway.WebSocket{Send: gateway.Bytes, BytesPerToken: 100}
	for _, c := range []struct {
		name   string
		of     gateway.WebSocket
		rules  []string
		frames [][]byte // each a write of its own
		passes int      // how many frames the API sees before its Close frame
		code   int
		reason string
	}{
		{"messages", cost, []string{"WS-SEND /chat 2/h", "default 100/s"},
			[][]byte{frame(text, 5, true), frame(text, 5, true), frame(text, 5, true)}, 2, 1008,
			"Limit WS-SEND /chat: 2 per 1h, burst 2. Retry in 29m"},
		{"by the default rule", cost, []string{"default 1/h"}, [][]byte{frame(text, 5, true), frame(text, 5, true)}, 1,
			1008, "Limit default: 1 per 1h"},
		{"by a rule for everything", cost, []string{"default 100/s", "* 3/h"}, // one of which the opening took
			[][]byte{frame(text, 1, true), frame(text, 1, true), frame(text, 1, true)}, 2, 1008, "Limit *: 3 per 1h"},
		{"fragments are one message, and control frames none", cost, []string{"WS-SEND /chat 2/h", "default 100/s"},
			[][]byte{frame(begin, 5, true), frame(ping, 0, true), frame(more, 70000, true), frame(pong, 3, true),
				frame(end, 0, true), frame(text, 0, true), frame(begin, 1, true)},
			6, 1008, "Limit WS-SEND"},
		{"bytes", bytesCount, []string{"WS-SEND /chat 10/h", "default 100/s"}, // 1 + 5 + 4
			[][]byte{frame(text, 1, true), frame(text, 500, true), frame(begin, 301, true), frame(end, 99, true),
				frame(text, 0, true)}, 4, 1008, "Limit WS-SEND"},
		{"what no burst holds", bytesCount, []string{"WS-SEND /chat 10/h", "default 100/s"},
			[][]byte{frame(text, 1001, true)}, 0, 1009, "costs more than the limit's burst"},
		{"a long message", gateway.WebSocket{Send: gateway.Messages, MaxMessage: 1000}, []string{"default 100/s"},
			[][]byte{frame(begin, 500, true), frame(more, 400, true), frame(end, 100, true)}, 2, 1009,
			"longer than is allowed"},
		{"empty fragments", gateway.WebSocket{Send: gateway.Messages, MaxMessage: 128}, []string{"default 100/s"},
			[][]byte{frame(begin, 0, true), bytes.Repeat(frame(more, 0, true), 30)}, 21, 1009,
			"longer than is allowed"},
		{"more pings than are free", cost, []string{"default 100/s"},
			[][]byte{bytes.Repeat(frame(ping, 0, true), 5000)}, -1, 1008, "Too many control frames."},
		{"no mask", cost, []string{"default 100/s"}, [][]byte{frame(text, 5, true), frame(text, 5, false)}, 1, 1002,
			"not masked"},
		{"a long way to write a length", cost, []string{"default 100/s"},
			[][]byte{{text, 0xfe, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5}}, 0, 1002, "shortest"},
		{"a message in a message", cost, []string{"default 100/s"},
			[][]byte{frame(begin, 5, true), frame(text, 5, true)}, 1, 1002, "within another"},
		{"a long ping", cost, []string{"default 100/s"}, [][]byte{frame(ping, 126, true)}, 0, 1002, "longer than 125"},
		{"an opcode that is none", cost, []string{"default 100/s"}, [][]byte{frame(0x83, 5, true)}, 0, 1002, "opcode"},
		{"a huge frame", cost, []string{"default 100/s"}, [][]byte{{text, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
			0, 1009, "longer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, api := chat(t, c.of, newLimiter(t, withChat(t, c.rules...)))
			for _, f := range c.frames {
				client.write(f)
			}
			seen := 0
			first, payload := api.read(t)
			for ; first != gone && first != 0x88; first, payload = api.read(t) {
				seen++
			}
			if c.passes >= 0 && seen != c.passes || c.passes < 0 && (seen < 100 || seen > 1000) {
				t.Errorf("the API sees %d frames, want %d", seen, c.passes)
			}
			if len(payload) < 2 || int(binary.BigEndian.Uint16(payload)) != c.code {
				t.Errorf("the API is told %q, want %d", payload, c.code)
			}
			api.write(frame(text, 4, false)) // about what was let through
			_ = api.Close()
			if first, payload := client.read(t); first != text {
				t.Errorf("before that, %x %q comes, want what the API had to say", first, payload)
			}
			if code, reason := client.closing(t); code != c.code || !strings.Contains(reason, c.reason) {
				t.Errorf("the client is told %d, %q; want %d, %q", code, reason, c.code, c.reason)
			}
			client.write(frame(0x88, 2, true))
			if _, payload := client.read(t); string(payload) != "closed" {
				t.Errorf("after that %q comes, want the end", payload)
			}
		})
	}
}

// What the API sends counts as well, where it is wanted, and is cut off in between
// frames.
func TestReceivedMessagesCount(t *testing.T) {
	of := gateway.WebSocket{Receive: gateway.Messages}
	client, api := chat(t, of, newLimiter(t, withChat(t, "WS-RECEIVE /chat 2/h", "default 1/h")))
	client.write(frame(text, 1, true), frame(text, 1, true), frame(text, 1, true)) // which does not count
	for i := range 3 {
		if first, payload := api.read(t); first != text || len(payload) != 1 {
			t.Fatalf("frame %d of the client: %x %q", i, first, payload)
		}
		api.write(frame(text, 200+i, false))
	}
	for i := range 2 {
		if first, payload := client.read(t); first != text || len(payload) != 200+i {
			t.Errorf("frame %d of the API: %x with %d bytes", i, first, len(payload))
		}
	}
	if code, reason := client.closing(t); code != 1008 ||
		!strings.HasPrefix(reason, "Limit WS-RECEIVE /chat: 2 per 1h") {
		t.Errorf("the client is told %d, %q", code, reason)
	}
	if code, _ := api.closing(t); code != 1008 {
		t.Errorf("the API is told %d", code)
	}
	// Frames of an API that are none.
	client, api = chat(t, of, newLimiter(t, withChat(t, "default 100/s")))
	api.write(frame(text, 3, false), frame(text, 3, true))
	if code, reason := client.closing(t); code != 1002 || !strings.Contains(reason, "one of a server is") {
		t.Errorf("after a masked frame of the API the client is told %d, %q", code, reason)
	}
}

// Both close by themselves as if nobody stood between them.
func TestClosingByThemselves(t *testing.T) {
	tunnels := new(gateway.Tunnels)
	for range 2 {
		client, api := chat(t, gateway.WebSocket{Send: gateway.Messages}, newLimiter(t, withChat(t, "default 100/s")),
			func(o *gateway.Options) { o.Tunnels = tunnels })
		// what follows a Close frame is dropped
		client.write(frame(text, 2, true), append([]byte{0x88, 0x82, 0, 0, 0, 0}, 0x0b, 0xb8), frame(text, 9, true))
		if first, _ := api.read(t); first != text {
			t.Errorf("first the API sees %x", first)
		}
		if code, _ := api.closing(t); code != 3000 {
			t.Errorf("the API sees the code %d, want the client's", code)
		}
		api.write([]byte{0x88, 2, 0x0b, 0xb9})
		_ = api.Close()
		if code, _ := client.closing(t); code != 3001 {
			t.Errorf("the client sees the code %d, want the API's", code)
		}
		if _, payload := client.read(t); string(payload) != "closed" {
			t.Errorf("after that %q comes", payload)
		}
		_ = client.Close()
		// Or cut off.
		client, api = chat(t, gateway.WebSocket{Send: gateway.Messages}, newLimiter(t, withChat(t, "default 100/s")),
			func(o *gateway.Options) { o.Tunnels = tunnels })
		client.write(frame(text, 2, true)[:3])
		_ = client.Close()
		if _, payload := api.read(t); string(payload) != "closed" {
			t.Errorf("of a client that was cut off within a head the API sees %q, want the end", payload)
		}
		_ = api.Close()
	}
	eventually(t, "that none is open", func() bool { return tunnels.Open() == 0 })
}

// Under a rule with algorithm leaky_bucket messages wait, and their sender with them.
func TestMessagesWait(t *testing.T) {
	var waited atomic.Int64
	client, api := chat(t, gateway.WebSocket{Send: gateway.Messages},
		newLimiter(t, withChat(t, "WS-SEND /chat 4/s leaky_bucket", "default 100/s")), func(o *gateway.Options) {
			o.Limit.Decided = func(_ *http.Request, d *headgate.Decision) {
				if d.Wait > 0 {
					waited.Add(1)
				}
			}
		})
	client.write(bytes.Repeat(frame(text, 3, true), 4))
	for i := range 4 {
		if first, payload := api.read(t); first != text || len(payload) != 3 {
			t.Fatalf("message %d: %x %q", i, first, payload)
		}
	}
	if n := waited.Load(); n < 1 || n > 3 { // a machine that stands still for as long has let time pass
		t.Errorf("%d of 4 messages waited, want all but the first", n)
	}
}

// lost is a store that cannot be asked once it is gone.
type lost struct {
	bucket.Store
	gone atomic.Bool
}

func (s *lost) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if s.gone.Load() {
		return false, errors.New("away")
	}
	return s.Store.TryConsume(ctx, now, takes, outs)
}

// Limits that cannot be checked end a WebSocket, as does an endpoint that is no more.
func TestLimitsThatAreGone(t *testing.T) {
	store := &lost{}
	var policies changing
	start := withChat(t, "default 100/s")
	lim := newLimiter(t, start, func(o *headgate.Options) {
		store.Store, o.Buckets = o.Buckets, store
		policies.set.Store(o.Policies.Set())
		o.Policies = &policies
	})
	client, _ := chat(t, gateway.WebSocket{Send: gateway.Messages}, lim)
	store.gone.Store(true)
	client.write(frame(text, 1, true))
	if code, _ := client.closing(t); code != 1013 {
		t.Errorf("without a store the client is told %d, want 1013", code)
	}
	store.gone.Store(false)

	client, api := chat(t, gateway.WebSocket{Send: gateway.Messages}, lim)
	client.write(frame(text, 1, true))
	if first, _ := api.read(t); first != text {
		t.Errorf("the API sees %x", first)
	}
	table, err := endpoint.Compile([]endpoint.Template{mustParse(t, "GET /chat")}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1000}}},
		policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	policies.set.Store(set)
	client.write(frame(text, 1, true))
	if code, reason := client.closing(t); code != 1001 || !strings.Contains(reason, "Connect again") {
		t.Errorf("without its endpoint the client is told %d, %q; want 1001", code, reason)
	}
}

type changing struct{ set atomic.Pointer[policy.Set] }

func (c *changing) Set() *policy.Set { return c.set.Load() }

func mustParse(t *testing.T, text string) endpoint.Template {
	t.Helper()
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// When the process stops, both ends are told, also where the API or the client does not
// listen; and those that come later.
func TestTunnelsEnd(t *testing.T) {
	tunnels := new(gateway.Tunnels)
	keep := func(o *gateway.Options) { o.Tunnels = tunnels }
	lim := newLimiter(t, withChat(t, "default 100/s"))
	of := gateway.WebSocket{Send: gateway.Messages}
	client, api := chat(t, of, lim, keep)
	midFrame, midAPI := chat(t, of, lim, keep)
	midFrame.write(frame(text, 100, true)[:50])
	_, _ = io.ReadFull(midAPI.in, make([]byte, 50))
	silent, _ := chat(t, of, lim, keep)
	eventually(t, "that three are open", func() bool { return tunnels.Open() == 3 })
	over := make(chan error, 1)
	go func() { over <- tunnels.End(context.Background()) }()
	if code, _ := api.closing(t); code != 1001 {
		t.Errorf("the API is told %d, want 1001", code)
	}
	api.write([]byte{0x88, 2, 0x03, 0xe9})
	for name, c := range map[string]*socket{
		"client":                 client,
		"client of half a frame": midFrame,
		"client of a silent API": silent,
	} {
		if code, _ := c.closing(t); code != 1001 {
			t.Errorf("the %s is told %d, want 1001", name, code)
		}
	}
	if err := <-over; err != nil || tunnels.Open() != 0 {
		t.Errorf("End: %v, with %d open", err, tunnels.Open())
	}
	late, _ := chat(t, of, lim, keep)
	if code, _ := late.closing(t); code != 1001 {
		t.Errorf("a client that comes later is told %d, want 1001", code)
	}
	if err := tunnels.End(context.Background()); err != nil {
		t.Error(err)
	}
}

// A method of messages is none that a client may have in its request line, and where
// messages count nothing but their protocol is offered.
func TestNothingButMessages(t *testing.T) {
	var offered atomic.Value
	offered.Store("")
	upstream := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { offered.Store(r.Header.Get("Upgrade")) })
	lim := newLimiter(t, withChat(t, "default 1000/s"))
	base := newGateway(t, upstream, func(o *gateway.Options) {
		o.Limiter, o.WebSockets = lim, map[string]gateway.WebSocket{"GET /chat": {Send: gateway.Messages}}
		o.Limit.Methods = lim.Endpoints().Allowed
	}).URL
	for _, method := range []string{endpoint.Send, endpoint.Receive} {
		response := send(t, base, method, "/chat")
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s is answered with %d and Allow %q, want 405 and GET, HEAD", method, response.StatusCode,
				response.Header.Get("Allow"))
		}
	}
	if d := lim.Check(context.Background(), headgate.Request{
		Method:  "GET",
		Message: true,
		Target:  "/chat",
		Peer:    netip.MustParseAddr("192.0.2.1"),
	}); d.Reason != headgate.UnknownMethod {
		t.Errorf("a message with the method GET: %v", d.Reason)
	}
	for _, c := range []struct {
		target, offer, version, want string
	}{
		{"/chat", "websocket", "13", "websocket"},
		{"/chat", "WebSocket", "13", "WebSocket"},
		{"//chat/", "websocket", "13", "websocket"},
		{"/chat", "websocket", "8", ""},
		{"/chat", "websocket", "13, 8", ""},
		{"/chat", "other", "13", ""},
		{"/chat", "websocket, other", "13", ""},
		{"/plain", "other", "8", "other"},
	} {
		dial(t, base, c.target, "Upgrade: "+c.offer, "Sec-WebSocket-Version: "+c.version)
		if got := offered.Load(); got != c.want {
			t.Errorf("%s: of the offer %q, version %s, the API sees %q, want %q", c.target, c.offer,
				c.version, got, c.want)
		}
	}
}

// What cannot count is an error that says so.
func TestWebSocketOptions(t *testing.T) {
	api := newAPI(t, func(http.ResponseWriter, *http.Request) {})
	upstream, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	_, err = gateway.New(gateway.Options{Limiter: newLimiter(t), Upstream: upstream,
		WebSockets: map[string]gateway.WebSocket{
			"GET /nothing": {}, "POST /chat": {Send: gateway.Messages}, "chat": {Send: gateway.Messages},
		}})
	for _, want := range []string{`"GET /nothing", of which neither`, `"POST /chat", want one with GET`, `"chat"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %s", err, want)
		}
	}
}
