package headgate_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
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
		{"faster, slower", []change{{2 * time.Second, []policy.Rule{limit(20, time.Second)}},
			{3 * time.Second, []policy.Rule{limit(1, time.Hour)}}}, 40},
		{"slower, faster", []change{{2 * time.Second, []policy.Rule{limit(1, time.Hour)}},
			{9 * time.Second, []policy.Rule{limit(30, time.Second)}}}, 50},
		{"slower, back", []change{{2 * time.Second, []policy.Rule{limit(1, time.Hour)}},
			{9 * time.Second, []policy.Rule{limit(10, time.Second)}}}, 30},
		{"slower, gone, back and faster", []change{
			{2 * time.Second, []policy.Rule{limit(1, time.Hour)}}, {3 * time.Second, []policy.Rule{other}},
			{9 * time.Second, []policy.Rule{limit(30, time.Second)}},
		}, 50},
		{"slower, gone, back as it was", []change{
			{2 * time.Second, []policy.Rule{limit(1, time.Hour)}}, {3 * time.Second, []policy.Rule{other}},
			{9 * time.Second, []policy.Rule{limit(1, time.Hour)}},
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
					if _, _, err := b.Grant(context.Background(), trial.Mine, 7, trial.Epoch.Add(9500*time.Millisecond),
						nil); err != nil {
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

// TestRulesThatChangeAfterAStartFromTheLastGoodCopy: the rules of a copy on disk are limits like
// any other. What was spent under them stays spent, through all changes that come once the database
// is back, also if the bucket had to leave the table.
func TestRulesThatChangeAfterAStartFromTheLastGoodCopy(t *testing.T) {
	limit := func(tokens int64, per time.Duration, a policy.Algorithm) policy.Rule {
		r := policy.Rule{Endpoint: "GET /a", Limit: tokens, Per: per, Subject: policy.SubjectPrincipal, Algorithm: a}
		if a == policy.TokenBucket {
			r.Burst = 100
		}
		return r
	}
	fast, slow := limit(10, time.Second, policy.TokenBucket), limit(1, time.Hour, policy.TokenBucket)
	fixed, sliding, log := limit(100, time.Hour, policy.FixedWindow), limit(100, time.Hour, policy.SlidingWindow),
		limit(100, time.Hour, policy.SlidingLog)
	for name, test := range map[string]struct {
		disk  policy.Rule
		first policy.Rule // from 2 s on
		last  policy.Rule // from 9 s on
		left  int64       // at 10 s
	}{
		"slower, faster":                     {fast, slow, limit(30, time.Second, policy.TokenBucket), 50},
		"slower, as on disk":                 {fast, slow, fast, 30},
		"as on disk, slower":                 {fast, fast, slow, 90},
		"a window, another, as on disk":      {fixed, sliding, fixed, 0},
		"a log, a debt, as on disk":          {log, slow, log, 0},
		"a debt, a window, the debt on disk": {slow, fixed, slow, 0},
		"a window, a log, a debt":            {sliding, log, slow, 0},
	} {
		for _, size := range []int{8, 1 << 12} {
			t.Run(fmt.Sprintf("%s, %d buckets", name, size), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "last-good.json")
				source := &trial.Database{}
				now := trial.Epoch
				start := func() *policy.Cache {
					c, err := policy.NewCache(policy.CacheOptions{
						Source: source, LastGood: path, Now: func() time.Time { return now },
						Compile: policy.CompileOptions{Endpoints: trial.Compile(t, []string{"GET /a"})},
					})
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				buckets, err := memory.New(memory.Options{MaxBuckets: size, MaxLogs: size})
				if err != nil {
					t.Fatal(err)
				}
				source.Put(test.disk)
				rules := start()
				b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) {
					o.Policies, o.Buckets, o.Now = rules, buckets, func() time.Time { return now }
				})
				if err := start().Start(t.Context()); err != nil { // another process, which leaves the copy
					t.Fatal(err)
				}
				source.Away = true
				if err := rules.Start(t.Context()); err != nil || !rules.Status().FromDisk {
					t.Fatalf("Start = %v, %+v, want the rules on disk", err, rules.Status())
				}
				at := func(seconds int64, change *policy.Rule) {
					t.Helper()
					now = trial.Epoch.Add(time.Duration(seconds) * time.Second)
					if change != nil {
						source.Put(*change)
					}
					if err := rules.Reload(t.Context()); (err != nil) != source.Away ||
						rules.Status().FromDisk != (seconds < 2) {
						t.Fatalf("at %d s: Reload = %v, %+v", seconds, err, rules.Status())
					}
					source.Away = true // again
				}
				at(0, nil)
				if d := b.Take(100); !d.Allowed {
					t.Fatalf("the first: %v", d.Reason)
				}
				for i := range 64 {
					peer := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
					b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: peer, Cost: 100})
				}
				if stats := buckets.Stats(now.UnixNano()); (stats.EvictedInDebt > 0) != (size < 65) {
					t.Fatalf("%+v: a small table, and only that, should evict buckets in debt", stats)
				}
				at(1, nil)
				at(2, &test.first)
				at(5, nil)
				at(9, &test.last)
				at(10, nil)
				if got := b.TokensLeft(); got > test.left || size > 65 && got != test.left {
					t.Errorf("%d tokens are left, want %d, and no more if the bucket was evicted", got, test.left)
				}
			})
		}
	}
}
