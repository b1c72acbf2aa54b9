package balancer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const signature2 = "\r\n\r\n\x00\r\nQUIT\n"

// version2 writes a header of version 2.
func version2(command, family byte, body string) string {
	return signature2 + string([]byte{0x20 | command, family}) +
		string(binary.BigEndian.AppendUint16(nil, uint16(len(body)))) + body
}

const (
	local, proxied     = 0, 1
	unspec, tcp4, tcp6 = 0, 0x11, 0x21
	udp4, unix         = 0x12, 0x31
)

var (
	addresses4 = string([]byte{203, 0, 113, 9, 192, 0, 2, 1, 0x12, 0x34, 0, 80})
	addresses6 = string(append(append(as16("2001:db8::9"), as16("2001:db8::1")...), 0x12, 0x34, 0, 80))
)

func as16(s string) []byte {
	b := netip.MustParseAddr(s).As16()
	return b[:]
}

// serve answers every request with the address it comes from. Both ends are
// real sockets, as are the slow and the broken ones.
func serve(t *testing.T, o Options) (*Listener, string) {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(socket, o)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr)
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve = %v", err)
		}
	})
	return l, socket.Addr().String()
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // lest a failing test hangs
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

const request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// ask writes bytes and returns what the server answers: the address it saw,
// the status if not 200, or "closed".
func ask(t *testing.T, address, bytes string) string {
	t.Helper()
	c := dial(t, address)
	if _, err := io.WriteString(c, bytes); err != nil {
		return "closed"
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "closed"
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return response.Status
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if host, _, err := net.SplitHostPort(string(body)); err == nil {
		return host
	}
	return string(body)
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestHeaders(t *testing.T) {
	tlv := func(n int) string {
		return "\x04" + string(binary.BigEndian.AppendUint16(nil, uint16(n))) + strings.Repeat("x", n)
	}
	for _, c := range []struct {
		name, header   string
		want, optional string // with Required, and without
	}{
		{"v1 IPv4", "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n", "203.0.113.9", ""},
		{"v1 IPv6", "PROXY TCP6 2001:db8::9 2001:db8::1 4660 80\r\n", "2001:db8::9", ""},
		{"v1 mapped", "PROXY TCP6 ::ffff:203.0.113.9 ::1 4660 80\r\n", "203.0.113.9", ""},
		{"v1 longest", "PROXY TCP6 2fff:ffff:ffff:ffff:ffff:ffff:ffff:fff1 2fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff " +
			"65535 65535\r\n", "2fff:ffff:ffff:ffff:ffff:ffff:ffff:fff1", ""},
		{"v1 unknown", "PROXY UNKNOWN\r\n", "127.0.0.1", ""},
		{"v1 unknown with addresses", "PROXY UNKNOWN 203.0.113.9 192.0.2.1 4660 80\r\n", "127.0.0.1", ""},
		{"v2 IPv4", version2(proxied, tcp4, addresses4), "203.0.113.9", ""},
		{"v2 IPv6", version2(proxied, tcp6, addresses6), "2001:db8::9", ""},
		{"v2 with an appendix", version2(proxied, tcp4, addresses4+tlv(300)), "203.0.113.9", ""},
		// never looked at
		{"v2 with a broken appendix", version2(proxied, tcp4, addresses4+"\x04\xff\xffx"), "203.0.113.9", ""},
		{"v2 with the largest appendix", version2(proxied, tcp4, addresses4+tlv(4096-12-3)), "203.0.113.9", ""},
		{"v2 local", version2(local, unspec, ""), "127.0.0.1", ""},
		{"v2 local with addresses", version2(local, tcp4, addresses4), "127.0.0.1", ""},
		{"v2 local with bytes", version2(local, unspec, "anything"), "127.0.0.1", ""},

		{"v2 oversized", version2(proxied, tcp4, addresses4+tlv(5000)), "closed", ""},
		{"v2 oversized, not sent", signature2 + "\x21\x11\xff\xff", "closed", ""},
		{"v2 too short for IPv4", version2(proxied, tcp4, "short"), "closed", ""},
		{"v2 too short for IPv6", version2(proxied, tcp6, addresses4), "closed", ""},
		{"v2 of no family", version2(proxied, unspec, ""), "closed", ""},
		{"v2 UDP", version2(proxied, udp4, addresses4), "closed", ""},
		{"v2 Unix", version2(proxied, unix, strings.Repeat("/", 216)), "closed", ""},
		{"v2 Unix, named like an address", version2(proxied, unix, "203.0.113.9:80"+strings.Repeat("\x00", 202)),
			"closed", ""},
		{"v2 unheard of", version2(proxied, 0x13, addresses4), "closed", ""},
		{"v2 unheard of family", version2(proxied, 0x41, addresses4), "closed", ""},
		{"v2 command", version2(2, tcp4, addresses4), "closed", ""},
		{"v3", signature2 + "\x31\x11\x00\x0c" + addresses4, "closed", ""},
		{"v2 unspecified address", version2(proxied, tcp4, "\x00\x00\x00\x00"+addresses4[4:]), "closed", ""},

		{"v1 unspecified address", "PROXY TCP4 0.0.0.0 192.0.2.1 4660 80\r\n", "closed", ""},
		{"v1 multicast", "PROXY TCP4 224.0.0.1 192.0.2.1 4660 80\r\n", "closed", ""},
		{"v1 of another family", "PROXY TCP4 2001:db8::9 2001:db8::1 4660 80\r\n", "closed", ""},
		{"v1 octal", "PROXY TCP4 0203.0.113.9 192.0.2.1 4660 80\r\n", "closed", ""},
		{"v1 with zone", "PROXY TCP6 fe80::9%eth0 ::1 4660 80\r\n", "closed", ""},
		{"v1 port", "PROXY TCP4 203.0.113.9 192.0.2.1 70000 80\r\n", "closed", ""},
		{"v1 two spaces", "PROXY  TCP4 203.0.113.9 192.0.2.1 4660 80\r\n", "closed", ""},
		{"v1 more", "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80 more\r\n", "closed", ""},
		{"v1 less", "PROXY TCP4 203.0.113.9\r\n", "closed", ""},
		{"v1 without CR", "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\n", "closed", ""},
		{"v1 UDP", "PROXY UDP4 203.0.113.9 192.0.2.1 4660 80\r\n", "closed", ""},
		{"v1 without end", "PROXY TCP4 " + strings.Repeat("1", 200), "closed", ""},
		{"v1 glued", "PROXYTCP4 203.0.113.9 192.0.2.1 4660 80\r\n", "closed", ""},
		{"v1 in small letters", "proxy TCP4 203.0.113.9 192.0.2.1 4660 80\r\n", "closed", "400 Bad Request"},
		{"none", "", "closed", "127.0.0.1"},
		{"garbage", "\x16\x03\x01garbage", "closed", "400 Bad Request"},
		{"white space first", " PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n", "closed", "400 Bad Request"},

		// A second header is what the client wrote: none of it is believed.
		{"two", "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\nPROXY TCP4 6.6.6.6 192.0.2.1 4660 80\r\n",
			"400 Bad Request", ""},
		{"v2 behind v1", "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n" + version2(proxied, tcp4, addresses4),
			"400 Bad Request", ""},
	} {
		if c.optional == "" {
			c.optional = c.want
		}
		for _, required := range []bool{true, false} {
			want := c.want
			if !required {
				want = c.optional
			}
			_, address := serve(t, Options{From: loopback, Required: required, Timeout: time.Minute})
			if got := ask(t, address, c.header+request); got != want {
				t.Errorf("%s, required %v: the server saw %s, want %s", c.name, required, got, want)
			}
		}
	}
}

// TestStrangersAreNotBelieved: a header from elsewhere is refused, and never
// moves the address.
func TestStrangersAreNotBelieved(t *testing.T) {
	elsewhere := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, header := range map[string]string{
		"v1": "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n",
		"v2": version2(proxied, tcp4, addresses4),
	} {
		_, address := serve(t, Options{From: elsewhere, Timeout: time.Minute})
		if got := ask(t, address, header+request); got != "400 Bad Request" {
			t.Errorf("%s: the server saw %s, want it to refuse", name, got)
		}
		if got := ask(t, address, request); got != "127.0.0.1" {
			t.Errorf("without %s: the server saw %s, want the peer", name, got)
		}
		l, address := serve(t, Options{From: elsewhere, Required: true, Timeout: time.Minute})
		for _, bytes := range []string{header + request, request} {
			if got := ask(t, address, bytes); got != "closed" {
				t.Errorf("%s, required: the server saw %s, want the connection closed", name, got)
			}
		}
		if got := l.Refusals(); got["not_balancer"] != 2 {
			t.Errorf("%s: refusals = %v, want 2 from elsewhere", name, got)
		}
	}
}

// TestSlowSendersHoldUpNobody: while connections say nothing, or a header's
// beginning, others are served.
func TestSlowSendersHoldUpNobody(t *testing.T) {
	_, address := serve(t, Options{From: loopback, Required: true, Timeout: time.Minute})
	for range 20 {
		for _, begun := range []string{"", "P", "PROXY", signature2[:5], signature2,
			version2(proxied, tcp4, addresses4)[:20]} {
			if _, err := io.WriteString(dial(t, address), begun); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := ask(t, address, "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n"+request); got != "203.0.113.9" {
		t.Errorf("behind slow connections the server saw %s, want 203.0.113.9", got)
	}
}

// TestTLSComesBehind: the header is in the clear, the rest of the connection
// is TLS, and the handler sees the client that the header names.
func TestTLSComesBehind(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr)
	}))
	server.Listener = Listen(server.Listener, Options{From: loopback, Required: true, Timeout: time.Minute})
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := server.Client()
	transport := client.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = true
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			_, err = io.WriteString(c, version2(proxied, tcp6, addresses6))
		}
		return c, err
	}
	for range 2 { // the second on the same connection
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != "[2001:db8::9]:4660" || response.ProtoMajor != 2 {
			t.Errorf("by %s the server saw %s (%v), want [2001:db8::9]:4660 by HTTP/2", response.Proto, body, err)
		}
	}
}

// TestHalfClose: what the socket can do besides, the connection can.
func TestHalfClose(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	far := dial(t, socket.Addr().String())
	if _, err := io.WriteString(far, "PROXY UNKNOWN\r\nhello"); err != nil {
		t.Fatal(err)
	}
	near, err := Listen(socket, Options{From: loopback, Required: true, Timeout: time.Minute}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if err := near.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the far end reads %d bytes, %v, want the end", n, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "hello" {
		t.Errorf("the near end reads %q, %v, want hello", got, err)
	}
}

// TestFrom: a dual-stack socket has IPv4 peers in their mapped form.
func TestFrom(t *testing.T) {
	l := Listen(nil, Options{From: append(loopback, netip.MustParsePrefix("fd00::/8"))})
	for remote, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1).To4()}:         true,
		&net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1")}:      true,
		&net.TCPAddr{IP: net.ParseIP("fd00::1"), Zone: "eth0"}: true,
		&net.TCPAddr{IP: net.ParseIP("203.0.113.9")}:           false,
		&net.TCPAddr{IP: net.ParseIP("::7f00:1")}:              false,
		&net.TCPAddr{}: false,
		&net.UnixAddr{Net: "unix", Name: "127.0.0.1"}: false,
	} {
		if got := l.from(remote); got != want {
			t.Errorf("from(%v) = %v, want %v", remote, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	l, address := serve(t, Options{From: loopback, Required: true, Timeout: time.Minute})
	for _, bytes := range []string{"PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n", version2(local, unspec, ""), "",
		"PROXY nonsense\r\n", signature2 + "\x21\x11\xff\xff"} {
		ask(t, address, bytes+request)
	}
	want := map[string]uint64{"not_balancer": 0, "no_header": 1, "bad_header": 2}
	if got := l.Refusals(); l.Accepted() != 2 || !maps.Equal(got, want) {
		t.Errorf("%d accepted, refused %v, want 2 and %v", l.Accepted(), got, want)
	}
}

// pipe is a connection from a balancer in the memory, whose deadlines follow
// the clock of the test.
type pipe struct{ net.Conn }

func (pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9} }

type one struct {
	net.Listener
	c net.Conn
}

func (o one) Accept() (net.Conn, error) { return o.c, nil }

// TestTimeout: the header has its time and no more, however it is dripped.
func TestTimeout(t *testing.T) {
	whole := version2(proxied, tcp4, addresses4+strings.Repeat("x", 500))
	for _, c := range []struct {
		name     string
		send     string
		every    time.Duration // between two bytes
		required bool
		want     string // the error, or "" if the connection is used on
		client   string
	}{
		{"silence", "", 0, true, "no header", "127.0.0.1:9"},
		{"silence is allowed", "", 0, false, "", "127.0.0.1:9"},
		{"half a signature", "PRO", 0, false, "i/o timeout", "127.0.0.1:9"},
		{"a drip", whole, time.Second, true, "i/o timeout", "127.0.0.1:9"},
		{"a drip, allowed to miss", whole, time.Second, false, "i/o timeout", "127.0.0.1:9"},
		{"a drip that is in time", whole, time.Millisecond, true, "", "203.0.113.9:4660"},
	} {
		synctest.Test(t, func(t *testing.T) {
			far, near := net.Pipe()
			defer far.Close()
			l := Listen(one{c: pipe{near}}, Options{From: loopback, Required: c.required, Timeout: 5 * time.Second})
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			var sending sync.WaitGroup
			sending.Go(func() {
				for i := range len(c.send) {
					time.Sleep(c.every)
					if _, err := io.WriteString(far, c.send[i:i+1]); err != nil {
						return
					}
				}
			})
			began := time.Now()
			if got := accepted.RemoteAddr().String(); got != c.client {
				t.Errorf("%s: RemoteAddr = %s, want %s", c.name, got, c.client)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: the header took %v, want at most 5s", c.name, took)
			}
			err = accepted.SetReadDeadline(time.Now().Add(time.Hour))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: the connection is refused: %v", c.name, err)
			case c.want == "no header":
				if !errors.Is(err, errNone) {
					t.Errorf("%s: SetReadDeadline = %v, want that there is no header", c.name, err)
				}
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: SetReadDeadline = %v, want %q", c.name, err, c.want)
			}
			if c.want != "" {
				if _, err := accepted.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s: Read succeeds, want the connection refused", c.name)
				}
			}
			accepted.Close()
			sending.Wait()
		})
	}
}

var version1 = regexp.MustCompile(`\APROXY (?:TCP4 ([0-9.]+) [0-9.]+|TCP6 ([0-9a-fA-F:.]+) [0-9a-fA-F:.]+) [0-9]{1,5} [0-9]{1,5}\r\n`)

// FuzzHeader: no header makes the reader fail, or take more than its bound, or
// takes from what comes behind; and a client that it names stands in it.
func FuzzHeader(f *testing.F) {
	for _, seed := range []string{
		"", "GET / HTTP/1.1\r\n", "PROXY TCP4 203.0.113.9 192.0.2.1 4660 80\r\n", "PROXY TCP6 2001:db8::9 ::1 1 1\r\n",
		"PROXY UNKNOWN x\r\n",
		version2(proxied, tcp4, addresses4), version2(proxied, tcp6, addresses6), version2(local, unspec, "x"),
		version2(proxied, unix, strings.Repeat("/", 216)),
		version2(proxied, 0x13, addresses4), signature2 + "\x21\x11\xff\xff", signature2,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		const tail = "\x00what comes behind"
		in := bytes.NewReader([]byte(header + tail))
		r := bufio.NewReaderSize(in, bufferBytes)
		client, err := readHeader(r)
		used := len(header) + len(tail) - in.Len() - r.Buffered()
		if used > 16+4096 {
			t.Fatalf("the header has %d bytes", used)
		}
		rest, readErr := io.ReadAll(r)
		if readErr != nil || header+tail != (header + tail)[:used]+string(rest) {
			t.Fatalf("behind the header stands %q (%v)", rest, readErr)
		}
		if errors.Is(err, errNone) && used != 0 {
			t.Errorf("%d bytes of what is no header are used up", used)
		}
		if client == nil {
			return
		}
		if err != nil {
			t.Fatalf("client is %v with an error: %v", client, err)
		}
		got := client.(*net.TCPAddr).AddrPort().Addr().Unmap()
		var want netip.Addr
		switch text := (header + tail)[:used]; {
		case strings.HasPrefix(text, signature2) && text[13] == tcp4:
			want = netip.AddrFrom4([4]byte([]byte(text[16:20])))
		case strings.HasPrefix(text, signature2) && text[13] == tcp6:
			want = netip.AddrFrom16([16]byte([]byte(text[16:32]))).Unmap()
		default:
			m := version1.FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("%q names %v", text, got)
			}
			want = netip.MustParseAddr(m[1] + m[2]).Unmap()
		}
		if got != want || got.IsUnspecified() || got.IsMulticast() {
			t.Errorf("%q names %v, want %v", header, got, want)
		}
	})
}
