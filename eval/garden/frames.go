package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Requests whose end two readers may find in two places: lengths and codings of HTTP/1.1, and
// frames of HTTP/2. In each hides a second request, for /v1/exports. What the server answers beyond
// what was let through would be one that nobody counted.

const hidden = "GET /v1/exports HTTP/1.1\r\nHost: api.example.com\r\nX-Hidden: 1\r\n\r\n"

var (
	lengths = []string{
		"Content-Length: %d", "Content-Length: 0", "content-length: %d", "Content-Length: +%d",
		"Content-Length: %d,%[1]d", "Content-Length:\t%d", "Content-Length : %d", "Content-Length: 0%d",
		"Content-Length: %d\r\nContent-Length: 0", "Content-Length: 0\r\nContent-Length: %d",
		"Content-Length: %d\r\nContent-Length: %[1]d", "Content-Length: -1", "Content-Length: 0x%x",
		"Content_Length: %d",
		"Content-Length: %d ", " Content-Length: %d", "X: y\r\n Content-Length: %d",
		"Content-Length: 99999999999999999999", "Content-Length: %d\r", "Content-Length\x00: %d", "",
	}
	codings = []string{
		"", "", "Transfer-Encoding: chunked", "transfer-encoding: CHUNKED", "Transfer-Encoding: chunked, identity",
		"Transfer-Encoding: identity", "Transfer-Encoding: identity, chunked", "Transfer-Encoding : chunked",
		"Transfer-Encoding:\tchunked", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
		"Transfer_Encoding: chunked",
		"X: y\r\n Transfer-Encoding: chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: xchunked",
		"Transfer-Encoding: chunked;x=y", "Transfer-Encoding: chunked ", "Transfer-Encoding: gzip, chunked",
		"TE: chunked", "Transfer-Encoding\x00: chunked", "Transfer-Encoding: chun\r\n ked",
		"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked", "Connection: Content-Length",
	}
	chunks = []string{
		"0\r\n\r\n", "0\n\n", "00\r\n\r\n", "0x0\r\n\r\n", "0;ext=\"\r\n\r\n\"\r\n\r\n", "1\r\nx\r\n0\r\n\r\n",
		"1\nx\n0\n\n", "2\r\nx\r\n0\r\n\r\n", "1;\nx\r\n0\r\n\r\n", "0\r\nX-Trailer: y\r\n\r\n",
		"0\r\nContent-Length: 5\r\n\r\n",
		"0 \r\n\r\n", " 0\r\n\r\n", "+0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n", "8000000000000000\r\n",
		"0\r\n \r\n\r\n", "0\r\nX: y\n\r\n", "1\r\nxy\r\n0\r\n\r\n", "",
	}
	others = []string{"", "", "", "Expect: 100-continue", "Connection: close", "Connection: keep-alive, X-Id",
		"Upgrade: h2c\r\nConnection: Upgrade", "Upgrade: websocket\r\nConnection: Upgrade", "Trailer: X-Api-Key",
		"X-HTTP-Method-Override: DELETE", "X-Original-URL: /v1/exports", "X-Rewrite-URL: /v1/exports", "Host: other",
		"Proxy-Connection: keep-alive", "Max-Forwards: 0"}
)

// framing makes a request with a second one where its body is, or just after.
func (g *grammar) framing() []byte {
	method := pick(g, []string{"GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
	target := pick(g, []string{"/v1/items", "/v1/items", "/login", "/v1/items/7", "/nothing", "*", "/rpc?action=login"})
	body := pick(g, chunks) + hidden
	if g.IntN(3) == 0 {
		body = hidden
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\nHost: api.example.com\r\n", method, target,
		pick(g, []string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9",
			"HTTP/1.1 "}))
	lines := []string{pick(g, codings), pick(g, others)}
	if length := pick(g, lengths); strings.Contains(length, "%") {
		lines = append(lines, fmt.Sprintf(length,
			[]int{len(body), len(body) - len(hidden), 0, 1, len(body) + 1}[g.IntN(5)]))
	} else {
		lines = append(lines, length)
	}
	g.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	for _, line := range lines {
		if line != "" {
			b.WriteString(line + pick(g, []string{"\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n"}))
		}
	}
	b.WriteString("\r\n" + body)
	text := b.Bytes()
	for range g.IntN(4) / 3 { // now and then any byte of the head
		text[g.IntN(len(text)-len(body))] = byte(g.IntN(256))
	}
	return text
}

// frames sends n requests with framing of their own to a gateway, half of them as HTTP/2, and
// returns how many it sent. A failure is one whose bytes made the server answer more than was let
// through.
func frames(f *front, g *grammar, n int, progress func(int)) (sent int, failures []string, err error) {
	const together = 64
	for sent < n {
		sends := make([]func(net.Conn), together)
		texts := make([][]byte, together)
		for i := range sends {
			if i%2 == 0 {
				texts[i] = g.framing()
				sends[i] = func(c net.Conn) { sendRaw(c, texts[i]) }
			} else {
				streams := g.streams()
				texts[i] = fmt.Append(nil, streams)
				sends[i] = func(c net.Conn) { sendHTTP2(c, streams) }
			}
		}
		exchange(f, sends)
		sent += together
		if admitted, seen := f.settled(); seen > admitted {
			for i := range sends { // which of them was it?
				before, old := f.settled()
				exchange(f, sends[i:i+1])
				if admitted, seen := f.settled(); seen-old > admitted-before {
					failures = append(failures, "more answers than decisions: "+strconv.Quote(string(texts[i])))
				}
			}
			if len(failures) == 0 {
				failures = append(failures, fmt.Sprintf("%d answers and %d decisions, and no request alone shows why",
					seen, admitted))
			}
			return sent, failures, nil
		}
		progress(sent)
	}
	return sent, nil, nil
}

// exchange sends each over a connection of its own, at once, and waits until the gateway has ended or gone quiet.
func exchange(f *front, sends []func(net.Conn)) {
	var wg sync.WaitGroup
	for _, send := range sends {
		wg.Go(func() {
			conn, err := net.Dial("tcp", f.addr)
			if err != nil {
				return
			}
			defer conn.Close()
			send(conn)
		})
	}
	wg.Wait()
}

// quiet is how long a connection may be silent before all is taken to have been answered.
const quiet = 250 * time.Millisecond

func sendRaw(conn net.Conn, text []byte) {
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	conn.Write(text)
	drain(conn)
}

func drain(conn net.Conn) {
	buf := make([]byte, 4096)
	for range 20 {
		conn.SetReadDeadline(time.Now().Add(quiet))
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

// stream is one request of HTTP/2.
type stream struct {
	fields  [][2]string
	data    []string
	trailer [][2]string
}

// streams makes requests whose pseudo-header fields, lengths, bodies and trailers were mutated.
func (g *grammar) streams() []stream {
	all := make([]stream, 1+g.IntN(4))
	for i := range all {
		r := g.request()
		s := stream{fields: [][2]string{{":method", r.method},
			{":scheme", pick(g, []string{"http", "http", "https", "x", ""})}, {":authority", "api.example.com"},
			{":path", r.target}, {"x-id", "1"}}}
		if g.IntN(3) == 0 {
			s.fields = append(s.fields, pick2(g, [][2]string{{"content-length", "5"}, {"content-length", "0"},
				{"content-length", "+5"}, {"transfer-encoding", "chunked"}, {"connection", "close"}, {"host", "other"},
				{"te", "trailers"}, {"Content-Length", "3"},
				{":path", "/v1/exports"}, {":method", "DELETE"}, {":protocol", "websocket"}, {"x y", "z"},
				{"x", "y\r\nGET /v1/exports HTTP/1.1"}, {"expect", "100-continue"}, {"cookie", "a=b"},
				{"upgrade", "h2c"}, {"x\r\ntransfer-encoding", "chunked"}}))
		}
		if g.IntN(4) == 0 {
			g.Shuffle(len(s.fields), func(i, j int) { s.fields[i], s.fields[j] = s.fields[j], s.fields[i] })
		}
		if r.form != "" || g.IntN(3) == 0 {
			s.fields = append(s.fields, [2]string{"content-type", "application/x-www-form-urlencoded"})
			s.data = append(s.data, r.form+pick(g, []string{"", "x", "0\r\n\r\n" + hidden, hidden}))
		}
		if g.IntN(5) == 0 {
			s.trailer = [][2]string{pick2(g, [][2]string{{"x-trailer", "y"}, {"content-length", "5"},
				{":path", "/v1/exports"}, {"transfer-encoding", "chunked"}, {"x-api-key", "k"}})}
		}
		all[i] = s
	}
	return all
}

func pick2(g *grammar, list [][2]string) [2]string { return list[g.IntN(len(list))] }

func sendHTTP2(conn net.Conn, streams []stream) {
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	out := bufio.NewWriter(conn)
	io.WriteString(out, http2.ClientPreface)
	framer := http2.NewFramer(out, nil)
	framer.AllowIllegalWrites = true
	framer.WriteSettings()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encode := func(fields [][2]string) []byte {
		block.Reset()
		for _, f := range fields {
			encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		return block.Bytes()
	}
	for i, s := range streams {
		id := uint32(2*i + 1)
		framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      id,
			BlockFragment: encode(s.fields),
			EndHeaders:    true,
			EndStream:     len(s.data)+len(s.trailer) == 0,
		})
		for j, data := range s.data {
			framer.WriteData(id, j == len(s.data)-1 && s.trailer == nil, []byte(data))
		}
		if s.trailer != nil {
			framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID:      id,
				BlockFragment: encode(s.trailer),
				EndHeaders:    true,
				EndStream:     true,
			})
		}
	}
	out.Flush()
	drain(conn)
}
