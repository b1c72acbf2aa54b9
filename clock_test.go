package headgate_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// dated are Policies with a clock of their own, whose wall clock is ahead of
// what has elapsed.
type dated struct {
	*steady.Clock
	elapsed, ahead time.Duration
	set            *policy.Set
	options        policy.CompileOptions
}

func (d *dated) Set() *policy.Set { return d.set }

func (d *dated) wall() time.Time { return trial.Epoch.Add(d.elapsed + d.ahead) }

func newDated() *dated {
	d := &dated{}
	d.Clock = steady.Of(func() time.Duration { return d.elapsed }, d.wall)
	return d
}

// change puts rules in force the way a policy.Cache does.
func (d *dated) change(t *testing.T, rules ...policy.Rule) {
	t.Helper()
	d.options.Previous, d.options.Now = d.set, time.Unix(0, d.Now())
	set, problems := policy.Compile(policy.Document{Rules: rules}, d.options)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	d.set = set
}

// admitted is how many requests pass that come evenly for a time.
func (d *dated) admitted(b *trial.Bench, during time.Duration) (n int) {
	const requests = 1000
	end := d.elapsed + during
	for range requests {
		d.elapsed += during / requests
		if b.Get("/v1/items/1").Allowed {
			n++
		}
	}
	d.elapsed = end
	return n
}

var clockSteps = []time.Duration{0, 10 * time.Second, -10 * time.Second, time.Hour, -time.Hour}

// TestClockStepMovesNoBudget sets the wall clock, changes a limit and back, and
// compares what is admitted with a day on which nobody set it. Were changes dated
// by the wall clock and buckets counted by another, a limit that was lowered would
// not act for an hour, and one that was raised would give what it never held back.
func TestClockStepMovesNoBudget(t *testing.T) {
	limits := []policy.Rule{
		{Endpoint: policy.Default, Limit: 100, Per: time.Second, Burst: 100},
		{Endpoint: policy.Default, Limit: 1, Per: time.Minute, Burst: 5},
		{Endpoint: policy.Default, Limit: 50, Per: time.Minute, Burst: 50},
	}
	var want string
	for _, step := range clockSteps {
		d := newDated()
		b := trial.New(t, []string{"GET /v1/items/{id}"}, limits[:1],
			func(o *headgate.Options) { o.Policies, o.Now = d, nil })
		d.options.Endpoints = b.Table
		d.change(t, limits[0])
		counts := []int{d.admitted(b, 10*time.Second)}
		d.ahead = step
		for _, i := range []int{1, 2, 0, 1} {
			d.change(t, limits[i])
			counts = append(counts, d.admitted(b, 30*time.Second))
			d.ahead = step - d.ahead // and back, and again
			d.change(t, limits[i])   // a reload that changes nothing
			counts = append(counts, d.admitted(b, 10*time.Minute))
		}
		switch got := fmt.Sprint(counts); {
		case want == "":
			want = got
		case got != want:
			t.Errorf("with the wall clock set by %v, %v requests passed, want %v as without", step, got, want)
		}
	}
}

// TestRulesExpireByTheWallClock: what people write down is the time of day.
func TestRulesExpireByTheWallClock(t *testing.T) {
	for _, step := range clockSteps {
		d := newDated()
		b := trial.New(t, []string{"GET /v1/items/{id}"}, []policy.Rule{{Endpoint: policy.Default, Limit: 1}},
			func(o *headgate.Options) { o.Policies, o.Now = d, nil })
		d.options.Endpoints = b.Table
		d.change(t, policy.Rule{Endpoint: policy.Default, Limit: 7},
			policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 9, Expires: trial.Epoch.Add(2 * time.Hour)})
		limit := func() int64 {
			decision := b.Get("/v1/items/1")
			return decision.Policies().Rule(decision.Verdicts()[0].Rule).Limit
		}
		d.ahead = step
		d.elapsed = 2*time.Hour - step - time.Second
		if got := limit(); got != 9 {
			t.Errorf("clock set by %v, a second before the rule expires: the limit is %d, want its 9", step, got)
		}
		d.elapsed += time.Second
		if got := limit(); got != 7 {
			t.Errorf("clock set by %v, when the rule expires: the limit is %d, want 7", step, got)
		}
	}
}

// TestAllowancesEndByTheWallClock: as people said, and they are told so.
func TestAllowancesEndByTheWallClock(t *testing.T) {
	for _, step := range clockSteps {
		d := newDated()
		b := trial.New(t, []string{"GET /v1/items/{id}"}, []policy.Rule{{Endpoint: policy.Default, Limit: 1}},
			func(o *headgate.Options) { o.Policies, o.Now = d, nil })
		d.options.Endpoints = b.Table
		d.change(t, policy.Rule{Endpoint: policy.Default, Limit: 1, Burst: 1})
		d.ahead = step
		d.elapsed += time.Second
		until := d.wall().Add(time.Minute)
		state, _, err := b.Grant(t.Context(), inspect.Query{Endpoint: "GET /v1/items/{id}", Address: trial.Client}, 5,
			until, func(inspect.Bucket) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if state.Allowance == nil || !state.Allowance.Until.Equal(until) {
			t.Errorf("clock set by %v: the allowance is %+v, want until %v", step, state.Allowance, until)
		}
		d.elapsed += time.Minute - time.Second
		if got := remaining(b); got != 5 {
			t.Errorf("clock set by %v, a second before the allowance ends: %d remain, want 5", step, got)
		}
		d.elapsed += time.Second
		if got := remaining(b); got != 0 {
			t.Errorf("clock set by %v, when it ends: %d remain, want 0", step, got)
		}
	}
}

// remaining is what is left in the bucket after a request.
func remaining(b *trial.Bench) int64 {
	decision := b.Get("/v1/items/1")
	return decision.Verdicts()[0].Outcome.Remaining
}

// TestStagesAreTimedWhereTheyAreAskedFor: a decision that is timed says how long each stage took
// that it reached, by any way to decide, and any other says nothing.
func TestStagesAreTimedWhereTheyAreAskedFor(t *testing.T) {
	type mark struct{}
	var seen []*headgate.Stages
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: policy.Default, Limit: 100}},
		func(o *headgate.Options) {
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
