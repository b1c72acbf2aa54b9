package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
)

// serveHTTP answers every request with two bytes, if limited behind the middleware: one rule, both fields.
func serveHTTP(stdout io.Writer, limited bool) error {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	})
	if limited {
		lim, err := headgate.New(headgate.Options{Rules: []string{"GET /v1/items/{id} 1000000/s", "default 20/s"}})
		if err != nil {
			return err
		}
		h = httplimit.Handler(lim, h, httplimit.Options{})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(l)
}

// serveNumbers answers whatever it reads as CL.THROTTLE is answered, and does nothing else: no server in Go that waits
// for each connection by itself works less.
func serveNumbers(stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			for room := make([]byte, 4<<10); ; {
				if _, err := c.Read(room); err != nil {
					return
				}
				if _, err := io.WriteString(c, "*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:1\r\n"); err != nil {
					return
				}
			}
		}()
	}
}

// serveEmpty answers ShouldRateLimit with OK, by grpc-go as it comes, or with what Headgate sets: goroutines that it
// keeps, and windows of a fixed size.
func serveEmpty(stdout io.Writer, keeps bool) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	var options []grpc.ServerOption
	if keeps {
		options = append(options, grpc.NumStreamWorkers(128),
			grpc.StaticStreamWindowSize(256<<10), grpc.StaticConnWindowSize(1<<20))
	}
	s := grpc.NewServer(options...)
	ratelimit.RegisterRateLimitServiceServer(s, emptyService{})
	return s.Serve(l)
}

type emptyService struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (emptyService) ShouldRateLimit(context.Context,
	*ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}
