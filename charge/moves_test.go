package charge_test

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// tenant is a caller with a key of project acme, whose tier stands in the
// document.
type tenant struct {
	*trial.Bench
	rules   *trial.Switching
	doc     policy.Document
	request headgate.Request
}

func newTenant(t testing.TB, size int) *tenant {
	t.Helper()
	who, text := trial.Holder(t, identity.Key{ID: "k_0123456789abcdef0123", Project: "acme"})
	buckets, err := memory.New(memory.Options{MaxBuckets: size})
	if err != nil {
		t.Fatal(err)
	}
	rules := &trial.Switching{}
	x := &tenant{rules: rules, Bench: trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) {
		o.Policies, o.Identities, o.Buckets = rules, who, buckets
	})}
	x.request = headgate.Request{
		Method: "GET",
		Target: "/a",
		Peer:   trial.Client,
		Header: http.Header{"X-Api-Key": {text}},
	}
	return x
}

func (x *tenant) load(t testing.TB, doc policy.Document) {
	t.Helper()
	x.doc = doc
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: x.Table,
		Previous: x.rules.Load(), Now: x.Now})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	x.rules.Store(set)
}

// move puts acme into a tier, "" for none.
func (x *tenant) move(t testing.TB, tier string) {
	t.Helper()
	doc := x.doc
	doc.Projects = map[string]string{"bystander": "gold"}
	if tier != "" {
		doc.Projects["acme"] = tier
	}
	x.load(t, doc)
}

func (x *tenant) spend(cost int64) headgate.Decision {
	r := x.request
	r.Cost = cost
	return x.Check(context.Background(), r)
}

// most takes single tokens until it is denied.
func (x *tenant) most(limit int64) (n int64) {
	for n < limit && x.spend(1).Allowed {
		n++
	}
	return n
}

// TestMovesBetweenTiers: what a move gives is what the larger burst leaves, and
// the rule in force is never loosened.
func TestMovesBetweenTiers(t *testing.T) {
	tiers := policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: 5},
		{Endpoint: "GET /a", Tier: "free", Limit: 1, Burst: 10},
		{Endpoint: "GET /a", Tier: "gold", Limit: 10, Burst: 30},
		{Endpoint: "GET /a", Tier: "iron", Limit: 1, Burst: 10},
	}}
	type step struct {
		at   time.Duration
		tier string
		take int64 // as many as are given, up to this
		want int64
	}
	for name, steps := range map[string][]step{
		"up": {{0, "free", 100, 10}, {0, "gold", 100, 20}, {time.Second, "gold", 100, 10}},
		"up, and not at once": {
			// what drained before the move is not known to have
			{0, "free", 100, 10}, {4 * time.Second, "free", 0, 0}, {4 * time.Second, "gold", 100, 20},
		},
		"down": {{0, "gold", 20, 20}, {0, "free", 100, 10}, {time.Second, "free", 100, 1}},
		"down, from empty": {{0, "gold", 100, 30}, {0, "free", 100, 0}, {time.Second, "free", 100, 1},
			{3 * time.Second, "free", 100, 2}},
		"to and fro": {{0, "gold", 100, 30}, {0, "free", 100, 0}, {0, "gold", 100, 0},
			{0, "free", 100, 0}, {0, "gold", 100, 0}},
		"to and fro, from below": {{0, "free", 100, 10}, {0, "gold", 100, 20}, {0, "free", 100, 0},
			{0, "gold", 100, 0}, {time.Second, "gold", 100, 10}},
		"alike": {{0, "free", 100, 10}, {0, "iron", 100, 0}, {time.Second, "iron", 100, 1},
			{2 * time.Second, "free", 100, 0}, {3 * time.Second, "free", 100, 1}},
		"three": {{0, "gold", 100, 30}, {0, "free", 100, 0}, {0, "iron", 100, 0},
			{0, "gold", 100, 0}, {0, "", 100, 0}},
		"out of all tiers":       {{0, "gold", 10, 10}, {0, "", 100, 5}, {time.Hour, "", 100, 1}},
		"into one for the first": {{0, "", 100, 5}, {0, "free", 100, 5}, {0, "gold", 100, 20}},
		"nothing was spent":      {{0, "free", 0, 0}, {0, "gold", 100, 30}},
		"down, and much later": {{0, "gold", 100, 30}, {0, "free", 0, 0}, {time.Hour, "free", 100, 10},
			{time.Hour, "gold", 100, 20}},
		"a stay in the free tier": {{0, "free", 10, 10}, {0, "gold", 20, 20}, {0, "free", 0, 0},
			{20 * time.Second, "free", 100, 10}, {20 * time.Second, "free", 100, 0}},
		"unseen in the slow one": {{0, "gold", 30, 30}, {0, "", 0, 0}, {time.Hour, "gold", 100, 0},
			{time.Hour + time.Second, "gold", 100, 10}},
		"back to the first, later": {{0, "gold", 30, 30}, {0, "free", 0, 0}, {10 * time.Second, "free", 100, 10},
			{10 * time.Second, "gold", 100, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTenant(t, 1<<12)
			x.doc = tiers
			now := "none yet"
			for i, s := range steps {
				x.Now = trial.Epoch.Add(s.at)
				if s.tier != now {
					x.move(t, s.tier)
					now = s.tier
				}
				if got := x.most(s.take); got != s.want {
					t.Fatalf("step %d, in tier %q at %v: %d tokens, want %d", i, s.tier, s.at, got, s.want)
				}
			}
		})
	}
}

// lindley is the bound: what was admitted less what drained at the rate in force,
// never below nothing. It knows no bucket, and cuts nothing.
type lindley struct {
	at   time.Time
	owed float64 // tokens
}

func (l *lindley) drain(now time.Time, rate float64) {
	l.owed = max(0, l.owed-rate*now.Sub(l.at).Seconds())
	l.at = now
}

// TestMovesAreBounded moves a project at random between tiers whose rules are
// left alone, changed and overridden, with requests and without in between, in
// tables that hold all buckets and in ones that hold few. However that goes, what
// is admitted is at most the largest burst there was, the rises of bursts by
// changes of limits, and what the rates in force gave.
func TestMovesAreBounded(t *testing.T) {
	for seed := range race.Fewer(uint64(20)) {
		for _, changes := range []bool{false, true} {
			for _, size := range []int{8, 1 << 12} {
				rng := rand.New(rand.NewPCG(seed, 7))
				x := newTenant(t, size)
				runMoves(t, x, rng, changes, fmt.Sprintf("seed %d, changes %v, %d buckets", seed, changes, size))
			}
		}
	}
}

func runMoves(t *testing.T, x *tenant, rng *rand.Rand, changes bool, name string) {
	tiers := []string{"", "free", "gold", "iron"}
	limit := func(tier string) policy.Rule {
		return policy.Rule{
			Endpoint: "GET /a",
			Tier:     tier,
			Limit:    1 + rng.Int64N(20),
			Per:      time.Duration(1+rng.IntN(30)) * time.Second,
			Burst:    1 + rng.Int64N(60),
		}
	}
	lasting, temporary := map[string]policy.Rule{}, map[string]policy.Rule{}
	for _, tier := range tiers {
		lasting[tier] = limit(tier)
	}
	tier := ""
	load := func() {
		doc := policy.Document{
			Rules:    []policy.Rule{{Endpoint: policy.UnknownEndpoint, Limit: 1, Per: 24 * time.Hour}},
			Projects: map[string]string{},
		}
		for _, of := range []map[string]policy.Rule{lasting, temporary} {
			for _, k := range slices.Sorted(maps.Keys(of)) {
				doc.Rules = append(doc.Rules, of[k])
			}
		}
		if tier != "" {
			doc.Projects["acme"] = tier
		}
		x.load(t, doc)
	}
	inForce := func() policy.Rule {
		if r, ok := temporary[tier]; ok && x.Now.Before(r.Expires) {
			return r
		}
		return lasting[tier]
	}
	bound := lindley{at: x.Now}
	most, rises := inForce().Burst, int64(0)
	// pass lets time pass, through the ends of temporary rules.
	pass := func(d time.Duration) {
		until := x.Now.Add(d)
		for x.Now.Before(until) {
			r, next := inForce(), until
			if !r.Expires.IsZero() && r.Expires.Before(next) {
				next = r.Expires
			}
			bound.drain(next, float64(r.Limit)/r.Per.Seconds())
			x.Now = next
			if r.Expires.Equal(next) {
				rises += max(0, lasting[tier].Burst-r.Burst)
			}
		}
		// In tiers where the project is not they end as well.
		for k, r := range temporary {
			if !x.Now.Before(r.Expires) && k != tier && rng.IntN(2) == 0 {
				rises += max(0, lasting[k].Burst-r.Burst)
			}
		}
	}
	load()
	for step := range 120 {
		pass(time.Duration(rng.IntN(4000)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0:
			tier = tiers[rng.IntN(len(tiers))]
			load()
		case 1:
			if !changes {
				break
			}
			k := tiers[rng.IntN(len(tiers))]
			was := max(lasting[k].Burst, temporary[k].Burst)
			r := limit(k)
			if rng.IntN(2) == 0 {
				lasting[k] = r
			} else {
				r.Expires = x.Now.Add(time.Duration(1+rng.IntN(8)) * time.Second)
				temporary[k] = r
			}
			rises += was + r.Burst // no more than that in any order
			load()
		case 2:
			for range rng.IntN(40) { // others come, who drive buckets out of a small table
				x.Check(context.Background(), headgate.Request{
					Method: "GET",
					Target: "/a",
					Peer:   netip.AddrFrom4([4]byte{198, 51, 100, byte(rng.IntN(256))}),
				})
			}
		}
		rule := inForce()
		most = max(most, rule.Burst)
		for range rng.IntN(30) {
			cost := 1 + rng.Int64N(3)
			if x.spend(cost).Allowed {
				bound.owed += float64(cost)
			}
		}
		if bound.owed > float64(most+rises)+1e-6 {
			t.Fatalf("%s, step %d: %.3f tokens more than the rates gave, want at most the largest burst, %d, and "+
				"rises of %d", name, step, bound.owed, most, rises)
		}
	}
}

// TestMovesGuardEveryWay: reservations, their settlement and operators see the
// bucket that goes on, and doors are told of one rule.
func TestMovesGuardEveryWay(t *testing.T) {
	tiers := policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Tier: "free", Limit: 1, Per: time.Hour, Burst: 10},
		{Endpoint: "GET /a", Tier: "gold", Limit: 1, Per: time.Hour, Burst: 30},
	}}
	moved := func() *tenant {
		x := newTenant(t, 1<<12)
		x.doc = tiers
		x.move(t, "free")
		x.most(10)
		x.Now = x.Now.Add(time.Second)
		x.move(t, "gold")
		return x
	}
	query := inspect.Query{Endpoint: "GET /a", KeyID: "k_0123456789abcdef0123", Project: "acme"}
	left := func(x *tenant) int64 {
		t.Helper()
		in, err := x.Inspect(t.Context(), query)
		if err != nil || len(in.Buckets) != 1 {
			t.Fatalf("Inspect = %+v, %v, want one bucket", in, err)
		}
		return in.Buckets[0].Remaining
	}

	x := moved()
	if got := left(x); got != 20 {
		t.Errorf("%d tokens are left after the move, want 30-10", got)
	}
	if _, given, err := x.Grant(t.Context(), query, 4, time.Time{}, nil); err != nil || left(x) != 20+4 {
		t.Errorf("a grant of 4 gives %d, %v, and leaves %d, want 24", given, err, left(x))
	}
	if _, err := x.Reset(t.Context(), query, nil); err != nil || left(x) != 30 {
		t.Errorf("after a reset %d tokens are left, %v, want 30", left(x), err)
	}

	x = moved()
	x.request.Cost = 15
	made, d := x.Reserve(t.Context(), x.request, 0)
	if !d.Allowed || left(x) != 5 {
		t.Fatalf("a reservation of 15: %v, %d are left, want 5", d.Reason, left(x))
	}
	if s, err := x.Settle(t.Context(), made.ID, 3); err != nil || s.Status != reservation.Settled || left(x) != 17 {
		t.Errorf("settled to 3: %+v, %v, %d are left, want 17", s, err, left(x))
	}

	x = moved()
	d = x.spend(21)
	if d.Allowed || d.Reason != headgate.OverLimit || len(d.Verdicts()) != 2 || !d.Verdicts()[1].Earlier {
		t.Errorf("21 of 20: %v, %v, %+v, want over_limit by the bucket from before", d.Allowed, d.Reason, d.Verdicts())
	}
	v, _ := d.Binding()
	if rule := d.Policies().Rule(v.Rule); rule.Tier != "gold" || v.Outcome.RetryAfter <= 0 {
		t.Errorf("told of %+v, want the rule in force and a wait", rule)
	}
	account := x.Explain(t.Context(), x.request).Buckets
	if len(account) != 2 || account[0].Earlier || !account[1].Earlier {
		t.Errorf("explained as %+v, want two buckets, the second from before", account)
	}
}

// TestMovesAreForgotten once the slowest limit has filled, and cost nothing then.
func TestMovesAreForgotten(t *testing.T) {
	x := newTenant(t, 1<<12)
	x.doc = policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Tier: "free", Limit: 1, Burst: 10},
		{Endpoint: "GET /a", Tier: "gold", Limit: 10, Burst: 30},
	}}
	x.move(t, "free")
	x.most(10)
	x.move(t, "gold")
	for at, want := range map[time.Duration]bool{0: true, 9 * time.Second: true, time.Minute: false} {
		if got := x.rules.Load().Moved(trial.Epoch.Add(at).UnixNano(), "acme", "") != 0; got != want {
			t.Errorf("remembered after %v: %v, want %v", at, got, want)
		}
	}
	x.Now = trial.Epoch.Add(time.Minute)
	if d := x.spend(1); len(d.Verdicts()) != 1 {
		t.Errorf("%d verdicts, want the rule's alone", len(d.Verdicts()))
	}
	if set := x.rules.Load(); set.Moved(trial.Epoch.UnixNano(), "acme", "gold") != 0 ||
		set.Moved(trial.Epoch.UnixNano(), "bystander", "") != 0 {
		t.Error("a caller whose key names a tier, or one that did not move, is taken for one that moved")
	}
}

func TestMovesAllocateNothing(t *testing.T) {
	x := newTenant(t, 1<<12)
	x.doc = policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Tier: "free", Limit: 1, Burst: 10},
		{Endpoint: "GET /a", Tier: "gold", Limit: 10, Burst: 30},
	}}
	x.move(t, "gold")
	x.move(t, "free")
	if n := testing.AllocsPerRun(200, func() { x.spend(1) }); n >= trial.Allocations {
		t.Errorf("Check allocates %v times, want 0", n)
	}
}
