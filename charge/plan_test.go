package charge_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// drawSets compiles rules, and then others in their place: what buckets have to
// be converted from. Half of the projects have moved to another tier.
func drawSets(t *testing.T, rng *rand.Rand, table *endpoint.Table) *policy.Set {
	t.Helper()
	document := func() policy.Document {
		d := policy.Document{Projects: map[string]string{}}
		for _, subject := range []policy.Subject{policy.SubjectPrincipal, policy.SubjectIP, policy.SubjectProject} {
			for _, tier := range []string{"", "free", "gold"} {
				d.Rules = append(d.Rules, policy.Rule{
					Endpoint: policy.Default, Subject: subject, Tier: tier, Limit: 1 + rng.Int64N(50),
					Burst: 1 + rng.Int64N(100),
				})
			}
		}
		for i := range 4 {
			d.Projects[fmt.Sprint("p", i)] = []string{"free", "gold"}[rng.IntN(2)]
		}
		return d
	}
	var set *policy.Set
	for i := range 2 {
		var problems policy.Problems
		o := policy.CompileOptions{
			Endpoints: table,
			Previous:  set,
			Now:       trial.Epoch.Add(time.Duration(i) * time.Second),
		}
		if set, problems = policy.Compile(document(), o); problems.Err() != nil {
			t.Fatal(problems.Err())
		}
	}
	return set
}

// TestAPlanForSeveralIsThatForEach: what a request with several credentials
// takes is what it would take with each of them alone, each bucket once,
// whatever allowances its buckets have, and whatever limits came before.
func TestAPlanForSeveralIsThatForEach(t *testing.T) {
	table := trial.Compile(t, []string{"GET /a"})
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	address := who.Resolve(t.Context(), identity.Evidence{Peer: trial.Client})
	now := trial.Epoch.Add(2 * time.Second).UnixNano()
	plan := new(charge.Plan) // used again, as a Limiter does
	kinds, joined := map[charge.Kind]int{}, 0
	for seed := range race.Fewer(uint64(400)) {
		rng := rand.New(rand.NewPCG(seed, 41))
		named := rng.IntN(2) == 0 // the same answer to all plans of a seed
		planner := charge.New(charge.Options{NamedTiers: func() bool { return named }})
		request := charge.Request{
			Set:        drawSets(t, rng, table),
			Now:        now,
			Wall:       now,
			Match:      endpoint.Match{ID: 1, Status: endpoint.Known},
			Endpoints:  table,
			Identities: who,
			Cost:       1,
		}
		callers := make([]identity.Principal, 1+rng.IntN(5))
		for i := range callers {
			callers[i] = address
			callers[i].Kind, callers[i].ID, callers[i].Project = identity.APIKey, fmt.Sprint("k", i),
				fmt.Sprint("p", rng.IntN(4))
			callers[i].Tier = []string{"", "", "free", "gold"}[rng.IntN(4)]
		}
		alone := func(i int) *charge.Plan {
			p := &charge.Plan{Request: request}
			p.Who = &callers[i]
			planner.Plan(p)
			return p
		}
		for i := range callers {
			for _, c := range alone(i).Charges {
				if rng.IntN(2) == 0 {
					own := charge.Allowance{
						Tokens: 1 + rng.Int64N(9),
						From:   now - int64(500*time.Millisecond),
						Until:  now + int64(time.Hour),
					}
					planner.Allowances.Set(alone(i).Takes[c.Place].Key, own, request.Set.Terms(c.Rule).Shape)
				}
			}
		}
		plan.Request = request
		plan.Who, plan.Others = &callers[0], callers[1:]
		planner.Plan(plan)
		compareWithEach(t, seed, plan, alone)
		for i := range plan.Charges {
			kinds[plan.Charges[i].Kind]++
			if plan.Charges[i].Joined {
				joined++
			}
		}
		plan.Others = nil // what a Limiter lets go of is its own
		plan.Release()
	}
	if kinds[charge.Own] == 0 || kinds[charge.Earlier] == 0 || kinds[charge.Larger] == 0 || joined == 0 {
		t.Errorf("kinds %v and %d joined, want some of each: the plans are too simple", kinds, joined)
	}
}

func compareWithEach(t *testing.T, seed uint64, plan *charge.Plan, alone func(int) *charge.Plan) {
	t.Helper()
	smallest := make([]bucket.Take, len(plan.Takes))
	at := 0
	for n := range 1 + len(plan.Others) {
		own := alone(n)
		for i := range own.Charges {
			c, want := plan.Charges[at], own.Takes[own.Charges[i].Place]
			if int(c.Principal) != n || c.Rule != own.Charges[i].Rule || c.Kind != own.Charges[i].Kind {
				t.Fatalf("seed %d: charge %d is %+v, want %+v for principal %d", seed, at, c, own.Charges[i], n)
			}
			if plan.Takes[c.Place].Key != want.Key {
				t.Fatalf("seed %d: charge %d is of another bucket than with this credential alone", seed, at)
			}
			if seen := &smallest[c.Place]; !c.Joined || want.Shape.Capacity < seen.Shape.Capacity {
				*seen = want
			}
			at++
		}
	}
	if at != len(plan.Charges) {
		t.Fatalf("seed %d: %d charges, want %d", seed, len(plan.Charges), at)
	}
	for i := range plan.Takes {
		if !reflect.DeepEqual(plan.Takes[i], smallest[i]) {
			t.Fatalf("seed %d: take %d is %s, want %s", seed, i, inWords(plan.Takes[i]), inWords(smallest[i]))
		}
	}
}

// inWords writes a take with what came before it.
func inWords(t bucket.Take) string {
	text := fmt.Sprintf("%+v", t)
	for p := t.Before; p != nil; p = p.Before {
		text += fmt.Sprintf(" before %+v", *p)
	}
	return text
}
