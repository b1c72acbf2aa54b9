package gossip_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// members are replicas of one process that tell each other what they admitted.
type members map[uint64]*gossip.Store

func (m members) Send(to uint64, message []byte) { _ = m[to].Receive(message) }

// newMembers are k of them.
func newMembers(t testing.TB, k int, now func() int64) members {
	t.Helper()
	m, names := members{}, []uint64{}
	for name := range uint64(k) {
		s, err := gossip.New(gossip.Options{Transport: m, Self: name + 1, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		m[name+1], names = s, append(names, name+1)
	}
	for name, s := range m {
		others := slices.DeleteFunc(slices.Clone(names), func(o uint64) bool { return o == name })
		if err := s.SetMembers(others); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// newGossiping is a Limiter under one rule of a scope, at the first of the members.
func newGossiping(t testing.TB, scope policy.Scope, m members, now func() int64) *headgate.Limiter {
	t.Helper()
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	local, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := scoped.New(scoped.Options{Local: local, Gossip: m[1], Replicas: m[1].Replicas, Began: now()})
	if err != nil {
		t.Fatal(err)
	}
	names, err := key.NewNamer(make([]byte, key.MinSecret))
	if err != nil {
		t.Fatal(err)
	}
	table := trial.Compile(t, trial.StripeTemplates(t))
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 30, Scope: scope}}
	set, problems := policy.Compile(policy.Document{Rules: rules},
		policy.CompileOptions{Endpoints: table, Gossips: true})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{
		Endpoints: table, Policies: headgate.Fixed(set), Identities: who, Buckets: buckets, Names: names,
		Now: func() time.Time { return time.Unix(0, now()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// What a decision costs under scope gossip with seven other replicas, beside one that counts alone: turns of a
// thousand, one of either after the other, and the median of all turns.
func BenchmarkGossipBesideLocal(b *testing.B) {
	const turn = 1000
	began := time.Now()
	now := func() int64 { return began.UnixNano() + int64(time.Since(began)) }
	m := newMembers(b, 8, now)
	limiters := []*headgate.Limiter{newGossiping(b, policy.Local, m, now), newGossiping(b, policy.Gossip, m, now)}
	took := make([][]float64, len(limiters))
	r := headgate.Request{Method: "GET", Target: "/v1/customers/cus_1234567890abcdef/sources"}
	peer, ticked := trial.Client.As4(), now()
	b.ReportAllocs()
	for b.Loop() {
		for i, lim := range limiters {
			start := time.Now()
			for n := range turn {
				peer[3] = byte(n) // of 256 addresses
				r.Peer = netip.AddrFrom4(peer)
				lim.Check(context.Background(), r)
			}
			took[i] = append(took[i], float64(time.Since(start))/turn)
		}
		if at := now(); at-ticked > int64(50*time.Millisecond) {
			for _, s := range m {
				s.Tick()
			}
			ticked = at
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	local, told := took[0][len(took[0])/2], took[1][len(took[1])/2]
	b.ReportMetric(local, "ns/local")
	b.ReportMetric(told, "ns/gossip")
	b.ReportMetric(told/local, "gossip/local")
}
