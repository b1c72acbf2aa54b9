package headgate_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestStagesAreTimedWhereTheyAreAskedFor: a decision that is timed says how long each stage took that it reached, by any
// way to decide, and any other says nothing.
func TestStagesAreTimedWhereTheyAreAskedFor(t *testing.T) {
	type mark struct{}
	var seen []*headgate.Stages
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: policy.Default, Limit: 100}}, func(o *headgate.Options) {
		o.Time = func(ctx context.Context, r *headgate.Request) *headgate.Stages {
			if ctx.Value(mark{}) == nil {
				return nil
			}
			return &headgate.Stages{Note: r.Target}
		}
		o.Observe = func(_ *headgate.Request, d *headgate.Decision) { seen = append(seen, d.Stages) }
	})
	timed, plain := context.WithValue(context.Background(), mark{}, true), context.Background()
	request := func(target string) headgate.Request {
		return headgate.Request{Method: "GET", Target: target, Peer: netip.MustParseAddr("192.0.2.1")}
	}
	ways := map[string]func(context.Context, headgate.Request){
		"Check":       func(ctx context.Context, r headgate.Request) { b.Limiter.Check(ctx, r) },
		"Wait":        func(ctx context.Context, r headgate.Request) { _, _ = b.Limiter.Wait(ctx, r) },
		"Reserve":     func(ctx context.Context, r headgate.Request) { b.Limiter.Reserve(ctx, r, 0) },
		"ReserveWait": func(ctx context.Context, r headgate.Request) { _, _, _ = b.Limiter.ReserveWait(ctx, r, 0) },
	}
	for name, decide := range ways {
		seen = nil
		decide(timed, request("/a"))
		decide(plain, request("/a"))
		decide(timed, request("/nothing"))
		if len(seen) != 3 || seen[0] == nil || seen[1] != nil || seen[2] == nil {
			t.Fatalf("%s: Stages are %v, want them of the first and the third", name, seen)
		}
		full, refused := seen[0], seen[2]
		if full.Note != "/a" || full.Endpoint <= 0 || full.Identity <= 0 || full.Policy <= 0 || full.Bucket <= 0 ||
			full.Total() != full.Endpoint+full.Identity+full.Policy+full.Bucket {
			t.Errorf("%s: Stages = %+v, want a time of each", name, *full)
		}
		if refused.Endpoint <= 0 || refused.Identity+refused.Policy+refused.Bucket != time.Duration(0) {
			t.Errorf("%s: of an unknown endpoint Stages = %+v, want the first alone", name, *refused)
		}
	}
	seen = nil
	if b.Limiter.Look(timed, request("/a")); len(seen) != 0 {
		t.Errorf("Look was observed: %v", seen)
	}
}
