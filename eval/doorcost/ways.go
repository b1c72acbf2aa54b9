package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// somebody is one of 65,536 addresses, so that buckets are found in a table of some size.
func somebody() string { return fmt.Sprintf("198.18.%d.%d", rand.IntN(256), rand.IntN(256)) }

const (
	emptyRow = "an empty service of grpc-go, as it comes"
	tunedRow = "the same, with what Headgate sets"
	peerRow  = "envoyproxy/ratelimit (ShouldRateLimit), and its Redis"
	nodeRow  = "gubernator (GetRateLimits), one node"
	readRow  = "a server in Go that reads and writes, and nothing else"
	incrRow  = "Redis, INCR"
	pipeRow  = "Redis, INCR, 32 in a pipeline"
	bareRow  = "net/http, without a limiter"
	pingRow  = "Redis, PING, 32 in a pipeline"

	rlsRow   = "Envoy's rate limit filter (ShouldRateLimit)"
	batchRow = "a program, in JSON, 100 in a batch"
	respRow  = "CL.THROTTLE"
	respPipe = "CL.THROTTLE, 32 in a pipeline"

	cellRow, cellPipe = "redis-cell in Redis, CL.THROTTLE", "redis-cell in Redis, CL.THROTTLE, 32 in a pipeline"
	crabRow, crabPipe = "throttlecrab, THROTTLE", "throttlecrab, THROTTLE, 32 in a pipeline"
)

// ways are those to ask, in the order of the page.
func (w *world) ways() ([]way, error) {
	_, respPort, err := net.SplitHostPort(w.headgate.RESP)
	if err != nil {
		return nil, err
	}
	resp, pid := "127.0.0.1:"+respPort, w.headgate.PID()
	throttle := func() string { return command("CL.THROTTLE", somebody(), "999999", "1000000", "1") }
	check := func() string { return command("HG.CHECK", "GET", "/v1/items/7", somebody()) }
	incr := func() string { return command("INCR", somebody()) }
	all := []way{
		{emptyRow, "", w.stock.cmd.Process.Pid, 0, 64, 1, w.shouldRateLimit(w.stock.at)},
		{tunedRow, emptyRow, w.tuned.cmd.Process.Pid, 0, 64, 1, w.shouldRateLimit(w.tuned.at)},
		{peerRow, emptyRow, w.peer.PID(), w.redis.Process.Pid, 64, 1, w.shouldRateLimit(w.peer.At)},
		{rlsRow, emptyRow, pid, 0, 64, 1, w.shouldRateLimit(w.headgate.GRPC)},
		{"Envoy's ext_authz, by gRPC", emptyRow, pid, 0, 64, 1, w.authorize()},
		{"HAProxy's spoe", "", pid, 0, 64, 1, w.overSPOE()},
		{"nginx, Caddy and others (/forward)", "", pid, 0, 64, 1, w.forward()},
		{"a program, in JSON", "", pid, 0, 64, 1, w.inJSON(1)},
		{batchRow, "", pid, 0, 8, 100, w.inJSON(100)},
		{incrRow, "", w.redis.Process.Pid, 0, 64, 1, pipeline(w.redisAt, 1, 1, incr)},
		{readRow, incrRow, w.numbers.cmd.Process.Pid, 0, 64, 1, pipeline(w.numbers.at, 1, 6, throttle)},
		{respRow, incrRow, pid, 0, 64, 1, pipeline(resp, 1, 6, throttle)},
		{"HG.CHECK", incrRow, pid, 0, 64, 1, pipeline(resp, 1, 9, check)},
		{pingRow, "", w.redis.Process.Pid, 0, 16, 32,
			pipeline(w.redisAt, 32, 1, func() string { return command("PING") })},
		{pipeRow, "", w.redis.Process.Pid, 0, 16, 32, pipeline(w.redisAt, 32, 1, incr)},
		{respPipe, pipeRow, pid, 0, 16, 32, pipeline(resp, 32, 6, throttle)},
		{"HG.CHECK, 32 in a pipeline", pipeRow, pid, 0, 16, 32, pipeline(resp, 32, 9, check)},
		{bareRow, "", w.bare.cmd.Process.Pid, 0, 16, 1, w.get(w.bare.at)},
		{"net/http behind `httplimit`, with both fields", bareRow, w.limited.cmd.Process.Pid, 0, 16, 1,
			w.get(w.limited.at)},
	}
	beside := func(row string, more ...way) {
		at := slices.IndexFunc(all, func(w way) bool { return w.name == row })
		all = slices.Insert(all, at+1, more...)
	}
	beside(incrRow, way{cellRow, incrRow, w.cell.PID(), 0, 64, 1, pipeline(w.cell.At, 1, 6, throttle)})
	beside(pipeRow, way{cellPipe, pipeRow, w.cell.PID(), 0, 16, 32, pipeline(w.cell.At, 32, 6, throttle)})
	if w.crab != nil {
		take := func() string { return command("THROTTLE", somebody(), "999999", "1000000", "1") }
		beside(cellRow, way{crabRow, incrRow, w.crab.PID(), 0, 64, 1, pipeline(w.crab.At, 1, 6, take)})
		beside(cellPipe, way{crabPipe, pipeRow, w.crab.PID(), 0, 16, 32, pipeline(w.crab.At, 32, 6, take)})
	}
	if w.node != nil {
		all = slices.Insert(all, 3, way{nodeRow, emptyRow, w.node.PID(), 0, 64, 1, w.getRateLimits()})
	}
	return all, nil
}

func (w *world) dial(at string) (*grpc.ClientConn, error) {
	if c := w.calls[at]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.calls[at] = c
	return c, err
}

func (w *world) shouldRateLimit(at string) func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := w.dial(at)
		if err != nil {
			return nil, err
		}
		client := ratelimit.NewRateLimitServiceClient(conn)
		return func() error {
			answer, err := client.ShouldRateLimit(context.Background(), &ratelimit.RateLimitRequest{
				Domain: "eval", Descriptors: []*wire.RateLimitDescriptor{
					{Entries: []*wire.RateLimitDescriptor_Entry{{Key: "key", Value: somebody()}}}},
			})
			if err == nil && answer.GetOverallCode() != ratelimit.RateLimitResponse_OK {
				err = errors.New("the limit was met")
			}
			return err
		}, nil
	}
}

// getRateLimits asks gubernator in its own protocol: a GetRateLimitsReq (pb.gubernator) with one RateLimitReq, of which
// name, unique_key, hits, limit and duration are fields 1 to 5; and the error of a RateLimitResp is field 5.
func (w *world) getRateLimits() func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := w.dial(w.node.At)
		if err != nil {
			return nil, err
		}
		return func() error {
			one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "eval")
			one = protowire.AppendString(protowire.AppendTag(one, 2, protowire.BytesType), somebody())
			for i, n := range []uint64{1, 1_000_000, 1000} {
				one = protowire.AppendVarint(protowire.AppendTag(one, protowire.Number(3+i), protowire.VarintType), n)
			}
			question := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one)
			var answer []byte
			err := conn.Invoke(context.Background(), "/pb.gubernator.V1/GetRateLimits", question, &answer,
				grpc.ForceCodecV2(asItIs{}))
			if err == nil && (bytes.Contains(answer, []byte("pool is empty")) || len(answer) < 10) {
				err = fmt.Errorf("answered %q", answer)
			}
			return err
		}, nil
	}
}

// asItIs sends messages that are written already.
type asItIs struct{}

func (asItIs) Name() string { return "proto" }

func (asItIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (asItIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (w *world) authorize() func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := w.dial(w.headgate.GRPC)
		if err != nil {
			return nil, err
		}
		client := auth.NewAuthorizationClient(conn)
		return func() error {
			answer, err := client.Check(context.Background(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
				Source: &auth.AttributeContext_Peer{Address: &core.Address{
					Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: somebody()}}}},
				Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET",
					Path: "/v1/items/7", HeaderMap: &core.HeaderMap{Headers: []*core.HeaderValue{
						{Key: "accept", RawValue: []byte("*/*")}, {Key: "user-agent", RawValue: []byte("doorcost")},
					}}}},
			}})
			if err == nil && answer.GetOkResponse() == nil {
				err = errors.New("the request was refused")
			}
			return err
		}, nil
	}
}

// posted sends a request and wants 200, with a text in its answer.
func (w *world) posted(r *http.Request, want string) error {
	response, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(want)) ||
		bytes.Contains(body, []byte(`"allowed":false`))) {
		err = fmt.Errorf("%s: %.200s", response.Status, body)
	}
	return err
}

func (w *world) forward() func() (func() error, error) {
	return func() (func() error, error) {
		return func() error {
			r, err := http.NewRequest(http.MethodGet, w.headgate.Decisions+"/forward", http.NoBody)
			if err != nil {
				return err
			}
			r.Header = http.Header{
				"X-Forwarded-Method": {"GET"},
				"X-Forwarded-Uri":    {"/v1/items/7"},
				"X-Forwarded-For":    {somebody()},
				"User-Agent":         {"doorcost"},
			}
			return w.posted(r, "")
		}, nil
	}
}

// get asks a server of net/http over a connection for each asker, by bytes: what asks must not be what is waited for.
func (w *world) get(at string) func() (func() error, error) {
	const request = "GET /v1/items/7 HTTP/1.1\r\nHost: api\r\n\r\n"
	return func() (func() error, error) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return nil, err
		}
		answer := make([]byte, 1<<10)
		return func() error {
			if _, err := io.WriteString(c, request); err != nil {
				return err
			}
			n, err := c.Read(answer) // in one piece, as a few hundred bytes are
			if err == nil && !bytes.HasSuffix(answer[:n], []byte("\r\n\r\nok")) {
				err = fmt.Errorf("answered %q", answer[:n])
			}
			return err
		}, nil
	}
}

func (w *world) inJSON(n int) func() (func() error, error) {
	return func() (func() error, error) {
		return func() error {
			var b strings.Builder
			for i := range n {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, `{"method":"GET","target":"/v1/items/7","client":"%s"}`, somebody())
			}
			text := b.String()
			if n > 1 {
				text = `{"requests":[` + text + `]}`
			}
			r, err := http.NewRequest(http.MethodPost, w.headgate.Decisions+"/v1/check", strings.NewReader(text))
			if err != nil {
				return err
			}
			return w.posted(r, `"allowed":true`)
		}, nil
	}
}

func command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// pipeline asks by n commands at once, of which each is answered by some lines.
func pipeline(at string, n, lines int, one func() string) func() (func() error, error) {
	return func() (func() error, error) {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return nil, err
		}
		in := bufio.NewReaderSize(conn, 64<<10)
		return func() error {
			var b strings.Builder
			for range n {
				b.WriteString(one())
			}
			if _, err := io.WriteString(conn, b.String()); err != nil {
				return err
			}
			for range n * lines {
				line, err := in.ReadSlice('\n')
				if err != nil {
					return err
				}
				if line[0] == '-' {
					return errors.New(string(line))
				}
			}
			return nil
		}, nil
	}
}

// overSPOE asks by frames as HAProxy writes them, one at a time on each connection.
func (w *world) overSPOE() func() (func() error, error) {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) } // all below 240 bytes
	frame := func(kind byte, payload []byte) []byte {
		return append([]byte{0, 0, 0, byte(7 + len(payload)), kind, 0, 0, 0, 1, 0, 0}, payload...)
	}
	hello := text(append(text(nil, "supported-versions"), 8), "2.0")
	hello = append(text(hello, "max-frame-size"), 3, 0xfc, 0xf0, 0x06) // 16,380
	return func() (func() error, error) {
		conn, err := net.Dial("tcp", w.headgate.SPOE)
		if err != nil {
			return nil, err
		}
		in := bufio.NewReader(conn)
		read := func() ([]byte, error) {
			head, err := in.Peek(4)
			if err != nil {
				return nil, err
			}
			whole, err := in.Peek(4 + int(head[2])<<8 + int(head[3]))
			_, _ = in.Discard(len(whole))
			return whole, err
		}
		if _, err := conn.Write(frame(1, hello)); err != nil {
			return nil, err
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		return func() error {
			q := append(text(nil, "check"), 4)
			q = text(append(text(q, "method"), 8), "GET")
			q = text(append(text(q, "target"), 8), "/v1/items/7")
			q = text(append(text(q, "headers"), 9), "\x06Accept\x03*/*\x00\x00")
			q = append(append(text(q, "client"), 6), 198, 18, byte(rand.IntN(256)), byte(rand.IntN(256)))
			if _, err := conn.Write(frame(3, q)); err != nil {
				return err
			}
			answer, err := read()
			if err == nil && !bytes.Contains(answer, []byte("within_limits")) {
				err = fmt.Errorf("the answer is %q", answer)
			}
			return err
		}, nil
	}
}
