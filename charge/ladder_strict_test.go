//go:build unix

package charge_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// strictClimber is a caller of one of several replicas that share a server.
func strictClimber(t *testing.T, server *redistest.Server) *climber {
	t.Helper()
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	shared, err := redis.New(redis.Options{Server: conn})
	if err != nil {
		t.Fatal(err)
	}
	local, err := memory.New(memory.Options{MaxBuckets: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	// A machine that tests much else is slower than a server of replicas may be.
	buckets, err := scoped.New(scoped.Options{
		Local:    local,
		Strict:   shared,
		Deadline: time.Minute,
		Replicas: func() int { return 2 },
	})
	if err != nil {
		t.Fatal(err)
	}
	names, err := key.NewNamer([]byte("a secret of replicas"))
	if err != nil {
		t.Fatal(err)
	}
	return newClimber(t, 1<<12, true, true, func(o *headgate.Options) { o.Buckets, o.Names = buckets, names })
}

// TestTiersOfCredentialsAreSharedByReplicas: whoever names one tier here and
// another there gets the larger burst of them once, from all replicas together.
func TestTiersOfCredentialsAreSharedByReplicas(t *testing.T) {
	strict := func(tier string, limit, burst int64) policy.Rule {
		return policy.Rule{
			Endpoint: "GET /a",
			Tier:     tier,
			Limit:    limit,
			Per:      time.Hour,
			Burst:    burst,
			Scope:    policy.Strict,
		}
	}
	type step struct {
		replica int
		tier    string
		take    int64 // as many as are given, up to this
		want    int64
	}
	for name, steps := range map[string][]step{
		"up":      {{0, "free", 100, 10}, {1, "gold", 100, 20}, {0, "gold", 100, 0}, {1, "free", 100, 0}},
		"down":    {{0, "gold", 25, 25}, {1, "free", 100, 5}, {0, "", 100, 0}},
		"in turn": {{0, "free", 5, 5}, {1, "gold", 10, 10}, {1, "free", 100, 5}, {0, "gold", 100, 10}, {1, "", 100, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			var at [2]*climber
			for i := range at {
				at[i] = strictClimber(t, server)
				at[i].load(t, strict("", 1, 5), strict("free", 2, 10), strict("gold", 3, 30))
			}
			for i, s := range steps {
				if got := at[s.replica].most(t, s.tier, s.take); got != s.want {
					t.Fatalf("step %d, as tier %q at replica %d: %d tokens, want %d", i, s.tier, s.replica, got, s.want)
				}
			}
		})
	}
}
