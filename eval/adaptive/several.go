package main

import (
	"context"
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

func newSeveral(b backend, n int) *several {
	shared := must(memory.New(memory.Options{}))
	names := must(key.NewNamer(make([]byte, 32))) // so that a bucket has one name
	all := &several{heard: epoch}
	for range n {
		local := must(memory.New(memory.Options{}))
		buckets := must(scoped.New(scoped.Options{Local: local, Strict: store{shared}, Began: 1}))
		all.gateways = append(all.gateways, newOursWith(b, true, func(o *headgate.Options) {
			set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
				{Endpoint: at, Limit: int64(b.mu), Burst: burst, Subject: policy.SubjectEndpoint, Scope: policy.Strict},
				{Endpoint: policy.Default, Limit: 1000},
			}}, policy.CompileOptions{Endpoints: o.Endpoints, Shared: true})
			if err := problems.Err(); err != nil {
				panic(err) // it is ours
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

// must is what options of ours come to.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
