package engine_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/server/engine"
)

// BenchmarkGateway is a request through a gateway to an API and back, on one connection, by each engine.
func BenchmarkGateway(b *testing.B) {
	for _, chosen := range []string{"net/http", "fast"} {
		b.Run(chosen, func(b *testing.B) { benchmarkGateway(b, chosen, "1000000/s") })
		b.Run(chosen+"/refused", func(b *testing.B) { benchmarkGateway(b, chosen, "1/h") })
	}
}

func listen(tb testing.TB) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

func benchmarkGateway(b *testing.B, chosen, limit string) {
	api := listen(b)
	go func() {
		for {
			c, err := api.Accept()
			if err != nil {
				return
			}
			go answerAll(c)
		}
	}()
	up, _ := url.Parse("http://" + api.Addr().String())
	lim, err := headgate.New(headgate.Options{Rules: []string{"GET /v1/items/{id} " + limit, "default 1/s"}})
	if err != nil {
		b.Fatal(err)
	}
	h, err := gateway.New(gateway.Options{Limiter: lim, Upstream: up})
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h}
	l := listen(b)
	if chosen == "fast" {
		e := engine.New(s)
		go func() { _ = e.Serve(l) }()
		defer e.Close()
	} else {
		go func() { _ = s.Serve(l) }()
		defer s.Close()
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	text := []byte("GET /v1/items/1 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	buf := make([]byte, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(text); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// answerAll is an API that allocates nothing.
func answerAll(c net.Conn) {
	in := bufio.NewReader(c)
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Wed, 25 Nov 2026 13:00:00 GMT\r\n" +
		"Content-Length: 2\r\n\r\nok")
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) == 2 {
			if _, err := c.Write(answer); err != nil && err != io.EOF {
				return
			}
		}
	}
}
