package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func TestReset(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	b.MustSettle(t, b.MustReserve(t, 900).ID, 1400)
	var asked inspect.Bucket
	got, err := b.Reset(context.Background(), trial.Mine, func(s inspect.Bucket) error { asked = s; return nil })
	want := inspect.Bucket{
		Rule: "GET /a", Level: "(endpoint)", Subject: "principal", Whose: "address 192.0.2.7",
		Limit: 100, Per: time.Second, Burst: 1000, Mode: "enforce",
		Left: inspect.Left{Endpoint: "GET /a", Remaining: 1000},
	}
	if err != nil || got != want {
		t.Errorf("Reset = %+v, %v, want %+v", got, err, want)
	}
	want.Remaining, want.ResetAfter, want.Wait = 0, 14*time.Second, 4010*time.Millisecond
	if asked != want {
		t.Errorf("Approve was asked about %+v, want %+v", asked, want)
	}
	if d := b.Take(1000); !d.Allowed {
		t.Errorf("a whole burst after Reset = %v", d.Reason)
	}
}

// What a reset gave back is not given back again by a settlement.
func TestResetVoidsRefunds(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	less, more := b.MustReserve(t, 400), b.MustReserve(t, 400)
	if _, err := b.Reset(context.Background(), trial.Mine, nil); err != nil {
		t.Fatal(err)
	}
	b.Take(300)
	b.MustSettle(t, less.ID, 0)
	if got := b.TokensLeft(); got != 700 {
		t.Errorf("%d tokens are left, want 700: those of the request since are spent", got)
	}
	b.MustSettle(t, more.ID, 500)
	if got := b.TokensLeft(); got != 600 {
		t.Errorf("%d tokens are left, want 600: what was spent beyond the estimate is owed", got)
	}
}

func TestGrantOnce(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	b.Take(700)
	for _, step := range []struct{ amount, given, left int64 }{
		{100, 100, 400}, {550, 550, 950}, {100, 50, 1000}, {100, 0, 1000}, {1_000_000, 0, 1000},
	} {
		state, given, err := b.Grant(context.Background(), trial.Mine, step.amount, time.Time{}, nil)
		if err != nil || given != step.given || state.Remaining != step.left || state.Allowance != nil {
			t.Errorf("Grant(%d) = %d, %+v, %v, want %d given and %d left", step.amount, given, state, err,
				step.given, step.left)
		}
	}
}

// An allowance makes the burst larger until it lapses: the story of one.
func TestGrantForATime(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	b.Take(1000)
	until := trial.Epoch.Add(10 * time.Second)
	state, given, err := b.Grant(context.Background(), trial.Mine, 500, until, nil)
	if err != nil || given != 500 || state.Remaining != 500 || state.Allowance == nil ||
		*state.Allowance != (inspect.Allowance{Tokens: 500, Until: until}) {
		t.Fatalf("Grant = %d, %+v, %v, want 500 more until %v", given, state, err, until)
	}
	for _, step := range []struct {
		at      time.Duration
		cost    int64
		allowed bool
		left    int64
	}{
		{0, 501, false, 500},
		{0, 500, true, 0},
		{0, 1, false, 0},
		{5 * time.Second, 500, true, 0}, // what drained, no more
		{10*time.Second - 1, 500, false, 499},
		{10*time.Second - 1, 499, true, 0},    // 1500 are owed, and as many again have drained
		{10 * time.Second, 1, false, 0},       // lapsed; what was beyond the burst is forgiven, 1000 are owed
		{11 * time.Second, 100, true, 0},      // the rate goes on
		{25 * time.Second, 1001, false, 1000}, // and the burst is what it was
		{25 * time.Second, 1000, true, 0},
	} {
		b.Now = trial.Epoch.Add(step.at)
		d := b.Take(step.cost)
		v, _ := d.Binding()
		if d.Allowed != step.allowed || v.Outcome.Remaining != step.left {
			t.Errorf("at %v, %d tokens: %v with %d left, want %v with %d left", step.at, step.cost, d.Allowed,
				v.Outcome.Remaining, step.allowed, step.left)
		}
	}
	// Others had nothing of it.
	d := b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/a",
		Peer: netip.MustParseAddr("192.0.2.9"), Cost: 1001})
	if d.Reason != headgate.CostAboveBurst {
		t.Errorf("another client: %v", d.Reason)
	}
}

func TestResetEndsAnAllowance(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	for range 2 { // the second takes the place of the first
		if _, _, err := b.Grant(context.Background(), trial.Mine, 500, trial.Epoch.Add(time.Hour), nil); err != nil {
			t.Fatal(err)
		}
	}
	b.Take(1300)
	if in, err := b.Inspect(context.Background(), trial.Mine); err != nil || len(in.Buckets) != 1 ||
		in.Buckets[0].Remaining != 200 || in.Buckets[0].Allowance == nil {
		t.Errorf("Inspect = %+v, %v, want 200 left of 1500", in, err)
	}
	if state, err := b.Reset(context.Background(), trial.Mine, nil); err != nil || state.Remaining != 1000 ||
		state.Allowance != nil {
		t.Errorf("Reset = %+v, %v, want a full bucket without an allowance", state, err)
	}
	if d := b.Take(1001); d.Reason != headgate.CostAboveBurst {
		t.Errorf("1001 tokens after Reset = %v", d.Reason)
	}
}

// What cannot be approved does not happen.
func TestApproveMayRefuse(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	b.Take(1000)
	no := func(inspect.Bucket) error { return trial.ErrGone }
	if _, err := b.Reset(context.Background(), trial.Mine, no); !errors.Is(err, trial.ErrGone) {
		t.Errorf("Reset = %v, want %v", err, trial.ErrGone)
	}
	if _, _, err := b.Grant(context.Background(), trial.Mine, 5, time.Time{}, no); !errors.Is(err, trial.ErrGone) {
		t.Errorf("Grant = %v, want %v", err, trial.ErrGone)
	}
	if _, _, err := b.Grant(context.Background(), trial.Mine, 5, trial.Epoch.Add(time.Hour), no); !errors.Is(err,
		trial.ErrGone) {
		t.Errorf("Grant = %v, want %v", err, trial.ErrGone)
	}
	if in, err := b.Inspect(context.Background(), trial.Mine); err != nil || in.Buckets[0].Remaining != 0 ||
		in.Buckets[0].Allowance != nil {
		t.Errorf("Inspect = %+v, %v, want the bucket as it was", in, err)
	}
}

func TestAllowancesAreBounded(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens, func(o *headgate.Options) { o.MaxAllowances = 2 })
	grant := func(last byte, amount int64, until time.Time) error {
		q := inspect.Query{Endpoint: "GET /a", Address: netip.AddrFrom4([4]byte{192, 0, 2, last})}
		_, _, err := b.Grant(context.Background(), q, amount, until, nil)
		return err
	}
	soon := trial.Epoch.Add(time.Second)
	for last, want := range []string{"", "", "there are 2 allowances already"} {
		if err := grant(byte(last), 10, soon); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("grant %d = %v, want %q", last, err, want)
		}
	}
	if err := grant(1, 20, soon); err != nil {
		t.Errorf("a grant in place of another = %v", err)
	}
	b.Now = soon.Add(time.Minute) // lapsed, and forgotten
	if err := grant(3, 10, b.Now.Add(time.Second)); err != nil {
		t.Errorf("a grant after the others are gone = %v", err)
	}
	for _, c := range []struct {
		amount int64
		until  time.Time
		want   string
	}{
		{0, time.Time{}, "amount is 0, want 1 or more"},
		{-4, time.Time{}, "amount is -4, want 1 or more"},
		{1_000_001, time.Time{}, "want at most 1000 times the burst of 1000"},
		{5, b.Now, "want a time in the future"},
		{5, b.Now.Add(32 * 24 * time.Hour), "want at most 744h0m0s from now"},
	} {
		err := grant(0, c.amount, c.until)
		if query := (*inspect.QueryError)(nil); !errors.As(err, &query) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Grant(%d, %v) = %v, want %q", c.amount, c.until, err, c.want)
		}
	}
}

func TestBucketsAreFoundByWhatPeopleKnow(t *testing.T) {
	resolver, text := trial.Holder(t, identity.Key{ID: "k_1", Project: "acme"})
	var rules []policy.Rule
	for s := policy.SubjectPrincipal; s <= policy.SubjectIdentifier; s++ {
		rules = append(rules, policy.Rule{Endpoint: "GET /a", Limit: 1, Burst: 10, Subject: s},
			policy.Rule{Endpoint: policy.All, Limit: 1, Burst: 10, Subject: s})
	}
	rules = append(rules, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1, Burst: 10})
	b := trial.New(t, []string{"GET /a", "GET /b"}, rules, func(o *headgate.Options) { o.Identities = resolver })
	header := http.Header{"X-Api-Key": {text}}
	if d := b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client,
		Header: header, Identifier: "ann"}); !d.Allowed {
		t.Fatal(d.Reason)
	}
	bySubject := func(s policy.Subject) *policy.Subject { return &s }

	for name, c := range map[string]struct {
		query   inspect.Query
		whose   []string // of buckets that were taken from, in order
		fresh   int      // buckets that were not
		skipped int
	}{
		"the request's evidence": {inspect.Query{Endpoint: "GET /a", Peer: trial.Client, Header: header,
			Identifier: "ann"},
			[]string{"api key k_1 of project acme", "address 192.0.2.7",
				"api key k_1 of project acme at address 192.0.2.7", "project acme", "region unknown", "everybody",
				"the identifier asked for"}, 0, 0},
		"all endpoints together": {inspect.Query{Endpoint: "*", Peer: trial.Client, Header: header, Identifier: "ann"},
			[]string{"api key k_1 of project acme", "address 192.0.2.7",
				"api key k_1 of project acme at address 192.0.2.7", "project acme", "region unknown", "everybody",
				"the identifier asked for"}, 0, 0},
		"the key": {inspect.Query{Endpoint: "GET /a", KeyID: "k_1", Project: "acme"},
			[]string{"api key k_1 of project acme", "project acme", "everybody"}, 0, 4},
		"the key and the address": {inspect.Query{Endpoint: "GET /a", KeyID: "k_1", Project: "acme",
			Address: trial.Client}, []string{"api key k_1 of project acme", "address 192.0.2.7",
			"api key k_1 of project acme at address 192.0.2.7", "project acme", "region unknown", "everybody"}, 1, 0},
		"the project": {inspect.Query{Endpoint: "GET /a", Project: "acme"},
			[]string{"project acme", "everybody"}, 0, 5},
		"the address": {inspect.Query{Endpoint: "GET /a", Address: trial.Client},
			[]string{"address 192.0.2.7", "region unknown", "everybody"}, 4, 0},
		"the identifier": {inspect.Query{Endpoint: "GET /a", Identifier: "ann"},
			[]string{"everybody", "the identifier asked for"}, 0, 5},
		"one subject": {inspect.Query{Endpoint: "GET /a", Project: "acme",
			Subject: bySubject(policy.SubjectProject)}, []string{"project acme"}, 0, 0},
		"nobody":           {inspect.Query{Endpoint: "GET /a"}, []string{"everybody"}, 0, 6},
		"another endpoint": {inspect.Query{Endpoint: "GET /b", Address: trial.Client}, nil, 1, 0},
		"unknown requests": {inspect.Query{Endpoint: "UNKNOWN", Address: trial.Client}, nil, 1, 0},
	} {
		in, err := b.Inspect(context.Background(), c.query)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var taken []string
		for _, s := range in.Buckets {
			if s.Remaining == 9 {
				taken = append(taken, s.Whose)
			}
		}
		if !slices.Equal(taken, c.whose) || len(in.Buckets)-len(taken) != c.fresh || len(in.Skipped) != c.skipped {
			t.Errorf("%s: %d buckets, taken from %q, skipped %v, want %q, %d fresh, %d skipped", name, len(in.Buckets),
				taken, in.Skipped, c.whose, c.fresh, c.skipped)
		}
		if all := fmt.Sprintf("%+v", in); strings.Contains(all, text) {
			t.Errorf("%s: the answer repeats the key: %s", name, all)
		}
	}

	for name, c := range map[string]struct {
		query inspect.Query
		want  string
	}{
		"no endpoint": {inspect.Query{}, "endpoint is missing"},
		"the default": {inspect.Query{Endpoint: "default"},
			"each one that the rule covers has a bucket of its own"},
		"no template":      {inspect.Query{Endpoint: "a"}, `"a"`},
		"no such endpoint": {inspect.Query{Endpoint: "GET /aa"}, `want an endpoint of the API, such as "GET /a"`},
		"evidence and names": {inspect.Query{Endpoint: "GET /a", Peer: trial.Client, KeyID: "k_1"},
			"both evidence and names"},
		"a key that is ignored": {inspect.Query{Endpoint: "GET /a", Peer: trial.Client,
			Header: http.Header{"X-Api-Key": {"hg_MARK"}}}, "the API key is malformed"},
		"many": {inspect.Query{Endpoint: "GET /a", KeyID: "k_1", Project: "acme"},
			"say which subject, principal or project or endpoint"},
		"none is named": {inspect.Query{Endpoint: "UNKNOWN", Project: "acme"},
			"an API key, a certificate, a token's subject or an address"},
		"no rule": {inspect.Query{Endpoint: "UNKNOWN", Address: trial.Client, Subject: bySubject(policy.SubjectIP)},
			"no rule applies"},
	} {
		_, err := b.Reset(context.Background(), c.query, nil)
		if query := (*inspect.QueryError)(nil); !errors.As(err, &query) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "MARK") {
			t.Errorf("%s: Reset = %v, want %q", name, err, c.want)
		}
	}
}

// TestGrantsAreExact runs requests, grants, resets and settlements at random: a
// limiter on the table and one on the slow twin agree in everything; and of a
// bucket nothing is admitted in any interval but burst, rate and what was
// granted in or before it.
func TestGrantsAreExact(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 31))
		rules := []policy.Rule{{Endpoint: "GET /a", Limit: 1 + rng.Int64N(40), Burst: 20 + rng.Int64N(50)}}
		fast := trial.New(t, []string{"GET /a"}, rules)
		slow := trial.New(t, []string{"GET /a"}, rules, func(o *headgate.Options) { o.Buckets = new(buckettest.Twin) })
		admitted, granted := int64(0), int64(0)
		for range 5000 {
			step := time.Duration(rng.Int64N(int64(100 * time.Millisecond)))
			fast.Now, slow.Now = fast.Now.Add(step), slow.Now.Add(step)
			switch rng.IntN(40) {
			case 0:
				amount, until := 1+rng.Int64N(30), time.Time{}
				if rng.IntN(2) == 0 {
					until = fast.Now.Add(time.Duration(1 + rng.Int64N(3e9)))
				}
				a, given, err := fast.Grant(context.Background(), trial.Mine, amount, until, nil)
				b, also, other := slow.Grant(context.Background(), trial.Mine, amount, until, nil)
				if err != nil || other != nil || given != also || a.Remaining != b.Remaining ||
					a.ResetAfter != b.ResetAfter {
					t.Fatalf("seed %d: Grant(%d) = %d, %+v, %v, the twin says %d, %+v, %v", seed, amount, given, a, err,
						also, b, other)
				}
				granted += amount
			case 1:
				before, _ := fast.Inspect(context.Background(), trial.Mine)
				a, err := fast.Reset(context.Background(), trial.Mine, nil)
				b, other := slow.Reset(context.Background(), trial.Mine, nil)
				if err != nil || other != nil || a.Remaining != b.Remaining || a.Remaining != a.Burst {
					t.Fatalf("seed %d: Reset = %+v, %v, the twin says %+v, %v", seed, a, err, b, other)
				}
				granted += max(0, a.Burst-before.Buckets[0].Remaining)
			default:
				cost := 1 + rng.Int64N(8)
				a, b := fast.Take(cost), slow.Take(cost)
				if a.Allowed != b.Allowed || a.RetryAfter != b.RetryAfter {
					t.Fatalf("seed %d: %v, wait %v, the twin says %v, wait %v", seed, a.Allowed, a.RetryAfter,
						b.Allowed, b.RetryAfter)
				}
				if a.Allowed {
					admitted += cost
				}
			}
			elapsed := fast.Now.Sub(trial.Epoch).Seconds()
			if bound := float64(rules[0].Burst+granted) +
				float64(rules[0].Limit)*elapsed; float64(admitted) > bound+1e-6 {
				t.Fatalf("seed %d: admitted %d in %.3f s, want at most %.3f", seed, admitted, elapsed, bound)
			}
		}
	}
}

// Allowances of others cost a request no allocation.
func TestCheckAllocatesNothingWithAllowances(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	if _, _, err := b.Grant(context.Background(), inspect.Query{Endpoint: "GET /a",
		Address: netip.MustParseAddr("192.0.2.200")}, 5, trial.Epoch.Add(time.Hour), nil); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 2}
	if n := testing.AllocsPerRun(1000, func() { b.Check(ctx, r) }); n >= trial.Allocations {
		t.Errorf("Check allocates %v times, want 0", n)
	}
}

// Requests, reservations, grants and resets at once: no more is admitted than
// the burst, what was given, and a burst for each reset.
func TestConcurrentChanges(t *testing.T) {
	const callers, rounds, burst = 6, 300, 1000
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: burst}})
	var admitted, granted atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 12))
			ctx := context.Background()
			for range rounds {
				switch rng.IntN(12) {
				case 0:
					_, given, err := b.Grant(ctx, trial.Mine, 1+rng.Int64N(50), time.Time{}, nil)
					if err != nil {
						t.Error(err)
					}
					granted.Add(given)
				case 1:
					amount := 1 + rng.Int64N(50)
					granted.Add(amount)
					if _, _, err := b.Grant(ctx, trial.Mine, amount, trial.Epoch.Add(time.Hour), nil); err != nil {
						t.Error(err)
					}
				case 2:
					granted.Add(2 * burst) // the debt may hold an allowance
					if _, err := b.Reset(ctx, trial.Mine, nil); err != nil {
						t.Error(err)
					}
				case 3:
					if _, err := b.Inspect(ctx, trial.Mine); err != nil {
						t.Error(err)
					}
				case 4, 5, 6:
					made, d := b.TryReserve(40, time.Minute)
					if !d.Allowed {
						continue
					}
					actual := rng.Int64N(41)
					admitted.Add(actual)
					if _, err := b.Settle(ctx, made.ID, actual); err != nil {
						t.Error(err)
					}
				default:
					if cost := 1 + rng.Int64N(30); b.Take(cost).Allowed {
						admitted.Add(cost)
					}
				}
			}
		})
	}
	wg.Wait()
	if got, most := admitted.Load(), burst+granted.Load(); got > most {
		t.Errorf("admitted %d, want at most %d", got, most)
	}
}
