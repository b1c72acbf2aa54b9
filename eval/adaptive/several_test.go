package main

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// store is the one that several gateways share: what bucket/redis does with a rate that is lowered, bucket/memory does
// to the token (TestLoweredFollowsTheRateInForce).
type store struct{ *memory.Store }

func (s store) Attempt(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool,
	func(context.Context, int64), error) {
	allowed, err := s.TryConsume(ctx, now, takes, outs)
	return allowed, func(context.Context, int64) {}, err
}

// several are gateways before one API, which share the bucket of its rule, and tell each other each second by how much
// they lower it.
type several struct {
	gateways []*ours
	heard    int64

	broken int // of the first so many, requests fail on the way to the API
	frozen int // the first so many say what they said first
	said   [][]byte
}

func newSeveral(t *testing.T, b backend, n int) *several {
	t.Helper()
	shared, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	names, err := key.NewNamer(make([]byte, 32)) // so that a bucket has one name
	if err != nil {
		t.Fatal(err)
	}
	all := &several{heard: epoch}
	for range n {
		local, err := memory.New(memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		buckets, err := scoped.New(scoped.Options{Local: local, Strict: store{shared}, Began: 1})
		if err != nil {
			t.Fatal(err)
		}
		all.gateways = append(all.gateways, newOursWith(b, true, func(o *headgate.Options) {
			set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
				{Endpoint: at, Limit: int64(b.mu), Burst: burst, Subject: policy.SubjectEndpoint, Scope: policy.Strict},
				{Endpoint: policy.Default, Limit: 1000},
			}}, policy.CompileOptions{Endpoints: o.Endpoints, Shared: true})
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			o.Rules, o.Policies, o.Buckets, o.Names = nil, headgate.Fixed(set), buckets, names
		}))
	}
	all.said = make([][]byte, n)
	return all
}

func (s *several) agree(now int64) {
	for now-s.heard >= int64(time.Second) {
		s.heard += int64(time.Second)
		for i, g := range s.gateways {
			if said := g.table.Tell(now); i >= s.frozen || s.said[i] == nil {
				s.said[i] = said
			}
		}
		for i, g := range s.gateways {
			var others [][]byte
			for j, said := range s.said {
				if j != i && said != nil {
					others = append(others, said)
				}
			}
			if unread := g.table.Hear(now, others); unread > 0 {
				panic("they do not understand each other")
			}
		}
	}
}

func (s *several) admit(now int64, caller int) (bool, func(int64, time.Duration, bool)) {
	s.agree(now)
	i := int(now/1000) % len(s.gateways) // whichever the balancer takes
	passes, answered := s.gateways[i].admit(now, caller)
	if passes && i < s.broken {
		return true, func(now int64, took time.Duration, _ bool) { answered(now, took, true) }
	}
	return passes, answered
}

// multiplier is what is in force for the bucket that they share: all agree.
func (s *several) multiplier(now int64) float64 {
	s.agree(now)
	last := s.gateways[len(s.gateways)-1]
	return float64(last.table.Named(at).Status(now).Agreed) / adaptive.Whole
}

// TestSeveralGateways: three before one API keep what one promises.
func TestSeveralGateways(t *testing.T) {
	for _, s := range scenarios(1.3)[:2] {
		check(t, s, run(s, newSeveral(t, s.backend, 3), 7))
	}
}

// TestOneGatewayInTrouble: one of three whose own way to the API fails lowers nobody's limit while the API is well, and
// neither it nor one that is frozen keeps the others from following the API.
func TestOneGatewayInTrouble(t *testing.T) {
	well := scenario{backend: quick, name: "well", seconds: 60, offered: always(0.6 * quick.mu), capacity: always(1),
		callers: 50}
	all := newSeveral(t, quick, 3)
	all.broken = 1
	if o := run(well, all, 3); o.Least < 1 {
		t.Errorf("one in trouble of three lowers the rates of all to %.2f", o.Least)
	}
	if m := all.gateways[0].multiplier(epoch + 60*int64(time.Second)); m > 0.2 {
		t.Errorf("its own multiplier is %.2f, want the floor", m)
	}
	for _, trouble := range []struct{ broken, frozen int }{{1, 0}, {0, 1}} {
		s := scenarios(1.3)[1]
		all := newSeveral(t, quick, 3)
		all.broken, all.frozen = trouble.broken, trouble.frozen
		check(t, s, run(s, all, 7))
	}
}
