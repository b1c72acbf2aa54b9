package charge_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// climber is a caller of project acme whose credential says its tier: a key with
// an attribute, or a token with a claim.
type climber struct {
	*trial.Bench
	rules *trial.Switching
	ring  *identity.Keyring
	key   identity.KeyRecord
	text  string
	token bool
}

// claims takes the text of a token for its tier.
type claims struct{}

func (claims) Verify(_ context.Context, text string) (identity.Claims, error) {
	return identity.Claims{
		Subject: "s",
		Project: "acme",
		Tier:    text[len("token."):],
		Until:   trial.Epoch.Add(time.Hour),
	}, nil
}

func newClimber(t testing.TB, size int, token, named bool, change ...func(*headgate.Options)) *climber {
	t.Helper()
	digester, err := identity.NewDigester(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	text, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	x := &climber{
		rules: &trial.Switching{}, ring: &identity.Keyring{}, text: text, token: token,
		key: identity.KeyRecord{
			Digest: digester.Digest(text),
			Key:    identity.Key{ID: "k_0123456789abcdef0123", Project: "acme"},
		},
	}
	who, err := identity.New(identity.Options{
		Keys: x.ring, Digester: digester, Tokens: claims{},
		CertificateName: identity.CertificateCommon, CertificateProject: identity.CertificateOrganization,
	})
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: size})
	if err != nil {
		t.Fatal(err)
	}
	x.Bench = trial.New(t, []string{"GET /a"}, nil, append([]func(*headgate.Options){func(o *headgate.Options) {
		o.Policies, o.Identities, o.Buckets = x.rules, who, buckets
		o.NamedTiers = func() bool { return named }
	}}, change...)...)
	return x
}

func (x *climber) load(t testing.TB, rules ...policy.Rule) {
	t.Helper()
	x.loadIn(t, "", rules...)
}

// loadIn is load with the project in a tier.
func (x *climber) loadIn(t testing.TB, tier string, rules ...policy.Rule) {
	t.Helper()
	doc := policy.Document{Rules: rules}
	if tier != "" {
		doc.Projects = map[string]string{"acme": tier}
	}
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: x.Table,
		Previous: x.rules.Load(), Now: x.Now})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	x.rules.Store(set)
}

// as is a request with a credential that names a tier, "" for none.
func (x *climber) as(t testing.TB, tier string) headgate.Request {
	t.Helper()
	r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}
	if x.token {
		r.Header = http.Header{"Authorization": {"Bearer token." + tier}}
		return r
	}
	x.key.Key.Tier = tier
	if err := x.ring.Replace([]identity.KeyRecord{x.key}); err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"X-Api-Key": {x.text}}
	return r
}

func (x *climber) spend(t testing.TB, tier string, cost int64) bool {
	r := x.as(t, tier)
	r.Cost = cost
	return x.Check(context.Background(), r).Allowed
}

func (x *climber) most(t testing.TB, tier string, limit int64) (n int64) {
	for n < limit && x.spend(t, tier, 1) {
		n++
	}
	return n
}

// byCredential runs a test for each way in which a credential says a tier.
func byCredential(t *testing.T, test func(t *testing.T, token bool)) {
	t.Run("key", func(t *testing.T) { test(t, false) })
	t.Run("token", func(t *testing.T) { test(t, true) })
}

// TestTiersOfCredentials: whatever tiers a caller names in turn, it gets the
// larger burst and not both.
func TestTiersOfCredentials(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: 5},
		{Endpoint: "GET /a", Tier: "free", Limit: 1, Burst: 10},
		{Endpoint: "GET /a", Tier: "gold", Limit: 10, Burst: 30},
		// larger, and slower: beside the others
		{Endpoint: "GET /a", Tier: "bulk", Limit: 1, Per: time.Minute, Burst: 1000},
	}
	type step struct {
		at   time.Duration
		tier string
		take int64 // as many as are given, up to this
		want int64
	}
	for name, steps := range map[string][]step{
		"up":        {{0, "free", 100, 10}, {0, "gold", 100, 20}, {time.Second, "gold", 100, 10}},
		"up, later": {{0, "free", 100, 10}, {time.Second, "gold", 100, 30}},
		"down":      {{0, "gold", 25, 25}, {0, "free", 100, 5}},
		"down, from empty": {{0, "gold", 100, 30}, {0, "free", 100, 0}, {time.Second, "free", 100, 10},
			{2 * time.Second, "free", 100, 1}},
		"to and fro": {{0, "gold", 100, 30}, {0, "free", 100, 0}, {0, "gold", 100, 0}, {0, "free", 100, 0},
			{0, "gold", 100, 0}},
		"to and fro, from below": {{0, "free", 100, 10}, {0, "gold", 100, 20}, {0, "free", 100, 0},
			{0, "gold", 100, 0}},
		"in turn":              {{0, "free", 5, 5}, {0, "gold", 10, 10}, {0, "free", 100, 5}, {0, "gold", 100, 10}},
		"one that has no rule": {{0, "iron", 100, 5}, {0, "free", 100, 5}, {0, "gold", 100, 20}},
		"none at all":          {{0, "", 100, 5}, {0, "free", 100, 5}, {0, "gold", 100, 20}, {0, "", 100, 0}},
		"a larger, slower one": {{0, "bulk", 2000, 1000}, {0, "gold", 100, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			byCredential(t, func(t *testing.T, token bool) {
				x := newClimber(t, 1<<12, token, true)
				x.load(t, rules...)
				for i, s := range steps {
					x.Now = trial.Epoch.Add(s.at)
					if got := x.most(t, s.tier, s.take); got != s.want {
						t.Fatalf("step %d, as tier %q at %v: %d tokens, want %d", i, s.tier, s.at, got, s.want)
					}
				}
			})
		})
	}
}

// TestTiersOfCredentialsAreBounded names tiers at random, in tables that hold all
// buckets and in ones that hold few. What is admitted in the tiers up to any one
// is at most that one's burst and what its rate gave, so all tiers together admit
// what the largest of them does.
func TestTiersOfCredentialsAreBounded(t *testing.T) {
	byCredential(t, func(t *testing.T, token bool) {
		for seed := range uint64(4) {
			for _, size := range []int{8, 1 << 12} {
				rng := rand.New(rand.NewPCG(seed, 11))
				x := newClimber(t, size, token, true)
				climbAtRandom(t, x, rng, fmt.Sprintf("seed %d, %d buckets", seed, size))
			}
		}
	})
}

func climbAtRandom(t *testing.T, x *climber, rng *rand.Rand, name string) {
	tiers := []string{"", "free", "silver", "gold"} // each as fast and as large as the one before, or more so
	rules, bounds := make([]policy.Rule, len(tiers)), make([]lindley, len(tiers))
	limit, burst, per := int64(1), int64(1), 1+rng.IntN(20)
	subject := []policy.Subject{policy.SubjectPrincipal, policy.SubjectProject}[rng.IntN(2)]
	for i, tier := range tiers {
		limit, burst = limit+rng.Int64N(10), burst+rng.Int64N(30)
		rules[i] = policy.Rule{
			Endpoint: policy.Default,
			Tier:     tier,
			Limit:    limit,
			Per:      time.Duration(per) * time.Second,
			Burst:    burst,
			Subject:  subject,
		}
		bounds[i].at = x.Now
	}
	x.load(t, append(slices.Clone(rules), policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1,
		Per: 24 * time.Hour})...)
	for step := range 100 {
		x.Now = x.Now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		for i := range bounds {
			bounds[i].drain(x.Now, float64(rules[i].Limit)/rules[i].Per.Seconds())
		}
		if rng.IntN(3) == 0 {
			for range rng.IntN(40) { // others come, who drive buckets out of a small table
				x.Check(context.Background(), headgate.Request{
					Method: "GET",
					Target: "/a",
					Peer:   netip.AddrFrom4([4]byte{198, 51, 100, byte(rng.IntN(256))}),
				})
			}
		}
		for range rng.IntN(20) {
			tier, cost := rng.IntN(len(tiers)), 1+rng.Int64N(3)
			if !x.spend(t, tiers[tier], cost) {
				continue
			}
			for i := tier; i < len(bounds); i++ {
				if bounds[i].owed += float64(cost); bounds[i].owed > float64(rules[i].Burst)+1e-6 {
					t.Fatalf("%s, step %d: %.3f tokens in tiers up to %q more than its rate gave, want at most its "+
						"burst, %d", name, step, bounds[i].owed, tiers[i], rules[i].Burst)
				}
			}
		}
	}
}

// TestOneTierNoticesNoLadder: a caller that stays in its tier gets what it would
// get if there were no other.
func TestOneTierNoticesNoLadder(t *testing.T) {
	byCredential(t, func(t *testing.T, token bool) {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 13))
			with, without := newClimber(t, 1<<12, token, true), newClimber(t, 1<<12, token, false)
			var rules []policy.Rule
			for _, tier := range []string{"free", "silver", "gold"} {
				rules = append(rules, policy.Rule{
					Endpoint: "GET /a",
					Tier:     tier,
					Limit:    1 + rng.Int64N(20),
					Per:      time.Duration(1+rng.IntN(30)) * time.Second,
					Burst:    1 + rng.Int64N(60),
				})
			}
			own := rng.IntN(len(rules))
			with.load(t, rules...)
			without.load(t, rules[own])
			for step := range 150 {
				later := time.Duration(rng.IntN(2000)) * time.Millisecond
				with.Now, without.Now = with.Now.Add(later), without.Now.Add(later)
				cost := 1 + rng.Int64N(4)
				if got, want := with.spend(t, rules[own].Tier, cost),
					without.spend(t, rules[own].Tier, cost); got != want {
					t.Fatalf("seed %d, step %d: admitted %v, want %v as without other tiers", seed, step, got, want)
				}
			}
		}
	})
}

// TestLadderEveryWay: reservations, operators and Explain see the larger tier's
// bucket.
func TestLadderEveryWay(t *testing.T) {
	x := newClimber(t, 1<<12, true, true)
	x.load(t, policy.Rule{Endpoint: "GET /a", Tier: "free", Limit: 1, Per: time.Hour, Burst: 10},
		policy.Rule{Endpoint: "GET /a", Tier: "gold", Limit: 1, Per: time.Hour, Burst: 30})

	r := x.as(t, "free")
	r.Cost = 8
	made, d := x.Reserve(t.Context(), r, 0)
	if !d.Allowed || len(d.Verdicts()) != 2 || d.Verdicts()[0].Earlier || !d.Verdicts()[1].Earlier {
		t.Fatalf("a reservation of 8: %v, %+v, want two verdicts, the second about gold's bucket",
			d.Reason, d.Verdicts())
	}
	if s, err := x.Settle(t.Context(), made.ID, 3); err != nil || s.Status != reservation.Settled || s.Uncharged != 0 {
		t.Errorf("settled to 3: %+v, %v", s, err)
	}
	if got := x.most(t, "gold", 100); got != 27 {
		t.Errorf("gold gives %d after 3 as free, want 27: a settlement corrects both buckets", got)
	}
	if x.spend(t, "free", 1) {
		t.Error("free gives a token that gold has spent")
	}
	account := x.Explain(t.Context(), x.as(t, "free"))
	if b := account.Buckets; len(b) != 2 || b[0].Larger != "" || b[0].Burst != 10 || b[1].Larger != "tier gold" ||
		b[1].Burst != 30 || !b[1].Binding {
		t.Errorf("explained as %+v, want the second bucket to be gold's, and to bind", account.Buckets)
	}
	query := inspect.Query{Endpoint: "GET /a", Token: "s", Project: "acme", Tier: "free"}
	if _, err := x.Reset(t.Context(), query, nil); err != nil {
		t.Fatal(err)
	}
	if got := x.most(t, "gold", 100); got != 30 {
		t.Errorf("gold gives %d after a reset of free, want 30", got)
	}
}

// TestLadderBesideAShare: a rule that is enforced for a share of the callers hides no larger tier from a settlement,
// which does not know who is chosen.
func TestLadderBesideAShare(t *testing.T) {
	x := newClimber(t, 1<<12, true, true)
	for percent := range 2 {
		x.load(t,
			policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: 1000,
				EnforcePercent: 1 + 98*int64(percent)},
			policy.Rule{Endpoint: policy.Default, Tier: "free", Limit: 1, Per: time.Hour, Burst: 10},
			policy.Rule{Endpoint: policy.Default, Tier: "gold", Limit: 1, Per: time.Hour, Burst: 30})
		r := x.as(t, "free")
		r.Cost = 8
		made, d := x.Reserve(t.Context(), r, 0)
		if !d.Allowed {
			t.Fatal(d.Reason)
		}
		if _, err := x.Settle(t.Context(), made.ID, 0); err != nil {
			t.Fatal(err)
		}
		for _, b := range x.Explain(t.Context(), x.as(t, "gold")).Buckets {
			if b.Remaining != b.Burst-1 {
				t.Errorf("%d of %d remain under %s after all was given back", b.Remaining, b.Burst, b.Rule)
			}
		}
	}
}

// TestLadderWhileAProjectMoves: the project's tier changes in the document, and
// its callers name tiers besides, or do not. Together they get the largest burst.
func TestLadderWhileAProjectMoves(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /a", Tier: "iron", Limit: 1, Per: time.Hour, Burst: 5},
		{Endpoint: "GET /a", Tier: "free", Limit: 2, Per: time.Hour, Burst: 10},
		{Endpoint: "GET /a", Tier: "gold", Limit: 9, Per: time.Hour, Burst: 30},
	}
	orders := [][]string{{"", "gold"}, {"gold", ""}, {"iron", "", "gold"}, {"", "free", "gold", ""},
		{"free", "", "gold", "iron"}}
	byCredential(t, func(t *testing.T, token bool) {
		for _, moves := range [][]string{{"iron", "free"}, {"gold", "free"}, {"iron", "gold"}, {"free", "iron", "free"},
			{"gold", "iron", "gold"}, {"iron", "gold", "free"}} {
			for _, order := range orders {
				x := newClimber(t, 1<<12, token, true)
				x.loadIn(t, moves[0], rules...)
				var got int64
				for _, tier := range moves[1:] {
					got += x.most(t, "", 3) // something is in the bucket of each
					x.Now = x.Now.Add(time.Millisecond)
					x.loadIn(t, tier, rules...)
				}
				for _, named := range order {
					got += x.most(t, named, 100)
				}
				if got += x.most(t, "gold", 100); got != 30 {
					t.Errorf("moved through %q, named %q: %d tokens, want 30, the burst of gold", moves, order, got)
				}
			}
		}
	})
}

// TestLadderOfCertificates: a certificate, which names no tier, shares the budget
// of its project with keys that do.
func TestLadderOfCertificates(t *testing.T) {
	x := newClimber(t, 1<<12, true, true)
	x.load(t, policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: 10, Subject: policy.SubjectProject},
		policy.Rule{
			Endpoint: "GET /a",
			Tier:     "gold",
			Limit:    1,
			Per:      time.Hour,
			Burst:    30,
			Subject:  policy.SubjectProject,
		})
	r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 10, Certificate: &x509.Certificate{
		Raw: []byte("billing"), Subject: pkix.Name{CommonName: "billing", Organization: []string{"acme"}},
		NotAfter: trial.Epoch.AddDate(1, 0, 0),
	}}
	if d := x.Check(t.Context(), r); !d.Allowed || d.Principal.Kind != identity.Certificate {
		t.Fatalf("a certificate of acme: %v, %v", d.Reason, d.Principal)
	}
	if got := x.most(t, "gold", 100); got != 20 {
		t.Errorf("gold gives %d after 10 by a certificate of the project, want 20", got)
	}
}

func TestLadderAllocatesNothing(t *testing.T) {
	x := newClimber(t, 1<<12, true, true)
	x.load(t, policy.Rule{Endpoint: "GET /a", Tier: "free", Limit: 1, Burst: 10},
		policy.Rule{Endpoint: "GET /a", Tier: "gold", Limit: 10, Burst: 30})
	r := x.as(t, "free")
	if n := testing.AllocsPerRun(200, func() { x.Check(context.Background(), r) }); n >= trial.Allocations {
		t.Errorf("Check allocates %v times, want 0", n)
	}
}

// BenchmarkCheckTier is Check for keys that name their tier, of three that have
// rules: in the smallest two larger buckets have to have room as well, in the
// largest none.
func BenchmarkCheckTier(b *testing.B) {
	rules := []policy.Rule{
		{Endpoint: policy.Default, Limit: 1 << 37},
		{Endpoint: policy.Default, Tier: "free", Limit: 1 << 38},
		{Endpoint: policy.Default, Tier: "gold", Limit: 1 << 39},
		{Endpoint: policy.Default, Tier: "bulk", Limit: 1 << 40},
	}
	for _, tier := range []string{"free", "gold", "bulk"} {
		b.Run(tier, func(b *testing.B) {
			x := newClimber(b, 1<<20, false, true)
			x.load(b, rules...)
			r, ctx := x.as(b, tier), context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if d := x.Check(ctx, r); !d.Allowed {
					b.Fatal(d.Reason)
				}
			}
		})
	}
}
