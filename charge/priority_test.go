package charge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/slot"
)

// classes are endpoints whose requests are of one class each.
var classes = []string{"critical", "high", "normal", "low"}

// classed are the endpoints, and rules that say their classes; the last one is for all together.
func classed(shared policy.Rule) (templates []string, rules []policy.Rule) {
	for _, class := range classes {
		templates = append(templates, "GET /"+class)
		rules = append(rules, policy.Rule{Endpoint: "GET /" + class, Limit: 1 << 30, Priority: policy.Priority(class)})
	}
	shared.Endpoint = policy.All
	if of, what := shared.Subject.Counts(); of == policy.SubjectPrincipal {
		shared.Subject = policy.SubjectEndpoint.Counting(what)
	}
	return templates, append(rules, shared)
}

// sharing is a bench whose one budget classes share.
func sharing(t testing.TB, shared policy.Rule, change ...func(*headgate.Options)) *trial.Bench {
	t.Helper()
	templates, rules := classed(shared)
	return trial.New(t, templates, rules, change...)
}

// TestTheLowestClassIsDeniedFirst: of ten tokens low may take what leaves seven, and then what it is guaranteed.
func TestTheLowestClassIsDeniedFirst(t *testing.T) {
	b := sharing(t, policy.Rule{Limit: 10, Burst: 10, Priority: "high:20,low:10"})
	take := func(class string, want int) (last headgate.Decision) {
		t.Helper()
		for n := 0; ; n++ {
			if last = b.Get("/" + class); last.Class.String() != class {
				t.Fatalf("a request to /%s is of class %v", class, last.Class)
			}
			if !last.Allowed {
				if n != want {
					t.Fatalf("%d of class %s pass, want %d", n, class, want)
				}
				return last
			}
		}
	}
	// low leaves 30 % + 35 %, six of ten: four pass, and one more that it is guaranteed
	d := take("low", 5)
	if d.Reason != headgate.OverLimit || d.RetryAfter != 200*time.Millisecond || len(d.Verdicts()) != 2 {
		t.Errorf("low is told %v, %v, by %d rules, want over_limit for 200 ms by two", d.Reason, d.RetryAfter,
			len(d.Verdicts()))
	}
	take("normal", 0)   // which the rule does not name: it counts as low
	take("high", 4)     // two of five, as three stay, and two that it is guaranteed
	take("critical", 0) // counts as high
	b.Now = b.Now.Add(500 * time.Millisecond)
	take("high", 4) // six tokens
	b.Now = b.Now.Add(time.Minute)
	take("high", 9)
	take("low", 1) // which nobody can take from it
}

// TestTheClassIsTheLowestThatARuleSays which applies and is enforced, and normal where none says anything.
func TestTheClassIsTheLowestThatARuleSays(t *testing.T) {
	rule := func(endpoint string, subject policy.Subject, priority policy.Priority, mode policy.Mode) policy.Rule {
		return policy.Rule{Endpoint: endpoint, Limit: 100, Subject: subject, Priority: priority, Mode: mode}
	}
	b := trial.New(t, []string{"GET /a", "GET /b", "GET /c", "GET /d"}, []policy.Rule{
		rule("GET /a", policy.SubjectPrincipal, "critical", policy.Enforce),
		rule("GET /a", policy.SubjectIP, "low", policy.Enforce),
		rule("GET /b", policy.SubjectPrincipal, "high", policy.Enforce),
		rule("GET /b", policy.SubjectIP, "low", policy.Shadow),
		rule("GET /c", policy.SubjectPrincipal, "", policy.Enforce),
		rule("GET /d", policy.SubjectPrincipal, "critical", policy.Enforce),
		rule(policy.Default, policy.SubjectPrincipal, "low", policy.Enforce), // which those above stand in place of
	})
	for target, want := range map[string]policy.Class{
		"/a": policy.Low, "/b": policy.High, "/c": policy.Normal, "/d": policy.Critical,
	} {
		if d := b.Get(target); d.Class != want {
			t.Errorf("%s is of class %v, want %v", target, d.Class, want)
		}
	}
	plain := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1}})
	if d := plain.Get("/a"); d.Class != policy.Unclassed {
		t.Errorf("without rules that say anything of classes, a request is of class %v", d.Class)
	}
}

// sharedTwin is a budget that classes share, without the planner: two buckets for a request at most, one after the
// other.
type sharedTwin struct {
	shape      rate.Shape
	terms      *policy.PriorityTerms
	whole      bucket.State
	guaranteed map[policy.Class]bucket.State
}

func (w *sharedTwin) take(now int64, class policy.Class, cost int64) bool {
	left := w.shape.Burst() * int64(w.terms.Kept(class)) / 100
	shape := w.shape
	shape.Capacity -= left * shape.Unit
	units, possible := w.shape.Units(cost)
	if !possible {
		return false
	}
	if after, ok := w.whole.Charge(now, shape, units); ok {
		w.whole = after
		return true
	}
	share := w.terms.Guaranteed(class)
	part, ok := w.shape.Share(share.Percent)
	partUnits, possible := part.Units(cost)
	if !ok || !possible {
		return false
	}
	whole, fits := w.whole.Charge(now, w.shape, units)
	guaranteed, also := w.guaranteed[share.Class].Charge(now, part, partUnits)
	if fits && also {
		w.whole, w.guaranteed[share.Class] = whole, guaranteed
	}
	return fits && also
}

// drawShares draws who shares a budget.
func drawShares(rng *rand.Rand) policy.Priority {
	for {
		text, n := "", 0
		for _, class := range classes {
			if rng.IntN(4) > 0 {
				if n++; n > 1 {
					text += ","
				}
				text += fmt.Sprintf("%s:%d", class, rng.IntN(31))
			}
		}
		if _, err := policy.Priority(text).Terms(); err == nil && n > 1 {
			return policy.Priority(text)
		}
	}
}

// TestSharedBudgetsAreThoseOfTheTwin at random: whatever classes ask, answers are the twin's, all classes together get
// no more than the rule says, and whoever asks for no more than its class is guaranteed is never denied.
func TestSharedBudgetsAreThoseOfTheTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 26))
	byGuarantee, byKept := 0, 0
	for world := range 60 {
		shared := policy.Rule{Limit: 1 + rng.Int64N(500), Per: time.Duration(1+rng.IntN(5)) * time.Second,
			Burst: 100 + rng.Int64N(400), Priority: drawShares(rng)}
		b := sharing(t, shared)
		shape, err := rate.Compile(rate.Limit{Tokens: shared.Limit, Per: shared.Per, Burst: shared.Burst})
		if err != nil {
			t.Fatal(err)
		}
		terms, _ := shared.Priority.Terms()
		twin := &sharedTwin{shape: shape, terms: terms, guaranteed: map[policy.Class]bucket.State{}}
		honest := policy.Critical + policy.Class(rng.IntN(4))
		share := terms.Guaranteed(honest)
		own, _ := shape.Share(share.Percent)
		var asked bucket.State                    // of the honest class
		queue, last := int64(0), b.Now.UnixNano() // Lindley's recursion
		for step := range 1500 {
			b.Now = b.Now.Add(time.Duration(rng.Int64N(1 + int64(shared.Per)/shared.Limit)))
			now := b.Now.UnixNano()
			class := policy.Critical + policy.Class(rng.IntN(4))
			cost := 1 + rng.Int64N(1+rng.Int64N(9))
			if terms.Guaranteed(class) == share {
				if class = honest; !own.Algorithm.Drains() || own.Capacity == 0 {
					continue
				}
				o := bucket.Outcome{}
				if asked, o = asked.Take(now, own, cost); !o.Allowed {
					continue // it asks for no more than it is guaranteed
				}
				byGuarantee++
			}
			d := b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/" + class.String(),
				Peer: trial.Client, Cost: cost})
			if want := twin.take(now, class, cost); d.Allowed != want {
				t.Fatalf("world %d, step %d, %+v: class %v is answered %v, want %t", world, step, shared, class,
					d.Reason, want)
			}
			switch {
			case d.Allowed:
				queue, last = max(0, queue-(now-last)*shape.Drain/shape.Tick)+cost*shape.Unit, now
			case class == honest && share.Percent > 0:
				t.Fatalf("world %d, step %d, %+v: class %v is denied what it is guaranteed", world, step, shared, class)
			default:
				byKept++
			}
			if queue > shape.Capacity {
				t.Fatalf("world %d, step %d, %+v: %d units more than burst and rate", world, step, shared,
					queue-shape.Capacity)
			}
		}
	}
	if byGuarantee < 1000 || byKept < 1000 {
		t.Errorf("%d by what is guaranteed, %d denied, want many of both", byGuarantee, byKept)
	}
}

// TestRetryAfterOfASharedBudgetIsTrue: whoever is denied passes when it was told, if nobody else comes, and not before,
// also where another rule denies it as well.
func TestRetryAfterOfASharedBudgetIsTrue(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 6))
	tried := 0
	for range 300 {
		templates, rules := classed(policy.Rule{Limit: 1 + rng.Int64N(50), Burst: 100 + rng.Int64N(100),
			Priority: drawShares(rng)})
		if rng.IntN(2) == 0 {
			rules = append(rules, policy.Rule{Endpoint: policy.All, Limit: 20 + rng.Int64N(60), Burst: 40})
		}
		b := trial.New(t, templates, rules)
		for range 60 {
			class := classes[rng.IntN(4)]
			ask := headgate.Request{Method: "GET", Target: "/" + class, Peer: trial.Client, Cost: 1 + rng.Int64N(40)}
			d := b.Check(context.Background(), ask)
			if d.Allowed {
				continue
			}
			if d.Reason == headgate.CostAboveBurst {
				b.Now = b.Now.Add(time.Hour)
				if l := b.Look(context.Background(), ask); l.Allowed {
					t.Fatalf("class %s passes once all is full, and was told that no wait helps", class)
				}
				continue
			}
			if tried++; d.RetryAfter <= 0 {
				t.Fatalf("class %s is denied, %v, and told nothing", class, d.Reason)
			}
			for _, v := range d.Verdicts() {
				if o := &v.Outcome; !o.Allowed && !o.Never && o.RetryAfter <= 0 {
					t.Fatalf("class %s: %+v denies, and says not for how long", class, v)
				}
			}
			b.Now = b.Now.Add(d.RetryAfter - 1)
			if l := b.Look(context.Background(), ask); l.Allowed {
				t.Fatalf("class %s would pass a nanosecond before %v", class, d.RetryAfter)
			}
			b.Now = b.Now.Add(1)
			if l := b.Look(context.Background(), ask); !l.Allowed {
				t.Fatalf("class %s would not pass after %v: %v", class, d.RetryAfter, l.Reason)
			}
			break
		}
	}
	if tried < 100 {
		t.Errorf("%d were denied, want more", tried)
	}
}

// TestLookSaysWhatCheckWould of a budget that classes share, and takes nothing.
func TestLookSaysWhatCheckWould(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 6))
	b := sharing(t, policy.Rule{Limit: 20, Burst: 100, Priority: "high:20,normal:10,low:10"})
	for range 3000 {
		b.Now = b.Now.Add(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		ask := headgate.Request{Method: "GET", Target: "/" + classes[rng.IntN(4)], Peer: trial.Client,
			Cost: rng.Int64N(4)}
		l, again := b.Look(context.Background(), ask), b.Look(context.Background(), ask)
		d := b.Check(context.Background(), ask)
		if l.Allowed != again.Allowed || l.Allowed != d.Allowed || l.RetryAfter != d.RetryAfter || l.Class != d.Class {
			t.Fatalf("Look = %t, %v, again %t, Check = %t, %v", l.Allowed, l.RetryAfter, again.Allowed, d.Allowed,
				d.RetryAfter)
		}
		for i, v := range l.Verdicts() {
			if got := d.Verdicts()[i].Outcome; got != v.Outcome {
				t.Fatalf("Look says %+v of a rule, Check %+v", v.Outcome, got)
			}
		}
	}
}

// TestSettlingGivesBackWhatIsGuaranteed: after all is given back, all of it is there again.
func TestSettlingGivesBackWhatIsGuaranteed(t *testing.T) {
	for name, shared := range map[string]policy.Rule{
		"tokens": {Limit: 1, Per: 24 * time.Hour, Burst: 100, Priority: "high:20,low:10"},
		"under way": {Limit: 100, Per: time.Hour, Subject: policy.SubjectEndpoint.Counting(policy.CountsUnderWay),
			Algorithm: policy.Concurrency, Priority: "high:20,low:10"},
	} {
		b := sharing(t, shared)
		take := func(class string) (made []headgate.Reservation) {
			for {
				r, d := b.Reserve(context.Background(),
					headgate.Request{Method: "GET", Target: "/" + class, Peer: trial.Client}, headgate.UntilSettled)
				if !d.Allowed {
					return made
				}
				made = append(made, r)
			}
		}
		for round := range 3 {
			low := take("low")
			high := take("high")
			if len(low) != 35+10 || len(high) != 25+20 {
				t.Fatalf("%s, round %d: %d low and %d high pass, want 45 and 45", name, round, len(low), len(high))
			}
			if n := b.Places(); len(n) > 0 {
				for _, places := range n {
					if places != 90 {
						t.Errorf("%s: %d places are told, want 90", name, places)
					}
				}
			}
			for _, r := range append(low, high...) {
				b.MustSettle(t, r.ID, 0)
			}
		}
	}
}

// TestASharedBudgetOfTwoPrincipals: one of them has the budget of its tier, and the other has to have room in it as a
// larger one. Together they leave what the first leaves alone.
func TestASharedBudgetOfTwoPrincipals(t *testing.T) {
	ring := &identity.Keyring{}
	digester, err := identity.NewDigester(make([]byte, identity.MinSecretLength))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{} // by tier
	var records []identity.KeyRecord
	for _, tier := range []string{"free", "gold"} {
		text, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[tier] = text
		records = append(records, identity.KeyRecord{Digest: digester.Digest(text),
			Key: identity.Key{ID: tier, Project: "acme", Tier: tier}})
	}
	if err := ring.Replace(records); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{Keys: ring, Digester: digester,
		KeySources: identity.KeySources{Header: "X-Api-Key", Bearer: true}})
	if err != nil {
		t.Fatal(err)
	}
	passing := func(first, second string) (n int) {
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{
			{Endpoint: "GET /a", Limit: 1 << 20, Priority: "low", Subject: policy.SubjectIP},
			{Endpoint: "GET /a", Tier: "free", Limit: 1, Per: time.Hour, Burst: 90, Subject: policy.SubjectProject},
			{Endpoint: "GET /a", Tier: "gold", Limit: 1, Per: time.Hour, Burst: 100, Subject: policy.SubjectProject,
				Priority: "high:20,low:0"},
		}, func(o *headgate.Options) {
			o.Identities, o.NamedTiers = who, func() bool { return true }
		})
		r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Header: http.Header{}}
		r.Header.(http.Header).Set("Authorization", "Bearer "+keys[first])
		if second != "" {
			r.Header.(http.Header).Set("X-Api-Key", keys[second])
		}
		for b.Check(context.Background(), r).Allowed {
			n++
		}
		return n
	}
	alone := passing("gold", "")
	if one, other := passing("free", "gold"), passing("gold", "free"); alone != 40 || one != alone || other != alone {
		t.Errorf("%d pass with gold alone, %d and %d with both, want 40", alone, one, other)
	}
}

// emptied is a store in which a caller's own bucket is used up by others when it is asked the second time.
type emptied struct{ bucket.Store }

func (e emptied) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if len(takes) == 2 {
		return e.Store.TryConsume(ctx, now, takes, outs)
	}
	for i := range takes {
		outs[i] = bucket.Outcome{Allowed: i > 0, RetryAfter: time.Hour * time.Duration(1-min(i, 1))}
	}
	return false, nil
}

// TestAnotherBucketDeniesTheSecondTime: then it is the one that denies, and says when to come again.
func TestAnotherBucketDeniesTheSecondTime(t *testing.T) {
	b := sharing(t, policy.Rule{Limit: 10, Burst: 10, Priority: "high:20,low:10"}, func(o *headgate.Options) {
		o.Buckets = emptied{o.Buckets}
	})
	for range 4 {
		if d := b.Get("/low"); !d.Allowed {
			t.Fatal(d.Reason)
		}
	}
	d := b.Get("/low")
	v, _ := d.Binding()
	if rule := d.Policies().Rule(v.Rule); d.Allowed || d.RetryAfter != time.Hour || rule.Endpoint != "GET /low" {
		t.Errorf("%v by %s, in %v; want the caller's own limit, in an hour", d.Reason, rule.Title(), d.RetryAfter)
	}
	for _, v := range d.Verdicts() {
		if !v.Outcome.Allowed && v.Outcome.RetryAfter <= 0 {
			t.Errorf("%s denies, and may be asked at once", d.Policies().Rule(v.Rule).Title())
		}
	}
}

// TestAPlanTellsNoMoreVerdictsThanRules: what a class is guaranteed is a part of a rule's bucket, and no further rule.
func TestAPlanTellsNoMoreVerdictsThanRules(t *testing.T) {
	b := sharing(t, policy.Rule{Limit: 1, Burst: 10, Priority: "high:40,low:40"})
	var p charge.Plan
	for range 20 {
		l := b.Look(context.Background(), headgate.Request{Method: "GET", Target: "/low", Peer: trial.Client})
		if p = l.Plan; p.Told() != 2 || len(l.Verdicts()) != 2 {
			t.Fatalf("%d buckets are told of by %d verdicts, want 2", p.Told(), len(l.Verdicts()))
		}
		b.Get("/low")
	}
}

// TestDenyingAClassAllocatesNothing: the least urgent come most often when a budget is short.
func TestDenyingAClassAllocatesNothing(t *testing.T) {
	b := sharing(t, policy.Rule{Limit: 1, Per: time.Hour, Burst: 100, Priority: "high:20,normal:10,low:10"})
	for b.Get("/low").Allowed {
	}
	ask := headgate.Request{Method: "GET", Target: "/low", Peer: trial.Client}
	if n := testing.AllocsPerRun(1000, func() { b.Check(context.Background(), ask) }); n >= trial.Allocations {
		t.Errorf("a denied request allocates %v times, want 0", n)
	}
}

func BenchmarkSharedBudget(b *testing.B) {
	for name, shared := range map[string]policy.Rule{
		"alone":  {Limit: 1 << 30},
		"shared": {Limit: 1 << 30, Priority: "high:20,normal:10,low:10"},
		"denied": {Limit: 1, Per: time.Hour, Burst: 100, Priority: "high:20,normal:10,low:10"},
	} {
		b.Run(name, func(b *testing.B) {
			w := sharing(b, shared)
			for range 100 {
				w.Get("/low")
			}
			ask := headgate.Request{Method: "GET", Target: "/low", Peer: trial.Client}
			b.ReportAllocs()
			for b.Loop() {
				w.Check(context.Background(), ask)
			}
		})
	}
}

// TestNoTimesAreReservedInSharedBudgets: those that low callers had would keep a higher class out.
func TestNoTimesAreReservedInSharedBudgets(t *testing.T) {
	b := sharing(t, policy.Rule{Limit: 1, Burst: 10, Priority: "high:20,low:10"},
		func(o *headgate.Options) { o.Slots = slot.New(slot.Options{Reserve: true}) })
	ask := func(class string) headgate.Decision {
		return b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/" + class, Peer: trial.Client,
			Header: http.Header{"Headgate-Pending": {"50"}}})
	}
	for range 60 {
		ask("low")
	}
	if s := b.Slots(); s.Slots != 0 || s.Reserved != 0 {
		t.Errorf("%d times are kept, %d were reserved, want none", s.Slots, s.Reserved)
	}
	for n := range 4 {
		if d := ask("high"); !d.Allowed {
			t.Errorf("request %d of the top class: %v, %v", n, d.Reason, d.RetryAfter)
		}
	}
}

// TestSharedBudgetsOverChanges: while rules change who shares a budget, requests are reserved and settled for less, and
// the clock steps back, all classes together get no more than the rule says, whatever it said of classes.
func TestSharedBudgetsOverChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 26))
	for world := range 40 {
		shared := policy.Rule{Limit: 1 + rng.Int64N(50), Burst: 100 + rng.Int64N(100), Priority: drawShares(rng)}
		templates, _ := classed(shared)
		var rules trial.Switching
		b := trial.New(t, templates, nil, func(o *headgate.Options) { o.Policies = &rules })
		put := func() {
			if shared.Priority = drawShares(rng); rng.IntN(4) == 0 {
				shared.Priority = ""
			}
			_, all := classed(shared)
			rules.Become(t, b, all...)
		}
		put()
		type open struct {
			made headgate.Reservation
			cost int64
		}
		var under []open
		admitted, began := int64(0), b.Now
		for range 800 {
			b.Now = b.Now.Add(time.Duration(rng.Int64N(int64(40 * time.Millisecond))))
			switch rng.IntN(12) {
			case 0:
				put()
			case 1:
				if b.Now.Sub(began) > time.Second { // grants nothing
					b.Now = b.Now.Add(-time.Millisecond)
				}
			case 2, 3:
				if n := len(under); n > 0 {
					// what is given back is no more than has not drained, so it counts as if it had not been asked for
					actual := rng.Int64N(under[n-1].cost + 1)
					b.MustSettle(t, under[n-1].made.ID, actual)
					admitted -= under[n-1].cost - actual
					under = under[:n-1]
				}
			default:
				cost := 1 + rng.Int64N(5)
				made, d := b.Reserve(context.Background(), headgate.Request{Method: "GET",
					Target: "/" + classes[rng.IntN(4)], Peer: trial.Client, Cost: cost}, time.Hour)
				if d.Allowed {
					admitted, under = admitted+cost, append(under, open{made, cost})
				}
			}
			most := shared.Burst + int64(b.Now.Sub(began))*shared.Limit/int64(time.Second) + 1
			if admitted > most {
				t.Fatalf("world %d: %d tokens in %v, want %d at most", world, admitted, b.Now.Sub(began), most)
			}
		}
	}
}
