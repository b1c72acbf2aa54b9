package anomaly_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// scored is a limiter that scores callers in windows of a minute, with tiers, and a caller with a key.
type scored struct {
	*trial.Bench
	table *anomaly.Table
	rules *trial.Switching
	text  string // of the key
}

func scoring(t testing.TB, tiers []anomaly.Tier, rules ...policy.Rule) *scored {
	t.Helper()
	s := &scored{table: anomaly.New(512), rules: &trial.Switching{}}
	s.use(t, &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights, Tiers: tiers})
	who, text := trial.Holder(t, identity.Key{ID: "ann", Project: "acme"})
	s.text = text
	s.Bench = trial.New(t, []string{"GET /a", "GET /b", "GET /c/{id}"}, nil, func(o *headgate.Options) {
		o.Identities, o.Policies, o.Scores = who, s.rules, s.table
	})
	s.rules.Become(t, s.Bench, rules...)
	return s
}

func (s *scored) use(t testing.TB, settings *anomaly.Settings) {
	t.Helper()
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	s.table.Use(settings)
}

func (s *scored) request(target string) headgate.Request {
	return headgate.Request{Method: "GET", Target: target, Peer: trial.Client,
		Header: http.Header{"X-Api-Key": {s.text}}}
}

// ask has the holder of the key ask, and tells what the API answered if it was allowed.
func (s *scored) ask(target string, status int) headgate.Decision {
	d := s.Check(context.Background(), s.request(target))
	s.Answered(&d, status)
	return d
}

func (s *scored) score(t testing.TB) anomaly.Score {
	t.Helper()
	a, _, _ := s.Account(&identity.Principal{Kind: identity.APIKey, Project: "acme", ID: "ann"})
	return a.Score
}

// misbehave has a caller that was there before do what makes 70 points and more: it gets answers of 404, and spells
// targets in detours.
func (s *scored) misbehave(t testing.TB) {
	t.Helper()
	s.ask("/a", 200)
	s.Now = s.Now.Add(time.Minute)
	for range 40 {
		s.ask("/x/../a", 404)
		s.Now = s.Now.Add(time.Second)
	}
	if got := s.score(t); got.Total < 70 {
		t.Fatalf("the score is %+v, want 70 or more", got)
	}
}

var (
	suspects = []anomaly.Tier{{From: 70, Name: "suspect"}}
	plenty   = policy.Rule{Endpoint: policy.Default, Limit: 1000}
	few      = policy.Rule{Endpoint: policy.Default, Tier: "suspect", Limit: 2, Per: time.Minute}
)

// TestScoreBringsARule: who has the score pays by the rules of the tier as well, all or nothing, and by nobody's in
// their place; who has it no more does not.
func TestScoreBringsARule(t *testing.T) {
	s := scoring(t, suspects, plenty)
	s.misbehave(t)
	s.rules.Become(t, s.Bench, plenty, few)
	for i := range 4 {
		d := s.ask("/a", 200)
		if d.Allowed != (i < 2) || d.Score.Total < 70 || len(d.Verdicts()) != 2 {
			t.Fatalf("request %d: allowed %v with %+v by %d rules", i, d.Allowed, d.Score, len(d.Verdicts()))
		}
		v, _ := d.Binding()
		if d.Policies().Rule(v.Rule).Tier != "suspect" || !v.Scored || d.Verdicts()[0].Scored {
			t.Errorf("request %d is bound by %+v, want the rule of the tier", i, v)
		}
		if !d.Allowed && d.Reason != headgate.OverLimit {
			t.Errorf("it is denied for %v: a score blocks nobody by itself", d.Reason)
		}
	}
	x := s.Explain(context.Background(), s.request("/a"))
	if len(x.Scores) != 1 || x.Scores[0].Score < 70 || x.Scores[0].Tier != "suspect" || x.Scores[0].From != 70 ||
		len(x.Scores[0].Parts) != anomaly.Parts {
		t.Errorf("explained by %+v", x.Scores)
	}
	last := x.Considered[len(x.Considered)-1]
	if !last.Applies || last.Level != policy.LevelDefaultTier.String() || !x.Buckets[1].Scored || !x.Buckets[1].Denies {
		t.Errorf("explained by %+v and %+v", last, x.Buckets)
	}
	other := headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr("198.51.100.7")}
	if d := s.Check(context.Background(), other); !d.Allowed || len(d.Verdicts()) != 1 {
		t.Errorf("another caller: %v by %d rules", d.Reason, len(d.Verdicts()))
	}
	for range 30 {
		s.Now = s.Now.Add(5 * time.Second)
		s.ask("/a", 200)
	}
	if d := s.ask("/a", 200); !d.Allowed || len(d.Verdicts()) != 1 || d.Score.Total != 0 {
		t.Errorf("who behaves again: %v, %+v by %d rules", d.Reason, d.Score, len(d.Verdicts()))
	}
}

// TestOwnDenialsAreNoAnomaly: answers of who decides, and requests that were denied, make no points but those of the
// rate, so who is denied is not kept there by that.
func TestOwnDenialsAreNoAnomaly(t *testing.T) {
	s := scoring(t, suspects, policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Hour}, few)
	s.ask("/a", 200)
	s.Now = s.Now.Add(time.Minute)
	for range 200 {
		d := s.Check(context.Background(), s.request("/x/../a"))
		s.Answered(&d, 429) // as a door must not, and it does nothing
		if d.Allowed {
			t.Fatal("it is allowed")
		}
	}
	if got := s.score(t); !got.Known || got.Total != 0 {
		t.Errorf("after 200 denials the score is %+v, want 0", got)
	}
}

// TestAddressesAreSpared: callers without a credential pay by the tier only where it says so.
func TestAddressesAreSpared(t *testing.T) {
	for _, with := range []bool{false, true} {
		s := scoring(t, []anomaly.Tier{{From: 40, Name: "suspect", Addresses: with}}, plenty, few)
		ask := func(target string) headgate.Decision {
			d := s.Get(target)
			s.Answered(&d, 404)
			return d
		}
		ask("/a")
		s.Now = s.Now.Add(time.Minute)
		for range 20 {
			ask("/a")
		}
		if d := ask("/a"); d.Score.Total != 40 || (len(d.Verdicts()) == 2) != with {
			t.Errorf("addresses %v: %+v by %d rules", with, d.Score, len(d.Verdicts()))
		}
	}
}

// TestUnknownCounts: what is refused before anybody is identified counts for who asked, whose credential is
// looked at for that; a preflight of a browser does not.
func TestUnknownCounts(t *testing.T) {
	s := scoring(t, nil, plenty)
	at := func() anomaly.Score {
		a, _, _ := s.Account(&identity.Principal{Prefix: netip.PrefixFrom(trial.Client, 32)})
		return a.Score
	}
	get := func(method, target string) {
		s.Check(context.Background(), headgate.Request{Method: method, Target: target, Peer: trial.Client})
	}
	get("GET", "/a")
	s.Now = s.Now.Add(time.Minute)
	for range 40 {
		get("OPTIONS", "/a")
	}
	if got := at(); got.Total != 0 || !got.Known {
		t.Fatalf("preflights make %+v", got)
	}
	for range 60 {
		get("GET", "/wp-login.php")
		get("GET", "/%00")
	}
	if got := at(); got.Parts[anomaly.Unknown] < 25 || got.Parts[anomaly.Spellings] < 25 {
		t.Errorf("what there is not and what has no reading make %+v", got)
	}
	if got := s.score(t); got.Known {
		t.Errorf("the holder of a key who was not there has %+v", got)
	}
	before := at()
	s.ask("/a", 200)
	s.Now = s.Now.Add(time.Minute)
	for range 20 {
		s.ask("/wp-login.php", 404)
	}
	if got := s.score(t); got.Parts != [anomaly.Parts]uint8{anomaly.Unknown: 40} {
		t.Errorf("the holder of a key who asks for what there is not has %+v", got)
	}
	if got := at(); got.Total > before.Total {
		t.Errorf("its address has %+v now, and %+v before", got, before)
	}
	if d := s.ask("/wp-login.php", 404); d.Reason != headgate.UnknownEndpoint || d.Principal != (identity.Principal{}) {
		t.Errorf("it is refused for %v, as one of %v", d.Reason, d.Principal)
	}
}

// TestTiersOfScoresGrantNothing: whatever scores, tiers and settings do, a caller is admitted no more than by the rules
// that hold for it without any score. Two limiters decide the same requests, and one that scores never admits what
// brings a bucket of the other above its burst.
func TestTiersOfScoresGrantNothing(t *testing.T) {
	scoredSeeds := 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 9))
		own := policy.Rule{Endpoint: policy.Default, Limit: 2, Burst: 10}
		rules := []policy.Rule{own, // and a tier with more than that, by mistake
			{Endpoint: policy.Default, Tier: "suspect", Limit: 1 + random.Int64N(20), Burst: 1 + random.Int64N(60)},
			{Endpoint: policy.All, Limit: 3, Burst: 12},
			{Endpoint: policy.All, Tier: "suspect", Limit: 100, Burst: 100},
		}
		s := scoring(t, []anomaly.Tier{{From: 1 + uint8(random.IntN(40)), Name: "suspect", Addresses: true}}, rules...)
		debt, last, scoredOnce := 0.0, s.Now, false // of the bucket of "*"
		for range 3000 {
			s.Now = s.Now.Add(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
			if random.IntN(500) == 0 {
				s.use(t, &anomaly.Settings{Window: time.Duration(1+random.IntN(3)) * time.Minute,
					Weights: anomaly.DefaultWeights,
					Tiers:   []anomaly.Tier{{From: 1 + uint8(random.IntN(90)), Name: "suspect"}}})
			}
			debt = max(0, debt-3*s.Now.Sub(last).Seconds())
			last = s.Now
			d := s.ask([]string{"/a", "/x/../b", "/c/7"}[random.IntN(3)], []int{200, 404}[random.IntN(2)])
			scoredOnce = scoredOnce || len(d.Verdicts()) > 2
			if d.Allowed {
				debt++
			}
			if debt > 12.001 {
				t.Fatalf("seed %d: %.2f of 12 are owed", seed, debt)
			}
		}
		if scoredOnce {
			scoredSeeds++
		}
	}
	if scoredSeeds < 15 {
		t.Errorf("the caller paid by the tier in %d of 30 stories", scoredSeeds)
	}
}

// TestScoredTiersBesideGuards: a caller whose key names its tier has to have room in the buckets of larger tiers as
// well. None of them is charged twice because a score names its tier.
func TestScoredTiersBesideGuards(t *testing.T) {
	who, text := trial.Holder(t, identity.Key{ID: "ann", Project: "acme", Tier: "gold"})
	s := &scored{table: anomaly.New(512), rules: &trial.Switching{}, text: text}
	s.use(t, &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights, Tiers: suspects})
	s.Bench = trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) {
		o.Identities, o.Policies, o.Scores, o.NamedTiers = who, s.rules, s.table, func() bool { return true }
	})
	s.rules.Become(t, s.Bench, plenty, policy.Rule{Endpoint: policy.Default, Tier: "gold", Limit: 1000, Per: time.Hour},
		policy.Rule{Endpoint: policy.Default, Tier: "suspect", Limit: 5000, Per: time.Hour}) // larger than gold
	s.misbehave(t)
	before := s.Look(context.Background(), s.request("/a"))
	keys := map[any]bool{}
	for _, take := range before.Plan.Takes {
		if keys[take.Key] {
			t.Errorf("a bucket is charged twice, of %d", len(before.Plan.Takes))
		}
		keys[take.Key] = true
	}
	if len(before.Plan.Takes) != 3 || !before.Plan.Charges[1].Scored {
		t.Errorf("charged are %+v, want the own, that of the score and that of everybody", before.Plan.Charges)
	}
}

// TestScoredBucketsAreFoundByTheirTier: while a caller has a score, its own bucket is reset as ever, and that of the
// tier by naming the tier.
func TestScoredBucketsAreFoundByTheirTier(t *testing.T) {
	s := scoring(t, suspects, plenty, few)
	s.misbehave(t)
	for s.ask("/a", 404).Allowed { // until the tier has no room
		continue
	}
	for tier, want := range map[string]string{"": "", "suspect": "suspect"} {
		b, err := s.Reset(context.Background(), inspect.Query{Endpoint: "GET /a", KeyID: "ann", Project: "acme",
			Tier: tier}, nil)
		if err != nil || (b.Limit == few.Limit) != (want != "") {
			t.Errorf("tier %q: reset %+v, %v", tier, b, err)
		}
	}
	if d := s.ask("/a", 404); !d.Allowed {
		t.Errorf("after the reset it is denied for %v", d.Reason)
	}
}

// TestMembersPayOnce: who is in the tier anyway pays by its rules once, whatever the score.
func TestMembersPayOnce(t *testing.T) {
	s := scoring(t, suspects)
	set, problems := policy.Compile(policy.Document{
		Rules:    []policy.Rule{plenty, {Endpoint: policy.Default, Tier: "suspect", Limit: 1000, Per: time.Minute}},
		Projects: map[string]string{"acme": "suspect"},
	}, policy.CompileOptions{Endpoints: s.Table, Now: s.Now})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	s.rules.Store(set)
	s.misbehave(t)
	if d := s.ask("/a", 200); !d.Allowed || len(d.Verdicts()) != 1 || d.Verdicts()[0].Scored {
		t.Errorf("%v by %+v", d.Reason, d.Verdicts())
	}
}

// TestScoredRulesSettle: what a rule of the tier took is settled like all else, when the score is gone too.
func TestScoredRulesSettle(t *testing.T) {
	s := scoring(t, suspects, plenty, few,
		policy.Rule{Endpoint: "GET /b", Tier: "suspect", Limit: 100, Per: time.Hour, Subject: policy.SubjectPrincipal})
	s.misbehave(t)
	request := s.request("/b")
	request.Cost = 80
	made, d := s.Reserve(context.Background(), request, time.Hour)
	if !d.Allowed || len(d.Verdicts()) != 2 {
		t.Fatalf("%v by %d rules", d.Reason, len(d.Verdicts()))
	}
	s.table.Use(nil) // nobody is scored any more
	s.MustSettle(t, made.ID, 10)
	s.use(t, &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights, Tiers: suspects})
	x := s.Explain(context.Background(), s.request("/b"))
	if len(x.Buckets) != 2 || x.Buckets[1].Remaining < 88 || x.Buckets[1].Remaining > 90 {
		t.Errorf("the bucket of the tier: %+v, want about 89 left of 100", x.Buckets)
	}
}

// TestScoredPlacesComeBack: a place among the requests under way that the rule of a tier gave is given back when
// nobody has the score any more.
func TestScoredPlacesComeBack(t *testing.T) {
	one := policy.Rule{Endpoint: "GET /b", Tier: "suspect", Limit: 1, Algorithm: policy.Concurrency,
		Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)}
	s := scoring(t, suspects, plenty, one)
	s.misbehave(t)
	reserve := func(want bool) headgate.Reservation {
		t.Helper()
		made, d := s.Reserve(context.Background(), s.request("/b"), headgate.UntilSettled)
		if d.Allowed != want || len(d.Verdicts()) != 2 {
			t.Fatalf("%v by %d rules, want allowed %v", d.Reason, len(d.Verdicts()), want)
		}
		return made
	}
	first := reserve(true)
	reserve(false)
	scoring := s.table.Settings()
	s.table.Use(nil)
	s.MustSettle(t, first.ID, 1)
	s.table.Use(scoring)
	s.MustSettle(t, reserve(true).ID, 1)
}

// TestScoringAllocatesNothing: neither a decision that pays by a tier, nor what it is answered.
func TestScoringAllocatesNothing(t *testing.T) {
	s := scoring(t, []anomaly.Tier{{From: 30, Name: "suspect"}}, plenty,
		policy.Rule{Endpoint: policy.Default, Tier: "suspect", Limit: 1_000_000})
	s.misbehave(t)
	r := s.request("/a")
	if n := testing.AllocsPerRun(200, func() {
		d := s.Check(context.Background(), r)
		s.Answered(&d, 404)
		if len(d.Verdicts()) != 2 {
			t.Fatal("it does not pay by the tier")
		}
	}); n >= trial.Allocations {
		t.Errorf("a request allocates %v times, want 0", n)
	}
}

func BenchmarkScored(b *testing.B) {
	for _, on := range []bool{false, true} {
		name := map[bool]string{false: "off", true: "on"}[on]
		b.Run(name, func(b *testing.B) {
			s := scoring(b, suspects, policy.Rule{Endpoint: policy.Default, Limit: 1 << 30, Burst: 1 << 31})
			if !on {
				s.table.Use(nil)
			}
			r := s.request("/a")
			b.ReportAllocs()
			for b.Loop() {
				d := s.Check(context.Background(), r)
				s.Answered(&d, 200)
			}
		})
	}
}
