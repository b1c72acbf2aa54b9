//go:build unix

package doors

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
)

// Two gateways with one store admit a limit once, also after it was lowered, when hits are given back, and when quotas
// refuse together; and while the store is frozen the filter is told that nobody knows.
func TestDescriptorsOfTwoGateways(t *testing.T) {
	store := redistest.Start(t)
	dir := t.TempDir()
	limits := func(users int) string {
		return fmt.Sprintf(
			"domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: %d}}\n"+
				"- {key: part, value: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: "+
				"part, value: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}\n", users)
	}
	write(t, filepath.Join(dir, "limits.yaml"), limits(10))
	write(t, filepath.Join(dir, "secret"), strings.Repeat("0123456789abcdef", 4)+"\n")
	var gateways [2]*harness.Gateway
	var clients [2]ratelimit.RateLimitServiceClient
	for i := range gateways {
		own := t.TempDir()
		write(t, filepath.Join(own, "headgate.yaml"), fmt.Sprintf(
			"decisions: {grpc: '127.0.0.1:0', ratelimit: [%[1]s/limits.yaml], scope: strict}\nstore: {redis: "+
				"['%[2]s'], secret_file: %[1]s/secret, deadline: 5s, lease_ttl: 5s}\n", dir, store.Socket))
		gateways[i] = harness.Serve(t, own, "--config", "headgate.yaml", "--listen", "none")
		conn, err := grpc.NewClient(gateways[i].GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		clients[i] = ratelimit.NewRateLimitServiceClient(conn)
	}
	ask := func(i int, back uint64, descriptors ...string) (bool, error) {
		q := &ratelimit.RateLimitRequest{Domain: "shop"}
		for _, d := range descriptors {
			key, value, _ := strings.Cut(d, "=")
			one := &wire.RateLimitDescriptor{Entries: []*wire.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
			if back > 0 {
				one.HitsAddend, one.IsNegativeHits = wrapperspb.UInt64(back), true
			}
			q.Descriptors = append(q.Descriptors, one)
		}
		answer, err := clients[i].ShouldRateLimit(t.Context(), q)
		return answer.GetOverallCode() == ratelimit.RateLimitResponse_OK, err
	}
	admitted := func(times int, descriptors ...string) (n int) {
		t.Helper()
		for i := range times {
			ok, err := ask(i%2, 0, descriptors...)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				n++
			}
		}
		return n
	}
	if n := admitted(16, "user=u"); n != 10 {
		t.Errorf("%d of a limit of 10 were admitted at two gateways", n)
	}
	if ok, err := ask(0, 3, "user=u"); !ok || err != nil {
		t.Errorf("hits given back: %v, %v", ok, err)
	}
	// What is given back is on its way for a moment, and never more than it.
	total := 0
	if !harness.Eventually(time.Minute, func() bool {
		total += admitted(2, "user=u")
		return total >= 3
	}) || total+admitted(6, "user=u") != 3 {
		t.Errorf("%d were admitted after 3 hits were given back", total)
	}
	if n := admitted(8, "part=a", "part=b", "user=q"); n != 2 {
		t.Errorf("%d were admitted under quotas of 1 and 2, want 2", n)
	}
	left := 0
	if !harness.Eventually(time.Minute, func() bool {
		left += admitted(2, "user=q")
		return left >= 8
	}) || left+admitted(6, "user=q") != 8 {
		t.Errorf("%d more of user=q were admitted, want the 8 that quotas did not let through", left)
	}
	if n := admitted(4, "user=w"); n != 4 {
		t.Errorf("%d of 4 were admitted", n)
	}
	write(t, filepath.Join(dir, "limits.yaml"), limits(5))
	for _, g := range gateways {
		if !g.Says("the limits of descriptors were loaded") {
			t.Fatal("a lowered limit is not loaded")
		}
	}
	if n := admitted(6, "user=w"); n != 1 {
		t.Errorf("%d were admitted after a limit of 10, of which 4 were spent, became 5: want 1", n)
	}
	store.Freeze()
	_, err := ask(0, 0, "user=x")
	store.Thaw()
	if status.Code(err) != codes.Unavailable {
		t.Errorf("while the store is frozen: %v, want Unavailable", err)
	}
}
