//go:build long && unix

package doors

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate-io/headgate/eval/harness"
)

// hostile is a Headgate with the four listeners where somebody asks. Each gets what no client of its kind sends.
type hostile struct {
	*harness.Gateway
	t  *testing.T
	at map[string]string // of the listeners
}

// What is sent to a listener is answered by an error of its protocol, takes a bounded memory, and harms nobody else.
func TestHostilePeers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/items/{id}\n")
	write(t, filepath.Join(dir, "limits.yaml"),
		"domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000000}}]\n")
	write(t, filepath.Join(dir, "headgate.yaml"), strings.ReplaceAll("listen: none\nroutes: [routes.txt]\ndecisions: "+
		"{listen: 'L', grpc: 'L', resp: 'L', spoe: 'L', ratelimit: [limits.yaml]}\n", "L", "127.0.0.1:0"))
	harness.Run(t, dir, "policy", "set", "default", "1000000", "--per", "1h", "--db", "sqlite:headgate.db")
	t.Setenv("GOGC", "10") // so that what is measured is held: as it comes, two thirds of it are garbage
	g := harness.Serve(t, dir, "--config", "headgate.yaml", "--listen", "none")
	h := &hostile{g, t, map[string]string{"HTTP": strings.TrimPrefix(g.Decisions, "http://"), "gRPC": g.GRPC,
		"RESP": g.RESP, "SPOE": g.SPOE}}
	h.answers("before anything else")
	for _, attack := range []struct {
		name string
		do   func(name, at string)
	}{
		{"10,000 idle connections", func(_, at string) { h.open(at, 2500, nil) }},
		{"questions that break off", func(name, at string) { h.open(at, 300, begun[name]) }},
		{"answers that nobody reads", h.neverReads},
		{"bytes at random", func(name, at string) { h.random(name, at) }},
	} {
		for name, at := range h.at {
			attack.do(name, at)
		}
		h.answers(attack.name)
	}
	h.long()
	h.malformed()
	h.answers("what is too long or malformed")
	for _, word := range []string{"panic", "fatal error"} {
		if strings.Contains(g.Log(), word) {
			t.Errorf("the log says %q", word)
		}
	}
}

// begun are the beginnings of questions.
var begun = map[string][]byte{
	"HTTP": []byte("POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{\"method\":"),
	"gRPC": []byte(preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x50\x01\x04\x00\x00\x00\x01"),
	"RESP": []byte("*5\r\n$11\r\nCL.THROTTLE\r\n$1000\r\nk"),
	"SPOE": []byte(spoeHello + "\x00\x00\x10\x00\x03\x00\x00\x00\x01\x01\x01\x05check"),
}

const (
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	spoeHello = "\x00\x00\x00\x32\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0" +
		"\x0emax-frame-size\x03\xfc\xf0\x06"
	spoeAsks = "\x00\x00\x00\x3a\x03\x00\x00\x00\x01\x01\x01\x05check\x03\x06method\x08\x03GET" +
		"\x06target\x08\x0b/v1/items/7\x06client\x06\xc6\x12\x00\x01"
)

// answers sees that every listener answers a newcomer, and how much memory the process has.
func (h *hostile) answers(after string) {
	h.t.Helper()
	for name, ask := range map[string]func() error{"HTTP": h.askHTTP, "gRPC": h.askGRPC, "RESP": h.askRESP,
		"SPOE": h.askSPOE} {
		if err := ask(); err != nil {
			h.t.Errorf("%s: %s: %v, want an answer", after, name, err)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID()))
	if err != nil {
		h.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	// 46 MB at the start, and for each of 12,000 connections 10 kB; and half as much again for what is being read.
	const most = 256 << 10
	if h.t.Logf("%s: %d MB of memory", after, kilobytes>>10); err != nil || kilobytes > most {
		h.t.Errorf("%s: %d kB of memory, %v, want %d at most", after, kilobytes, err, most)
	}
}

func (h *hostile) dial(at string) net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		h.t.Fatal(err)
	}
	return conn
}

func (h *hostile) askHTTP() error {
	response, err := http.Post(h.Decisions+"/v1/check", "application/json", strings.NewReader(
		`{"method":"GET","target":"/v1/items/7","client":"198.18.0.1"}`))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if !bytes.Contains(body, []byte(`"allowed":true`)) {
		err = fmt.Errorf("%s: %s, %v", response.Status, body, err)
	}
	return err
}

func (h *hostile) grpc() *grpc.ClientConn {
	conn, err := grpc.NewClient(h.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (h *hostile) askGRPC() error {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	answer, err := ratelimit.NewRateLimitServiceClient(h.grpc()).ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
		Domain: "shop", Descriptors: []*wire.RateLimitDescriptor{
			{Entries: []*wire.RateLimitDescriptor_Entry{{Key: "user", Value: "7"}}}}})
	if err == nil && answer.GetOverallCode() != ratelimit.RateLimitResponse_OK {
		err = errors.New(answer.String())
	}
	return err
}

func (h *hostile) askRESP() error {
	return h.saidTo(h.RESP, "CL.THROTTLE k 10000 10000 1\r\n", "*5\r\n:0\r\n")
}

func (h *hostile) askSPOE() error {
	return h.saidTo(h.SPOE, spoeHello+spoeAsks, "within_limits")
}

// saidTo sends bytes, and wants others in what comes back.
func (h *hostile) saidTo(at, bytes, want string) error {
	conn := h.dial(at)
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, bytes); err != nil {
		return err
	}
	got := ""
	for room := make([]byte, 4<<10); ; {
		n, err := conn.Read(room)
		if got += string(room[:n]); strings.Contains(got, want) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%.60q is answered %.200q, %w, want %q in it", bytes, got, err, want)
		}
	}
}

// open opens connections that say something, and stay.
func (h *hostile) open(at string, n int, say []byte) {
	h.t.Helper()
	for range n {
		if _, err := h.dial(at).Write(say); err != nil {
			h.t.Fatal(err)
		}
	}
}

// neverReads sends questions without an end, over connections that take no answer, until no more is taken.
func (h *hostile) neverReads(name, at string) {
	h.t.Helper()
	one := map[string]string{
		"HTTP": "GET /forward HTTP/1.1\r\nHost: h\r\n\r\n", "RESP": "CL.THROTTLE k 10000 10000 1\r\n", "SPOE": spoeAsks,
		"gRPC": "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", // a PING
	}[name]
	first := map[string]string{"SPOE": spoeHello, "gRPC": preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"}[name]
	for range 20 {
		conn := h.dial(at)
		if _, err := io.WriteString(conn, first); err != nil {
			h.t.Fatal(err)
		}
		sent := 0
		for many := []byte(strings.Repeat(one, 64<<10/len(one))); ; {
			_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			n, err := conn.Write(many)
			if sent += n; err != nil {
				break
			}
			if sent > 256<<20 {
				h.t.Errorf("%s: questions of %d bytes are taken, and no answer is", name, sent)
				break
			}
		}
	}
}

func (h *hostile) random(name, at string) {
	rng := rand.New(rand.NewPCG(14, uint64(len(name))))
	for i := range 200 {
		bytes := make([]byte, 1+rng.IntN(4<<10))
		for j := range bytes {
			bytes[j] = byte(rng.Uint32())
		}
		conn := h.dial(at)
		if i%2 == 0 {
			_, _ = conn.Write(begun[name])
		}
		_, _ = conn.Write(bytes)
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			h.t.Errorf("%s: a connection that ended stays open", name)
		}
		_ = conn.Close()
	}
}

// long sends a megabyte where a field is meant.
func (h *hostile) long() {
	h.t.Helper()
	megabyte := strings.Repeat("x", 1<<20)
	frame := binary.BigEndian.AppendUint32([]byte(spoeHello), 1<<20)
	for _, c := range []struct{ name, at, send, want string }{
		{"a header of 1 MB", h.at["HTTP"], "GET /forward HTTP/1.1\r\nHost: h\r\nX-A: " + megabyte + "\r\n\r\n", "431 "},
		{"a command of 1 MB", h.RESP, "*3\r\n$8\r\nHG.CHECK\r\n$1048576\r\n" + megabyte,
			"Protocol error: invalid bulk length"},
		{"a line of 1 MB", h.RESP, megabyte, "Protocol error: too big inline request"},
		{"10^9 arguments", h.RESP, "*1000000000\r\n", "Protocol error: invalid multibulk length"},
		{"an argument of -1 bytes", h.RESP, "*1\r\n$-1\r\n", "Protocol error: invalid bulk length"},
		{"a frame of 1 MB", h.SPOE, string(frame) + megabyte, "the frame is too big"},
	} {
		conn := h.dial(c.at)
		go func() { _, _ = io.WriteString(conn, c.send) }() // which is not taken as a whole
		if got, _ := io.ReadAll(conn); !strings.Contains(string(got), c.want) {
			h.t.Errorf("%s is answered %.200q, want %q in it", c.name, got, c.want)
		}
	}
	for body, want := range map[string]int{
		`{"method":"GET","target":"/v1/items/7","client":"198.18.0.1","header":{"x-a":"` + megabyte + `"}}`:            200,
		`{"method":"GET","target":"/v1/items/7","client":"198.18.0.1","header":{"x-a":"` + megabyte + megabyte + `"}}`: 413,
	} {
		response, err := http.Post(h.Decisions+"/v1/check", "application/json", strings.NewReader(body))
		if err != nil {
			h.t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != want {
			h.t.Errorf("a body of %d bytes: %s, want %d", len(body), response.Status, want)
		}
	}
	about := func(value string) *auth.CheckRequest {
		return &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
				SocketAddress: &core.SocketAddress{Address: "198.18.0.1"}}}},
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET",
				Path: "/v1/items/7", Headers: map[string]string{"x-a": value}}},
		}}
	}
	client := auth.NewAuthorizationClient(h.grpc())
	if answer, err := client.Check(h.t.Context(), about(megabyte)); err != nil || answer.GetOkResponse() == nil {
		h.t.Errorf("ext_authz with a header of 1 MB: %v, %v, want a yes", answer, err)
	}
	if _, err := client.Check(h.t.Context(), about(strings.Repeat(megabyte, 5))); status.Code(err) !=
		codes.ResourceExhausted {
		h.t.Errorf("ext_authz with a header of 5 MB: %.200v, want ResourceExhausted", err)
	}
	ctx := metadata.AppendToOutgoingContext(h.t.Context(), "x-a", megabyte)
	if _, err := client.Check(ctx, about("x")); status.Code(err) == codes.OK || status.Code(err) == codes.Unknown {
		h.t.Errorf("a call with metadata of 1 MB: %.200v, want an error that is not Unknown", err)
	}
}

// malformed sends messages to the services of gRPC that are none.
func (h *hostile) malformed() {
	h.t.Helper()
	conn := h.grpc()
	for _, method := range []string{"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		"/envoy.service.auth.v3.Authorization/Check"} {
		for _, message := range []string{"\xff", "\x0a\xff\xff\xff\xff\x0f", "\x0a\x05ab", "\x12\x02\x0a\x7f",
			strings.Repeat("\x0b", 20_000), "\x0a\x01\xff"} {
			err := conn.Invoke(h.t.Context(), method, message, nil, grpc.ForceCodecV2(asItIs{}))
			if code := status.Code(err); code != codes.Internal && code != codes.InvalidArgument {
				h.t.Errorf("%s of %.20q: %v, want Internal or InvalidArgument", method, message, err)
			}
		}
	}
	stream, err := conn.NewStream(h.t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas", grpc.ForceCodecV2(asItIs{}))
	if err == nil {
		err = errors.Join(stream.SendMsg("\xff"), stream.RecvMsg(nil))
	}
	if code := status.Code(err); code == codes.OK || code == codes.Unknown {
		h.t.Errorf("a report that is none: %v, want an error that is not Unknown", err)
	}
	// HTTP: half a line, no line, two lengths.
	for send, want := range map[string]string{
		"GET\r\n\r\n": "400 ", "\x16\x03\x01\x02\x00\x01": "",
		"POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}": "400 ",
		"POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n[[[[[":                   "400 ",
	} {
		conn := h.dial(h.at["HTTP"])
		_, _ = io.WriteString(conn, send)
		_ = conn.(*net.TCPConn).CloseWrite()
		if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, want) {
			h.t.Errorf("%q is answered %q, want %q in it", send, line, want)
		}
	}
}

// asItIs sends texts as messages.
type asItIs struct{}

func (asItIs) Name() string { return "proto" }

func (asItIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(string))}, nil
}

func (asItIs) Unmarshal(mem.BufferSlice, any) error { return nil }
