package spoe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/serve/decisions"
)

// agent is a server and what it was told of.
type agent struct {
	*Server
	at string

	mu     sync.Mutex
	faults []string
	asked  []decisions.Question
}

func start(t testing.TB, change ...func(*Options)) *agent {
	t.Helper()
	a := &agent{}
	o := Options{
		Trusted: netip.Addr.IsLoopback, MaxConnections: 10,
		Check: func(_ context.Context, q *decisions.Question) decisions.Answer {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.asked = append(a.asked, *q); q.Target == "/refused" {
				return decisions.Answer{
					Status:  429,
					Reason:  "over_limit",
					Header:  map[string]string{"Retry-After": "7"},
					Problem: []byte(`{"status":429}`),
				}
			}
			return decisions.Answer{
				Allowed: true,
				Status:  200,
				Reason:  "within_limits",
				Header:  map[string]string{"Ratelimit": `"a";r=1`},
			}
		},
		Failed: func(f decisions.Fault, err error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.faults = append(a.faults, f.String()+": "+err.Error())
		},
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if a.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.at = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := a.Shutdown(ctx)
		_ = l.Close()
		if served := <-served; err != nil || served != nil {
			t.Errorf("Shutdown: %v, Serve: %v", err, served)
		}
	})
	return a
}

// told is what the agent was told of by now.
func (a *agent) told() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.faults)
}

// haproxy is a connection as HAProxy makes it.
type haproxy struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func connect(t testing.TB, a *agent) *haproxy {
	t.Helper()
	c, err := net.Dial("tcp", a.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &haproxy{t, c, bufio.NewReader(c)}
}

func hello(versions string, size uint64, healthcheck bool) []byte {
	return appendFrame(nil, haproxyHello, 0, 0, func(b []byte) []byte {
		if versions != "" {
			b = appendString(appendText(b, "supported-versions"), versions)
		}
		if size > 0 {
			b = appendUint32(appendText(b, "max-frame-size"), size)
		}
		b = appendString(appendText(b, "capabilities"), "pipelining,async")
		return appendBool(appendText(b, "healthcheck"), healthcheck)
	})
}

// question is a frame that asks, with the arguments of args in their order.
func question(stream uint64, args ...any) []byte {
	return appendFrame(nil, notify, stream, 1, func(b []byte) []byte { return appendMessage(b, args...) })
}

func appendMessage(b []byte, args ...any) []byte {
	b = append(appendText(b, "check"), byte(len(args)/2))
	for i := 0; i < len(args); i += 2 {
		b = appendText(b, args[i].(string))
		switch v := args[i+1].(type) {
		case string:
			b = appendString(b, v)
		case int:
			b = appendVarint(append(b, typeInt64), uint64(v))
		case netip.Addr:
			if v.Is4() {
				b = append(append(b, typeIPv4), v.AsSlice()...)
			} else {
				b = append(append(b, typeIPv6), v.AsSlice()...)
			}
		case []byte:
			b = append(appendVarint(append(b, typeBinary), uint64(len(v))), v...)
		case nil:
			b = append(b, typeNull)
		}
	}
	return b
}

var client = netip.MustParseAddr("192.0.2.1")

func (h *haproxy) send(b []byte) { _, _ = h.conn.Write(b) }

// receive returns the next frame, or what ended the connection.
func (h *haproxy) receive() (frame, error) {
	var length [4]byte
	if _, err := io.ReadFull(h.in, length[:]); err != nil {
		return frame{}, err
	}
	b := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(h.in, b); err != nil {
		return frame{}, err
	}
	return readFrame(b)
}

// read reads a frame as text: its kind, stream and frame, and what it says.
func (h *haproxy) read() string {
	f, err := h.receive()
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%d %d/%d:", f.kind, f.stream, f.frame)
	for r := (reader{b: f.payload}); len(r.b) > 0 && !r.bad; {
		if f.kind == ack {
			r.bytes(3)
		}
		name, v := r.named()
		text += fmt.Sprintf(" %s=%v", name, v)
	}
	return text
}

func (h *haproxy) greet() *haproxy {
	h.t.Helper()
	h.send(hello("2.0", 16380, false))
	if got := h.read(); got != "101 0/0: version=2.0 max-frame-size=16380 capabilities=pipelining" {
		h.t.Fatal(got)
	}
	return h
}

// A question is answered by variables, whatever arguments stand beside those that it needs.
func TestQuestions(t *testing.T) {
	a := start(t)
	h := connect(t, a).greet()
	fields := appendText(appendText(appendText(appendText(nil, "X-Api-Key"), "hg_1"), "Accept"),
		strings.Repeat("x", 3000))
	fields = appendText(appendText(appendText(appendText(fields, "X-Api-Key"), "hg_2"), ""), "")
	h.send(question(7, "method", "GET", "target", "/a?x=1", "client", client, "headers", fields, "identifier",
		"ann", "cost", 3))
	if got := h.read(); got != `103 7/1: allowed=true status=200 reason=within_limits ratelimit="a";r=1` {
		t.Error(got)
	}
	h.send(question(300, "method", "GET", "target", "/refused", "client", netip.MustParseAddr("2001:db8::1"),
		"identifier", nil))
	if got := h.read(); got != `103 300/1: allowed=false status=429 reason=over_limit retry_after=7 problem={"status":429}` {
		t.Error(got)
	}
	q := a.asked[0]
	if q.Method != "GET" || q.Target != "/a?x=1" || q.Client != "192.0.2.1" || q.Identifier != "ann" || q.Cost != 3 ||
		fmt.Sprint(q.Header["X-Api-Key"]) != "[hg_1 hg_2]" || len(q.Header["Accept"][0]) != 3000 || len(q.Header) != 2 {
		t.Errorf("asked about %+v", q)
	}
	if a.asked[1].Client != "2001:db8::1" || len(a.told()) > 0 {
		t.Errorf("asked about %+v; told of %q", a.asked[1], a.told())
	}
	h.send(appendFrame(nil, haproxyDisconnect, 0, 0, func(b []byte) []byte { return b }))
	if got := h.read(); got != "102 0/0: status-code=0 message=bye" {
		t.Error(got)
	}
	if got := h.read(); got != "EOF" {
		t.Error(got)
	}
}

// A health check is greeted, and that is all.
func TestHealthCheck(t *testing.T) {
	h := connect(t, start(t))
	h.send(hello("1.0, 2.0", 16380, true))
	if got := h.read(); !strings.HasPrefix(got, "101 0/0: version=2.0") {
		t.Error(got)
	}
	if got := h.read(); got != "EOF" {
		t.Error(got)
	}
}

// A message that does not describe a request sets nothing, so that nothing passes, and somebody is told.
func TestMessagesThatAreNone(t *testing.T) {
	a := start(t)
	h := connect(t, a).greet()
	for want, q := range map[string][]byte{
		"target is missing":               question(1, "method", "GET", "client", client),
		"client is a text, want src":      question(2, "method", "GET", "target", "/a", "client", "192.0.2.1"),
		"client is nothing, want src":     question(3, "method", "GET", "target", "/a", "client", nil),
		"method is a number, want a text": question(4, "method", 7, "target", "/a", "client", client),
		"headers is a text, want req.hdrs_bin": question(5, "method", "GET", "target", "/a", "client", client,
			"headers", "a"),
		"none of HAProxy's lists": question(6, "method", "GET", "target", "/a", "client", client, "headers",
			[]byte{1, 'a'}),
		"cost is below zero":              question(7, "method", "GET", "target", "/a", "client", client, "cost", -1),
		`argument is "path", want method`: question(8, "path", "/a", "method", "GET", "target", "/a", "client", client),
		"has 2 messages, want one": appendFrame(nil, notify, 9, 1, func(b []byte) []byte {
			one := []any{"method", "GET", "target", "/a", "client", client}
			return appendMessage(appendMessage(b, one...), one...)
		}),
	} {
		h.send(q)
		if got := h.read(); !strings.HasPrefix(got, "103 ") || !strings.HasSuffix(got, "/1:") {
			t.Errorf("%s: %s, want no variable", want, got)
		}
		told := a.told()
		if last := told[len(told)-1]; !strings.HasPrefix(last, "incomplete: message \"check\": ") &&
			!strings.HasPrefix(last, "incomplete: a frame") || !strings.Contains(last, want) {
			t.Errorf("told of %q, want %q", last, want)
		}
	}
	if len(a.asked) > 0 {
		t.Errorf("asked about %v", a.asked)
	}
}

// What is no frame, or comes out of its order, ends the connection with the code that the protocol
// has for it, and others go on.
func TestFaults(t *testing.T) {
	a := start(t)
	other := connect(t, a).greet()
	good := question(1, "method", "GET", "target", "/a", "client", client)
	fragment := bytes.Clone(good)
	fragment[8] = 0
	for name, c := range map[string]struct {
		greeted bool
		send    []byte
		code    int
	}{
		"a question before any word": {false, good, 4},
		"no version":                 {false, hello("", 16380, false), 5},
		"no size":                    {false, hello("2.0", 0, false), 6},
		"version 1":                  {false, hello("1.0", 16380, false), 8},
		"frames of 255 bytes":        {false, hello("2.0", 255, false), 9},
		"hello as a list of nothing": {false, appendFrame(nil, haproxyHello, 0, 0,
			func(b []byte) []byte { return append(b, 200, 1) }), 4},
		"hello twice":                {true, hello("2.0", 16380, false), 4},
		"4 GiB":                      {true, []byte{255, 255, 255, 255}, 3},
		"a byte more than announced": {true, []byte{0, 0, 0x3f, 0xfd}, 3},
		"an empty frame":             {true, []byte{0, 0, 0, 0}, 4},
		"half a head":                {true, []byte{0, 0, 0, 6, 3, 0, 0, 0, 1, 0}, 4},
		"a number without an end": {true, append([]byte{0, 0, 0, 16, 3, 0, 0, 0, 1},
			bytes.Repeat([]byte{255}, 11)...), 4},
		"a fragment": {true, fragment, 10},
		"a text longer than a frame": {true, appendFrame(nil, notify, 1, 1,
			func(b []byte) []byte { return append(b, 200, 'x') }), 4},
		"arguments that are missing": {true, appendFrame(nil, notify, 1, 1,
			func(b []byte) []byte { return append(appendText(b, "check"), 200) }), 4},
		"a type that is none": {true, appendFrame(nil, notify, 1, 1,
			func(b []byte) []byte { return append(append(appendText(b, "check"), 1), 1, 'a', 15) }), 4},
		"an agent's frame": {true, appendFrame(nil, ack, 1, 1, func(b []byte) []byte { return b }), 4},
	} {
		h := connect(t, a)
		if c.greeted {
			h.greet()
		}
		h.send(c.send)
		if got := h.read(); !strings.HasPrefix(got, fmt.Sprintf("102 0/0: status-code=%d message=", c.code)) {
			t.Errorf("%s: %s, want code %d", name, got, c.code)
		}
		if _, err := h.receive(); err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	other.send(good)
	if got := other.read(); !strings.HasPrefix(got, "103 1/1: allowed=true") {
		t.Errorf("another connection: %s", got)
	}
}

// Who may not connect is told so, and so is one connection too many; a mistake in a decision ends one connection.
func TestConnections(t *testing.T) {
	a := start(t, func(o *Options) { o.Trusted = func(netip.Addr) bool { return false } })
	if got := connect(t, a).read(); got != "102 0/0: status-code=99 message=this address may not ask" {
		t.Error(got)
	}
	if told := a.told(); len(told) != 1 || !strings.HasPrefix(told[0], "untrusted: ") {
		t.Errorf("told of %q", told)
	}
	a = start(t, func(o *Options) { o.MaxConnections = 1 })
	h := connect(t, a).greet()
	if got := connect(t, a).read(); got != "102 0/0: status-code=13 message=no more connections are taken" {
		t.Error(got)
	}
	_ = h.conn.Close()
	a = start(t, func(o *Options) {
		check := o.Check
		o.Check = func(ctx context.Context, q *decisions.Question) decisions.Answer {
			if q.Target == "/panic" {
				panic("a mistake")
			}
			return check(ctx, q)
		}
	})
	h, other := connect(t, a).greet(), connect(t, a).greet()
	h.send(question(1, "method", "GET", "target", "/panic", "client", client))
	if _, err := h.receive(); err == nil {
		t.Error("a mistake was answered")
	}
	other.send(question(1, "method", "GET", "target", "/a", "client", client))
	if got := other.read(); !strings.HasPrefix(got, "103 1/1: allowed=true") {
		t.Error(got)
	}
	if told := a.told(); len(told) != 1 || !strings.HasPrefix(told[0], "panic: panic: a mistake") {
		t.Errorf("told of %q", told)
	}
}

// Questions that wait hold up no others of their connection, and are answered although the server ends.
func TestPipelining(t *testing.T) {
	release := make(chan struct{})
	a := start(t, func(o *Options) {
		check := o.Check
		o.Check = func(ctx context.Context, q *decisions.Question) decisions.Answer {
			if q.Target == "/slow" {
				<-release
			}
			return check(ctx, q)
		}
	})
	h := connect(t, a).greet()
	h.send(append(question(1, "method", "GET", "target", "/slow", "client", client),
		question(2, "method", "GET", "target", "/a", "client", client)...))
	if got := h.read(); !strings.HasPrefix(got, "103 2/1: allowed=true") {
		t.Error(got)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Shutdown(context.Background()) }()
	for { // until it ends
		other := connect(t, a)
		other.send(hello("2.0", 16380, true))
		if got := other.read(); !strings.HasPrefix(got, "101 ") {
			break
		}
	}
	close(release)
	if got := h.read(); !strings.HasPrefix(got, "103 1/1: allowed=true") {
		t.Error(got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := h.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A frame that does not come to its end is not waited for.
func TestSlowWriters(t *testing.T) {
	a := start(t, func(o *Options) { o.Patience = 50 * time.Millisecond })
	h := connect(t, a).greet()
	h.send(question(1, "method", "GET", "target", "/a", "client", client)[:9])
	if _, err := h.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

// One that takes no answers is read from no more, and is closed; others are answered meanwhile.
func TestPeersThatNeverRead(t *testing.T) {
	t.Parallel()
	a := start(t, func(o *Options) { o.Patience = 200 * time.Millisecond })
	mute, other := connect(t, a).greet(), connect(t, a).greet()
	if err := mute.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	questions := bytes.Repeat(question(1, "method", "GET", "target", "/none", "client", client), 1000)
	var err error
	sent := 0
	for err == nil {
		var n int
		n, err = mute.conn.Write(questions)
		sent += n
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || sent > 64<<20 {
		t.Errorf("%d bytes are taken, then %v, want the connection closed", sent, err)
	}
	other.send(question(1, "method", "GET", "target", "/a", "client", client))
	if got := other.read(); !strings.HasPrefix(got, "103 1/1: allowed=true") {
		t.Errorf("another one: %s", got)
	}
}

func TestVarint(t *testing.T) {
	for _, n := range []uint64{0, 1, 239, 240, 241, 255, 2287, 2288, 264431, 264432, 1 << 32, math.MaxInt64,
		math.MaxUint64} {
		b := appendVarint(nil, n)
		r := reader{b: append(bytes.Clone(b), 9)}
		if got := r.varint(); got != n || r.bad || len(r.b) != 1 {
			t.Errorf("%d is %x, and that is %d", n, b, got)
		}
	}
	// As doc/SPOE.txt section 3.1 bounds the lengths.
	for n, length := range map[uint64]int{239: 1, 240: 2, 2287: 2, 2288: 3, 264431: 3, 264432: 4, 33818863: 4,
		33818864: 5} {
		if got := len(appendVarint(nil, n)); got != length {
			t.Errorf("%d takes %d bytes, want %d", n, got, length)
		}
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(Options{})
	want := "spoe options: Check is nil, want a function that decides\nTrusted is nil, want a function that says " +
		"who may connect\nMaxConnections is 0, want 1 or more"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Whatever arrives, reading it allocates no more than it is long, and what was written is read as it was.
func FuzzFrames(f *testing.F) {
	f.Add(question(7, "method", "GET", "target", "/a", "client", client, "cost", 3)[4:])
	f.Add(hello("2.0", 16380, true)[4:])
	f.Add([]byte{3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := readFrame(b)
		if err != nil {
			return
		}
		questions, err := messages(frame.payload)
		if err != nil && questions != nil || len(questions) > 1 {
			t.Errorf("%v and %v", questions, err)
		}
		_, _ = headers(b)
		again, err := readFrame(appendFrame(nil, frame.kind, frame.stream, frame.frame,
			func(b []byte) []byte { return append(b, frame.payload...) })[4:])
		if err != nil || again.stream != frame.stream || again.frame != frame.frame ||
			!bytes.Equal(again.payload, frame.payload) {
			t.Errorf("%+v was written and read as %+v: %v", frame, again, err)
		}
		r := reader{b: b}
		if n := r.varint(); !r.bad {
			if s := (reader{b: appendVarint(nil, n)}); s.varint() != n {
				t.Errorf("%d is not read as it was written", n)
			}
		}
	})
}
