//go:build unix

package doors

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate/internal/routertest"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/serve/spoe"
)

// overSPOE asks as HAProxy's filter spoe does. What it writes and reads is its own, and none of package spoe's.
func overSPOE(t *testing.T, o decisions.Options) door {
	t.Helper()
	answers, err := decisions.NewAnswers(o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spoe.New(spoe.Options{Check: answers.Ask, Trusted: netip.Addr.IsLoopback, MaxConnections: 4})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = l.Close(); _ = s.Shutdown(context.Background()) })
	in := bufio.NewReader(conn)
	length := func(n int) []byte {
		if n < 240 {
			return []byte{byte(n)}
		}
		b := []byte{byte(n) | 240}
		for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
			b = append(b, byte(n)|128)
		}
		return append(b, byte(n))
	}
	text := func(b []byte, s string) []byte { return append(append(b, length(len(s))...), s...) }
	frame := func(kind byte, payload []byte) []byte {
		b := append([]byte{0, 0, 0, 0, kind, 0, 0, 0, 1, 0, 0}, payload...)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(in, answer); err != nil {
			t.Fatal(err)
		}
		return answer[7:]
	}
	hello := text(append(text(nil, "supported-versions"), 8), "2.0")
	hello = append(append(text(hello, "max-frame-size"), 3), length(16380)...)
	frame(1, hello)
	return door{"HAProxy by SPOE", func(c routertest.Call) routertest.Verdict {
		var fields []byte
		for name, lines := range c.Header() {
			fields = text(text(fields, name), lines[0])
		}
		fields = append(fields, 0, 0)
		q := append(text(nil, "check"), 4)
		q = text(append(text(q, "method"), 8), c.Method)
		q = text(append(text(q, "target"), 8), c.Target)
		q = text(append(text(q, "headers"), 9), string(fields))
		switch a := netip.MustParseAddr(c.Client); {
		case a.Is4():
			q = append(append(text(q, "client"), 6), a.AsSlice()...)
		default:
			q = append(append(text(q, "client"), 7), a.AsSlice()...)
		}
		b := frame(3, q)
		number := func() (n int) {
			if n, b = int(b[0]), b[1:]; n < 240 {
				return n
			}
			for shift := 4; ; shift += 7 {
				next := int(b[0])
				b = b[1:]
				if n += next << shift; next < 128 {
					return n
				}
			}
		}
		word := func() string {
			n := number()
			s := string(b[:n])
			b = b[n:]
			return s
		}
		h, status, allowed := http.Header{}, 0, false
		for len(b) > 0 {
			b = b[3:] // set a variable, of three arguments, of the transaction
			name := word()
			kind := b[0]
			switch b = b[1:]; kind & 15 {
			case 1:
				allowed = kind&16 != 0
			case 3:
				status = number()
			case 8:
				h.Set(map[string]string{
					"ratelimit":   "RateLimit",
					"policy":      "RateLimit-Policy",
					"retry_after": "Retry-After",
					"allow":       "Allow",
				}[name], word())
			}
		}
		if allowed != (status == http.StatusOK) {
			t.Errorf("%s %s: allowed is %v, and the status %d", c.Method, c.Target, allowed, status)
		}
		return routertest.VerdictOf(status, h)
	}}
}
