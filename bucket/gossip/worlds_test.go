package gossip_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/simulate"
	"github.com/headgate-io/headgate/slot"
)

// node is a whole limiter among others that tell each other what they admitted.
type node struct {
	*headgate.Limiter
	*simulate.Gossiper
	rules trial.Switching
}

// Whole limiters in a network that loses messages, with all of it at once: limits that one hears of after the
// other, per-caller limits beside the shared one, callers who are blocked for a time, times reserved for those who
// wait, and costs that turn out to be smaller than what was reserved. What they admit together is within what is
// published for the shared limit, and when all has drained everybody is served again.
func TestGossipOfWholeLimiters(t *testing.T) {
	for seed := range race.Fewer(uint64(60)) {
		gossipOfWholeLimiters(t, seed)
	}
}

func gossipOfWholeLimiters(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 99))
	w := simulate.New(seed)
	loss, k := r.Float64()*0.3, 2+r.IntN(3)
	g := &simulate.Gossip{
		World: w, Interval: 50 * time.Millisecond,
		Link: func(_, _ *simulate.Gossiper) *simulate.Link {
			return &simulate.Link{World: w, Delay: 200 * time.Microsecond, Jitter: 10 * time.Millisecond, Loss: loss}
		},
	}
	table := trial.Compile(t, []string{"GET /a"})
	type terms struct{ limit, burst int64 }
	draw := func() terms { return terms{10 + r.Int64N(90), 10 + r.Int64N(90)} }
	rulesOf := func(of terms) []policy.Rule {
		rules := []policy.Rule{
			{
				Endpoint: policy.Default, Limit: of.limit, Burst: of.burst,
				Subject: policy.SubjectEndpoint, Scope: policy.Gossip,
			},
			{Endpoint: policy.Default, Limit: 40, Subject: policy.SubjectIP},
		}
		if seed%2 == 0 {
			rules[1].Penalty = "20 in 5s for 2s"
		}
		return rules
	}
	become := func(n *node, of terms) {
		set, problems := policy.Compile(policy.Document{Rules: rulesOf(of)}, policy.CompileOptions{
			Endpoints: table, Previous: n.rules.Load(), Now: time.Unix(0, n.Clock.Now()), Gossips: true,
		})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		n.rules.Store(set)
	}
	now := draw()
	var nodes []*node
	for i := range k {
		n := &node{Gossiper: g.Join(uint64(i+1), &simulate.Clock{World: w, Offset: w.Between(time.Second, time.Hour)})}
		become(n, now)
		local, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		buckets, err := scoped.New(scoped.Options{
			Local: local, Gossip: n.Store, Replicas: n.Store.Replicas, Began: n.Clock.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		names, err := key.NewNamer(make([]byte, key.MinSecret))
		if err != nil {
			t.Fatal(err)
		}
		who, err := identity.New(identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o := headgate.Options{
			Endpoints: table, Policies: &n.rules, Identities: who, Buckets: buckets, Names: names,
			Now: func() time.Time { return time.Unix(0, n.Clock.Now()) },
		}
		if seed%3 > 0 {
			o.Slots = slot.New(slot.Options{Reserve: seed%3 == 1})
		}
		if n.Limiter, err = headgate.New(o); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	g.Members()

	heard := (nodes[0].Store.Heard() + 20*time.Millisecond).Seconds()
	var promise simulate.Promise
	set := func(rate, burst int64) { // of k replicas, as bucket.Sharing has it
		promise.Set(w.Now(), float64(rate), float64(int64(k)*burst)+float64(k-1)*float64(rate)*heard+1)
	}
	set(now.limit, now.burst)
	const end = 8 * time.Second
	for _, n := range nodes {
		w.Poisson(func(time.Duration) float64 { return 3 * float64(now.limit) / float64(k) }, end, func() {
			q := headgate.Request{
				Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(9))}),
				Cost: 1 + r.Int64N(4),
			}
			if r.IntN(3) == 0 {
				q.Header = http.Header{slot.FieldPending: {fmt.Sprint(1 + r.IntN(3))}}
			}
			if r.IntN(2) == 0 {
				if d := n.Check(context.Background(), q); d.Allowed {
					promise.Admit(w.Now(), q.Cost)
				}
				return
			}
			made, d := n.Reserve(context.Background(), q, 5*time.Second)
			if !d.Allowed {
				return
			}
			actual := r.Int64N(q.Cost + 1)
			promise.Admit(w.Now(), actual)
			w.After(w.Between(0, 2*time.Second), func() {
				if _, err := n.Settle(context.Background(), made.ID, actual); err != nil {
					t.Error(err)
				}
			})
		})
	}
	if r.IntN(3) > 0 {
		next := draw()
		at := w.Between(end/4, end/2)
		w.After(at, func() { set(max(now.limit, next.limit), max(now.burst, next.burst)) })
		for _, n := range nodes {
			w.After(at+w.Between(0, 400*time.Millisecond), func() { become(n, next) })
		}
		w.After(at+400*time.Millisecond, func() { now = next; set(next.limit, next.burst) })
	}
	w.Run(end)
	if over, at := promise.Worst(); over > 0 {
		t.Errorf("seed %d: %d limiters admit %.1f tokens beyond what is published, at %v, under %+v", seed, k, over, at,
			now)
	}
	w.Run(end + 5*time.Second + time.Duration(k)*time.Second*time.Duration(now.burst)/time.Duration(now.limit))
	for i, n := range nodes {
		d := n.Check(context.Background(),
			headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr("203.0.113.9")})
		if !d.Allowed {
			t.Errorf("seed %d: limiter %d of %d denies when all has drained: %v", seed, i+1, k, d.Reason)
		}
	}
}
