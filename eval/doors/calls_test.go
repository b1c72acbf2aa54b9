//go:build unix

package doors

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate/eval/harness"
)

// calls is an API by gRPC that sends every message back: twice where the method is Twice, and never where it is Take.
type calls struct {
	at   string
	came sync.Map // messages by method: *atomic.Int64
}

func newCalls(t *testing.T) *calls {
	t.Helper()
	c := &calls{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		times := map[string]int{"/shop.Chat/Twice": 2, "/shop.Chat/Take": 0}
		for {
			m := &wrapperspb.BytesValue{}
			if err := stream.RecvMsg(m); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			c.of(method).Add(1)
			n, known := times[method]
			for range max(n, map[bool]int{false: 1}[known]) {
				if err := stream.SendMsg(m); err != nil {
					return err
				}
			}
		}
	}))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	c.at = l.Addr().String()
	return c
}

// of counts the messages of a method.
func (c *calls) of(method string) *atomic.Int64 {
	n, _ := c.came.LoadOrStore(method, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// talk is an open call.
type talk struct {
	grpc.ClientStream
	t *testing.T
}

// say sends a message of so many bytes.
func (s talk) say(length int) error {
	return s.SendMsg(wrapperspb.Bytes(bytes.Repeat([]byte{'x'}, length)))
}

// hears receives as many messages as there are, and then the status.
func (s talk) hears() (messages int, end *status.Status) {
	for {
		if err := s.RecvMsg(&wrapperspb.BytesValue{}); err == io.EOF {
			return messages, status.New(codes.OK, "")
		} else if err != nil {
			return messages, status.Convert(err)
		}
		messages++
	}
}

// Messages of gRPC calls count at the gateway, in both directions, and end a call with the status
// that clients of gRPC know.
func TestMessagesOfCalls(t *testing.T) {
	api, dir := newCalls(t), t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "POST /shop.Chat/Talk\nPOST /shop.Chat/Twice\nPOST /shop.Chat/Take\n"+
		"POST /shop.Chat/Long\nPOST /shop.Chat/Plain\n")
	write(t, filepath.Join(dir, "headgate.yaml"), "upstream: http://"+api.at+`
routes: [routes.txt]
grpc_streams:
  "POST /shop.Chat/Talk": {}
  "POST /shop.Chat/Twice": {send: none, receive: messages}
  "POST /shop.Chat/Take": {send: bytes, bytes_per_token: 100B}
  "POST /shop.Chat/Long": {max_message: 128B}
`)
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	for _, rule := range [][]string{
		{"default", "100/d"}, {"UNKNOWN", "1/s"}, {"GRPC-SEND /shop.Chat/Talk", "3/h"},
		{"GRPC-RECEIVE /shop.Chat/Twice", "3/h"},
		{"GRPC-SEND /shop.Chat/Take", "10/h"}, {"POST /shop.Chat/Plain", "1/h"},
	} {
		harness.Run(t, dir, append([]string{"policy", "set", "--db", db}, rule...)...)
	}
	g := harness.Serve(t, dir, "--config", "headgate.yaml", "--db", db)
	conn, err := grpc.NewClient(strings.TrimPrefix(g.URL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	open := func(method string) talk {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 60e9)
		t.Cleanup(cancel)
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		return talk{s, t}
	}
	for _, c := range []struct {
		name, method string
		say          []int // lengths, one after the other is sent back
		echoes       int   // messages that come back for each
		heard        int   // after them
		code         codes.Code
		message      string // its beginning
		came         int64  // at the API, at most: a call that is ended may take some back
	}{
		{"three pass", "/shop.Chat/Talk", []int{1, 1, 1}, 1, 0, codes.OK, "", 3},
		{"the budget is the client's", "/shop.Chat/Talk", []int{1}, 0, 0, codes.ResourceExhausted,
			"Limit GRPC-SEND /shop.Chat/Talk: 3 per 1h, burst 3. Retry in ", 0},
		{"what the API sends", "/shop.Chat/Twice", []int{1, 1}, 0, 3, codes.ResourceExhausted,
			"Limit GRPC-RECEIVE /shop.Chat/Twice", 2},
		{"bytes", "/shop.Chat/Take", []int{300, 600, 300}, 0, 0, codes.ResourceExhausted,
			"Limit GRPC-SEND /shop.Chat/Take", 2},
		{"too long", "/shop.Chat/Long", []int{200}, 0, 0, codes.ResourceExhausted,
			"A message is longer than is allowed here.", 0},
		{"uncounted", "/shop.Chat/Plain", []int{5, 5, 5, 5}, 1, 0, codes.OK, "", 4},
		{"a call over its limit", "/shop.Chat/Plain", nil, 0, 0, codes.ResourceExhausted,
			"Limit POST /shop.Chat/Plain", 0},
		{"a method that there is not", "/shop.Chat/Nothing", nil, 0, 0, codes.Unimplemented,
			"No endpoint has this path.", 0},
	} {
		before := api.of(c.method).Load()
		s := open(c.method)
		for _, length := range c.say {
			if err := s.say(length); err != nil {
				break // the call has ended, which hears tells
			}
			for range c.echoes {
				if err := s.RecvMsg(&wrapperspb.BytesValue{}); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			}
		}
		_ = s.CloseSend()
		heard, end := s.hears()
		if heard != c.heard || end.Code() != c.code || !strings.HasPrefix(end.Message(), c.message) {
			t.Errorf("%s: %d messages and %v %q, want %d and %v %q", c.name, heard, end.Code(), end.Message(), c.heard,
				c.code, c.message)
		}
		if c.code == codes.ResourceExhausted && len(s.Trailer().Get("grpc-retry-pushback-ms")) != 1 {
			t.Errorf("%s: the trailer is %v, want when to call again", c.name, s.Trailer())
		}
		if n := api.of(c.method).Load() - before; n > c.came || c.echoes > 0 && n != c.came {
			t.Errorf("%s: %d messages came to the API, want %d", c.name, n, c.came)
		}
	}
}
