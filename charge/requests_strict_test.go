//go:build unix

package charge_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestReplicasCountRequestsBesideTokens: two replicas with one store admit what two sums say, whichever of them is
// asked and settles.
func TestReplicasCountRequestsBesideTokens(t *testing.T) {
	server, ctx, seed := redistest.Start(t), context.Background(), rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 15 {
		server.Do("FLUSHALL")
		tokens, requests := 500+random.Int64N(500), 1+random.Int64N(20)
		rules := beside(tokens, requests)
		for i := range rules {
			rules[i].Scope, rules[i].Per = policy.Strict, 30*24*time.Hour // of which nothing passes meanwhile
		}
		var replicas []*trial.Bench
		for range 2 {
			replicas = append(replicas, replica(t, server, []string{"GET /a"}, rules))
		}
		type reserved struct {
			at   *trial.Bench
			made headgate.Reservation
		}
		var open []reserved
		for range 40 {
			if len(open) > 0 && random.IntN(2) == 0 {
				n := random.IntN(len(open))
				r, a := open[n], headgate.Answer{Forgiven: random.IntN(4) == 0}
				open = append(open[:n], open[n+1:]...)
				if a.Actual = random.Int64N(r.made.Cost + 10); a.Forgiven {
					tokens, requests = tokens+r.made.Cost, requests+1
				} else {
					tokens += r.made.Cost - a.Actual
				}
				if _, err := r.at.SettleAnswer(ctx, r.made.ID, a); err != nil {
					t.Fatal(err)
				}
				continue
			}
			at := replicas[random.IntN(len(replicas))]
			ask := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 1 + random.Int64N(100)}
			made, d := at.Reserve(ctx, ask, time.Hour)
			if want := ask.Cost <= tokens && requests > 0; d.Allowed != want {
				t.Fatalf("seed %d: %v of %d with %d tokens and %d requests left", seed, d.Reason, ask.Cost, tokens,
					requests)
			}
			if d.Allowed {
				tokens, requests, open = tokens-ask.Cost, requests-1, append(open, reserved{at, made})
			}
		}
	}
}
