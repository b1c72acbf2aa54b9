package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestRulesThatChangeBetweenRequests: a client spends its burst, the rule changes more than once,
// and the client comes back. What drained is what each rule gave back in its time.
func TestRulesThatChangeBetweenRequests(t *testing.T) {
	limit := func(tokens int64, per time.Duration) policy.Rule {
		return policy.Rule{Endpoint: "GET /a", Limit: tokens, Per: per, Burst: 100, Subject: policy.SubjectPrincipal}
	}
	other := policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1}
	type change struct {
		at    time.Duration
		rules []policy.Rule
	}
	for _, test := range []struct {
		name    string
		changes []change
		left    int64 // at 10 s
	}{
		{"faster, slower", []change{{2 * time.Second, []policy.Rule{limit(20, time.Second)}}, {3 * time.Second, []policy.Rule{limit(1, time.Hour)}}}, 40},
		{"slower, faster", []change{{2 * time.Second, []policy.Rule{limit(1, time.Hour)}}, {9 * time.Second, []policy.Rule{limit(30, time.Second)}}}, 50},
		{"slower, back", []change{{2 * time.Second, []policy.Rule{limit(1, time.Hour)}}, {9 * time.Second, []policy.Rule{limit(10, time.Second)}}}, 30},
		{"slower, gone, back and faster", []change{
			{2 * time.Second, []policy.Rule{limit(1, time.Hour)}}, {3 * time.Second, []policy.Rule{other}}, {9 * time.Second, []policy.Rule{limit(30, time.Second)}},
		}, 50},
		{"slower, gone, back as it was", []change{
			{2 * time.Second, []policy.Rule{limit(1, time.Hour)}}, {3 * time.Second, []policy.Rule{other}}, {9 * time.Second, []policy.Rule{limit(1, time.Hour)}},
		}, 20},
	} {
		for name, allowance := range map[string]bool{"": false, ", with an allowance that lapsed": true} {
			t.Run(test.name+name, func(t *testing.T) {
				rules := &trial.Switching{}
				b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies = rules })
				rules.Become(t, b, limit(10, time.Second))
				if d := b.Take(100); !d.Allowed {
					t.Fatalf("the first: %v", d.Reason)
				}
				if allowance {
					if _, _, err := b.Grant(context.Background(), trial.Mine, 7, trial.Epoch.Add(9500*time.Millisecond), nil); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range test.changes {
					b.Now = trial.Epoch.Add(c.at)
					rules.Become(t, b, c.rules...)
				}
				b.Now = trial.Epoch.Add(10 * time.Second)
				if got := b.TokensLeft(); got != test.left {
					t.Errorf("%d tokens are left, want %d", got, test.left)
				}
			})
		}
	}
}

// hearing is a table that writes down what it hears.
type hearing struct {
	*memory.Store
	heard, settled []int64
}

func (h *hearing) Learn(since, settled int64) {
	h.heard, h.settled = append(h.heard, since), append(h.settled, settled)
	h.Store.Learn(since, settled)
}

// TestBucketsHearOfChanges before anything is taken under them.
func TestBucketsHearOfChanges(t *testing.T) {
	store, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	rules, buckets := &trial.Switching{}, &hearing{Store: store}
	b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies, o.Buckets = rules, buckets })
	for i := range 3 {
		b.Now = trial.Epoch.Add(time.Duration(i) * time.Minute)
		rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 10 + int64(i)})
		for range 3 {
			b.Take(1)
		}
		want := b.Now.UnixNano()
		if i == 0 {
			want = 0 // nothing was before
		}
		if len(buckets.heard) != i+1 || buckets.heard[i] != want {
			t.Fatalf("the buckets heard of changes at %v, want %d of them, the last at %d", buckets.heard, i+1, want)
		}
		if got, want := buckets.settled[i], rules.Set().Settled(want); got != want {
			t.Fatalf("the buckets heard that a change matters until %d, want %d", got, want)
		}
	}
}
