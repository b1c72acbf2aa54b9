package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/grpclimit"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/internal/routertest"
)

// transport keeps the trailer of a call.
type transport struct {
	grpc.ServerTransportStream
	trailer metadata.MD
}

func (s *transport) SetTrailer(md metadata.MD) error { s.trailer = md; return nil }

// The interceptor decides about the calls that all doors answer, whatever their method of HTTP, as about POST, and says
// so by the statuses of gRPC. What is left it tells the program, and clients when to come back.
func TestConforms(t *testing.T) {
	clock := routertest.Start()
	open := func() headgate.Options {
		t.Helper()
		o, err := routertest.Limits(clock)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	library, err := headgate.New(open())
	if err != nil {
		t.Fatal(err)
	}
	told := func(d *headgate.Decision) string {
		text := fmt.Sprint(d.Allowed, d.Reason, d.RetryAfter)
		for _, v := range d.Verdicts() {
			text += fmt.Sprintf(", %v %d", v.Rule, v.Outcome.Remaining)
		}
		return text
	}
	var got string
	limits := grpclimit.New(grpclimit.Options{MaxWait: -1,
		Decided: func(_ context.Context, _ string, d *headgate.Decision) { got = told(d) }})
	if _, err := limits.Open(grpc.NewServer(), open()); err != nil {
		t.Fatal(err)
	}
	served := func(context.Context, any) (any, error) { return nil, nil }
	var statuses, left, retry, over int
	for i, c := range routertest.Corpus() {
		from, md := netip.MustParseAddr(c.Client), metadata.MD{}
		for name, lines := range c.Header() {
			md.Set(name, lines...)
		}
		stream := &transport{}
		ctx := metadata.NewIncomingContext(grpc.NewContextWithServerTransportStream(t.Context(), stream), md)
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 4711))})
		_, err := limits.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: c.Target}, served)
		d := library.Check(t.Context(), headgate.Request{
			Method: http.MethodPost, Target: c.Target, Header: c.Header(), Peer: from,
		})
		want, after := uint32(0), time.Duration(0)
		if !d.Allowed {
			why := refusal.Of(&d)
			want, after = why.Code, why.RetryAfter
		}
		if want == uint32(codes.ResourceExhausted) {
			over++
		}
		if uint32(status.Code(err)) == want {
			statuses++
		}
		if got == told(&d) {
			left++
		}
		var delay time.Duration
		for _, detail := range status.Convert(err).Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				delay = info.GetRetryDelay().AsDuration()
			}
		}
		ms, _ := strconv.ParseInt(strings.Join(stream.trailer.Get("grpc-retry-pushback-ms"), ""), 10, 64)
		if delay == after && max(ms, 0) == int64((after+time.Millisecond-1)/time.Millisecond) {
			retry++
		}
		if statuses <= i || left <= i || retry <= i {
			t.Fatalf("call %d, %+v: %v, %s, again after %v and %d ms; want code %d, %s, %v", i, c, err, got, delay, ms,
				want, told(&d), after)
		}
		clock.Add(int64(routertest.Step))
	}
	row := fmt.Sprintf("| grpc-go, as POST | %d | %d, to the program | %d | not told |\n", statuses, left, retry)
	page, err := os.ReadFile("../../docs/doors.md")
	if err != nil || !strings.Contains(string(page), row) || over < 10 {
		t.Errorf("docs/doors.md, %v, has not the row\n%s%d calls were over a limit, want 10 or more", err, row, over)
	}
}
