package headgate_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestOverrideEndsByItself: a bucket goes over from the temporary limit to the
// lasting one at the time that was written down, whether somebody loads rules or
// not, and owes what it owed.
func TestOverrideEndsByItself(t *testing.T) {
	lasting := policy.Rule{Endpoint: "GET /a", Limit: 10, Burst: 100}
	until := func(limit int64, per time.Duration, burst int64) policy.Rule {
		return policy.Rule{
			Endpoint: "GET /a",
			Limit:    limit,
			Per:      per,
			Burst:    burst,
			Expires:  trial.Epoch.Add(5 * time.Second),
		}
	}
	for name, tt := range map[string]struct {
		override policy.Rule
		spend    int64
		left     map[time.Duration]int64
	}{
		"slower": {until(1, time.Hour, 100), 100, map[time.Duration]int64{
			4 * time.Second:  0,
			5 * time.Second:  0,
			6 * time.Second:  10,
			15 * time.Second: 100,
		}},
		"faster": {until(20, time.Second, 100), 100, map[time.Duration]int64{4 * time.Second: 80, 5 * time.Second: 100,
			6 * time.Second: 100}},
		"larger": {until(10, time.Second, 200), 200, map[time.Duration]int64{4 * time.Second: 40, 5 * time.Second: 0,
			6 * time.Second: 10}},
		"smaller": {until(10, time.Second, 30), 30, map[time.Duration]int64{1 * time.Second: 10, 5 * time.Second: 100}},
		"unlike": {policy.Rule{
			Endpoint:  "GET /a",
			Limit:     40,
			Per:       time.Minute,
			Algorithm: policy.SlidingLog,
			Expires:   trial.Epoch.Add(5 * time.Second),
		}, 40, map[time.Duration]int64{4 * time.Second: 0, 5 * time.Second: 60, 6 * time.Second: 70}},
	} {
		for _, reload := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, loaded again %v", name, reload), func(t *testing.T) {
				for at, want := range tt.left {
					rules := &trial.Switching{}
					b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies = rules })
					rules.Become(t, b, lasting, tt.override)
					if d := b.Take(tt.spend); !d.Allowed {
						t.Fatalf("%d tokens: %v", tt.spend, d.Reason)
					}
					b.Now = trial.Epoch.Add(at)
					if reload {
						rules.Become(t, b, lasting, tt.override)
					}
					if got := b.TokensLeft(); got != want {
						t.Errorf("at %v %d tokens are left, want %d", at, got, want)
					}
				}
			})
		}
	}
}

// overridden is the obvious twin of a bucket under limits that come and go: what
// is owed drains at the rate in force and is cut to the burst at every change.
type overridden struct {
	at      time.Time
	owed    float64 // tokens
	rule    policy.Rule
	lasting policy.Rule
}

func (o *overridden) pass(now time.Time) {
	if e := o.rule.Expires; !e.IsZero() && !now.Before(e) {
		o.drain(e)
		o.become(o.lasting)
	}
	o.drain(now)
}

func (o *overridden) drain(now time.Time) {
	o.owed = max(0, o.owed-float64(o.rule.Limit)/o.rule.Per.Seconds()*now.Sub(o.at).Seconds())
	o.at = now
}

func (o *overridden) become(r policy.Rule) {
	o.rule, o.owed = r, min(o.owed, float64(r.Burst))
}

// TestOverridesAgainstTheTwin: overrides that start, are replaced, end early or by
// themselves, and limits that change under them, with and without requests in
// between: the bucket gives what the twin gives, and from a table that drives
// buckets out never more.
func TestOverridesAgainstTheTwin(t *testing.T) {
	for seed := range uint64(25) {
		for _, size := range []int{8, 1 << 12} {
			rng := rand.New(rand.NewPCG(seed, 11))
			rules := &trial.Switching{}
			buckets, err := memory.New(memory.Options{MaxBuckets: size})
			if err != nil {
				t.Fatal(err)
			}
			b := trial.New(t, []string{"GET /a"}, nil,
				func(o *headgate.Options) { o.Policies, o.Buckets = rules, buckets })
			random := func() policy.Rule {
				return policy.Rule{
					Endpoint: "GET /a",
					Limit:    1 + rng.Int64N(20),
					Per:      time.Duration(1+rng.IntN(20)) * time.Second,
					Burst:    1 + rng.Int64N(50),
				}
			}
			twin := overridden{at: b.Now, rule: random()}
			twin.lasting = twin.rule
			rules.Become(t, b, twin.rule)
			for step := range 100 {
				b.Now = b.Now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
				twin.pass(b.Now)
				switch rng.IntN(6) {
				case 0:
					r := random()
					r.Expires = b.Now.Add(time.Duration(1+rng.IntN(6000)) * time.Millisecond)
					twin.become(r)
					rules.Become(t, b, twin.lasting, r)
				case 1:
					twin.become(twin.lasting)
					rules.Become(t, b, twin.lasting)
				case 2:
					twin.lasting = random()
					if twin.rule.Expires.IsZero() {
						twin.become(twin.lasting)
						rules.Become(t, b, twin.lasting)
						break
					}
					rules.Become(t, b, twin.rule, twin.lasting)
				case 3:
					for i := range 30 {
						b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a",
							Peer: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})})
					}
				}
				if rng.IntN(2) == 0 {
					continue // nobody asks, and the next change finds the bucket as it was left
				}
				for range rng.IntN(20) {
					cost := 1 + rng.Int64N(4)
					got := b.Take(cost).Allowed
					room := float64(twin.rule.Burst) - twin.owed - float64(cost)
					switch {
					case got && room < -1e-6, !got && room > 1e-6 && size > 8:
						t.Fatalf("seed %d, %d buckets, step %d: %d tokens at %v: %v, where the twin has room for %.3f",
							seed, size, step, cost, b.Now.Sub(trial.Epoch), got, room+float64(cost))
					case got:
						twin.owed += float64(cost)
					}
				}
			}
		}
	}
}

// TestBucketsHearOfEnds: before the first take under the lasting limit, once.
func TestBucketsHearOfEnds(t *testing.T) {
	store, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	rules, buckets := &trial.Switching{}, &hearing{Store: store}
	b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies, o.Buckets = rules, buckets })
	end := trial.Epoch.Add(time.Minute)
	rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 10},
		policy.Rule{Endpoint: "GET /a", Limit: 99, Expires: end})
	for _, at := range []time.Duration{0, time.Second, time.Minute, time.Minute, time.Hour} {
		b.Now = trial.Epoch.Add(at)
		b.Take(1)
	}
	if want := []int64{0, end.UnixNano()}; fmt.Sprint(buckets.heard) != fmt.Sprint(want) {
		t.Errorf("the buckets heard of changes at %v, want %v", buckets.heard, want)
	}
}

// TestExplainTellsOfAnOverride: that one holds, until when, and for which rule.
func TestExplainTellsOfAnOverride(t *testing.T) {
	end := trial.Epoch.Add(time.Hour)
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 10}, {Endpoint: "GET /a", Limit: 99, Expires: end},
	})
	request := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}
	why := func() string {
		var lines []string
		for _, c := range b.Explain(t.Context(), request).Considered {
			if c.Rule != "" {
				lines = append(lines, fmt.Sprint(c.Applies, ": ", c.Why))
			}
		}
		return strings.Join(lines, "\n")
	}
	if got, want := why(), "true: the most specific rule; until 2026-01-02T04:04:05Z in place of the lasting 10 "+
		"per 1s (burst 10)\nfalse: the temporary rule stands in its place"; got != want {
		t.Errorf("considered\n%s\nwant\n%s", got, want)
	}
	x := b.Explain(t.Context(), request)
	if got := x.Buckets[0]; !got.Expires.Equal(end) || got.StandsFor != "10 per 1s, burst 10" || got.Limit != 99 {
		t.Errorf("bucket %+v, want the override's, and what it stands for", got)
	}
	b.Now = end
	if got, want := why(), "false: expired at 2026-01-02T04:04:05Z\ntrue: the most specific rule"; got != want {
		t.Errorf("considered at the end\n%s\nwant\n%s", got, want)
	}
}
