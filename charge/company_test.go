package charge_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/slot"
)

// placesKept is for how long places among the requests under way are kept here, which no other limit counts over.
const placesKept = 30 * time.Second

// company is a limiter with a bit of everything, by chance.
type company struct {
	*trial.Bench
	*ledger
	t        *testing.T
	rng      *rand.Rand
	seed     uint64
	step     int
	rules    *trial.Switching
	doc      policy.Document
	keys     []string
	ring     *identity.Keyring
	records  []identity.KeyRecord
	adaptive *adaptive.Table
	changed  time.Time    // when rules did
	back     atomic.Int64 // nanoseconds by which the clock is behind
	held     []holding
	seen     map[string]int
	agents   agents
	blocked  string // an agent; "" for none
	relimits bool   // limits change
	slots    bool   // callers have times of their own, which are told as of when they were last refused
	refuses  bool   // bad credentials are refused, which costs what it costs otherwise
	requests bool   // a rule counts requests, and one that is settled was one, whatever it cost
}

// agents is a verifier of signatures: a request has those of the agents that it names in Signature-Input. What a bad
// one names is behind a "!".
type agents struct{ tier string }

func (a *agents) VerifyAgents(r *identity.Signed) (found identity.Signers) {
	for _, name := range strings.Fields(r.Header.Values("Signature-Input")[0]) {
		switch name, bad := strings.CutPrefix(name, "!"); {
		case name == "flood":
			found.Why = identity.SignatureFlood
		case bad:
			found.Why = identity.SignatureReplayed
			found.Claimed = append(found.Claimed, identity.Agent{ID: name, Tier: a.tier})
		default:
			found.Agents = append(found.Agents, identity.Agent{ID: name, Tier: a.tier})
		}
	}
	return found
}

// blocks reports whether a block of an agent has to hold for a request: whatever else it shows.
func (w *company) blocks(r *headgate.Request) bool {
	signed := r.Header.(http.Header).Get("Signature-Input")
	return w.blocked != "" && (strings.Contains(signed, w.blocked) || strings.Contains(signed, "flood"))
}

// holding is a reservation, and the request that it is for.
type holding struct {
	made    headgate.Reservation
	request headgate.Request
}

var togetherTemplates = []string{"GET /a", "GET /b", "POST /c", "GET /d/{id}"}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func newCompany(t *testing.T, seed uint64) *company {
	rng := rand.New(rand.NewPCG(seed, 2026))
	w := &company{t: t, rng: rng, seed: seed, rules: &trial.Switching{}, ring: &identity.Keyring{},
		adaptive: &adaptive.Table{}, seen: map[string]int{}}
	store, err := memory.New(memory.Options{MaxBuckets: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	w.ledger = &ledger{Store: store, last: map[key.Key]bucket.Take{}, entries: map[key.Key][]entry{},
		moved: map[key.Key]bool{}, blurred: map[key.Key]bool{}, windows: map[key.Key]bool{},
		places: map[key.Key][]int64{}}
	digester, err := identity.NewDigester(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []identity.Key{{ID: "ann", Project: "acme"}, {ID: "bob", Project: "acme"},
		{ID: "cat", Project: "umbrella", Tier: pick(rng, "", "silver", "gold")}} {
		text, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		w.keys = append(w.keys, text)
		w.records = append(w.records, identity.KeyRecord{Digest: digester.Digest(text), Key: k})
	}
	if err := w.ring.Replace(w.records); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{Keys: w.ring, Digester: digester, Agents: &w.agents,
		KeySources: identity.KeySources{Header: "X-Api-Key", Bearer: true, Query: "api_key"}})
	if err != nil {
		t.Fatal(err)
	}
	w.operated, w.refuses = rng.IntN(3) == 0, rng.IntN(4) == 0
	scores := anomaly.New(512)
	settings := &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights,
		Tiers: []anomaly.Tier{{From: 1 + uint8(rng.IntN(40)), Name: pick(rng, "suspect", "silver"), Addresses: true}}}
	scores.Use(settings)
	w.Bench = trial.New(t, togetherTemplates, nil, func(o *headgate.Options) {
		o.Policies, o.Identities, o.Buckets, o.Scores, o.Adaptive = w.rules, who, w.ledger, scores, w.adaptive
		o.Penalties, o.Names, o.RefuseBadCredentials = penalty.New(512), nil, w.refuses
		o.Region = func(a netip.Addr) string { return "eu"[:a.As4()[3]*2] }
		o.NamedTiers = func() bool { return true }
		o.Now = func() time.Time { return time.Now().Add(-time.Duration(w.back.Load())) }
		if w.slots = rng.IntN(2) == 0; w.slots {
			o.Slots = slot.New(slot.Options{Reserve: rng.IntN(2) == 0})
		}
	})
	w.adaptive.Use(map[string]adaptive.Settings{
		"GET /a":  {SLO: 100 * time.Millisecond, Floor: adaptive.Whole / 8, AtOnce: rng.IntN(2) == 0},
		"POST /c": {SLO: 100 * time.Millisecond, Floor: adaptive.Whole / 2},
	}, time.Now().UnixNano())
	w.relimits = rng.IntN(2) == 0
	w.draw()
	w.load()
	return w
}

// draw draws rules.
func (w *company) draw() {
	rng := w.rng
	limit := func(r policy.Rule) policy.Rule {
		r.Limit, r.Per = 1+rng.Int64N(20), time.Duration(1+rng.IntN(10))*time.Second
		if r.Algorithm.Counts().Drains() && rng.IntN(2) == 0 {
			r.Burst = 1 + rng.Int64N(60)
		}
		if of, what := r.Subject.Counts(); of == policy.SubjectPrincipal && what == policy.CountsTokens {
			r.Subject = pick(rng, policy.SubjectPrincipal, policy.SubjectPrincipal, policy.SubjectIP,
				policy.SubjectProject, policy.SubjectEndpoint, policy.SubjectIdentifier, policy.SubjectRegion)
		}
		if rng.IntN(3) == 0 {
			r.CountWhen = "401,404"
		}
		switch rng.IntN(6) {
		case 0:
			r.Mode = policy.Shadow
		case 1:
			r.EnforcePercent = 50
		}
		return r
	}
	algorithm := func() policy.Algorithm {
		return pick(rng, policy.TokenBucket, policy.TokenBucket, policy.LeakyBucket, policy.FixedWindow,
			policy.SlidingWindow, policy.SlidingLog)
	}
	shares := func(endpoint, tier string) policy.Rule {
		r := limit(policy.Rule{Endpoint: endpoint, Tier: tier, Algorithm: pick(rng, policy.TokenBucket,
			policy.LeakyBucket)})
		r.Burst = 100 + rng.Int64N(20)
		r.Limit = 20 + rng.Int64N(80)
		r.Priority = pick[policy.Priority](rng, "high:20,low:10", "critical:5,high:20,normal:10,low:10",
			"normal:30,low:0")
		return r
	}
	var rules []policy.Rule
	add := func(r policy.Rule) {
		for _, other := range rules {
			if other.Endpoint == r.Endpoint && other.Tier == r.Tier && other.Project == r.Project &&
				other.Subject == r.Subject {
				return
			}
		}
		rules = append(rules, r)
	}
	add(shares(policy.All, ""))
	add(shares(pick(rng, "GET /a", policy.Default), pick(rng, "", "gold")))
	for _, tier := range []string{"", "", "silver", "gold", "suspect"} {
		for range 1 + rng.IntN(2) {
			r := limit(policy.Rule{Endpoint: pick(rng, policy.Default, policy.Default, "GET /a", "GET /b", "POST /c",
				policy.All), Tier: tier, Algorithm: algorithm()})
			if tier == "gold" || tier == "silver" {
				r.Algorithm = policy.TokenBucket
			}
			if rng.IntN(3) == 0 {
				r.Priority = pick[policy.Priority](rng, "critical", "high", "normal", "low")
			}
			if rng.IntN(4) == 0 {
				r.Penalty = "6 in 10s for 5s with addresses"
			}
			if r.Mode == policy.Enforce && r.EnforcePercent == 0 && rng.IntN(2) == 0 { // mostly something is denied
				r.Burst = 0
			}
			add(r)
		}
	}
	if rng.IntN(2) == 0 {
		add(policy.Rule{Endpoint: policy.Default, Limit: 1 + rng.Int64N(3), Per: placesKept,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)})
	}
	if rng.IntN(2) == 0 {
		add(policy.Rule{Endpoint: pick(rng, policy.All, policy.Default, "GET /a"), Limit: 10 + rng.Int64N(20),
			Per: placesKept, Priority: "high:20,low:10",
			Subject: policy.SubjectEndpoint.Counting(policy.CountsUnderWay)})
	}
	if w.requests = rng.IntN(2) == 0; w.requests {
		add(limit(policy.Rule{Endpoint: policy.Default, Algorithm: algorithm(),
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)}))
	}
	add(policy.Rule{Endpoint: policy.Default, Limit: 1000, Project: "umbrella", Subject: policy.SubjectSite})
	w.doc = policy.Document{Rules: rules, Projects: map[string]string{"acme": pick(rng, "", "silver", "gold")}}
}

// load puts the rules in force, some of them changed.
func (w *company) load() {
	for i := range w.doc.Rules {
		r := &w.doc.Rules[i]
		if _, what := r.Subject.Counts(); what == policy.CountsUnderWay || w.rng.IntN(4) > 0 {
			continue
		}
		switch w.rng.IntN(4) {
		case 3:
			if terms, _ := r.Priority.Terms(); w.relimits && r.Limit < 1000 && (terms == nil || terms.Shares == nil) {
				r.Limit = 1 + w.rng.Int64N(20)
			}
		case 0:
			r.Mode, r.EnforcePercent = pick(w.rng, policy.Enforce, policy.Enforce, policy.Shadow), 0
		case 1:
			r.CountWhen = pick[policy.Answers](w.rng, "", "401,404")
		case 2:
			if terms, _ := r.Priority.Terms(); terms == nil || terms.Shares == nil {
				r.Priority = pick[policy.Priority](w.rng, "", "high", "low")
			}
		}
	}
	w.changed = time.Now()
	w.doc.Projects["acme"] = pick(w.rng, "", "silver", "gold")
	if w.doc.Projects["acme"] == "" {
		delete(w.doc.Projects, "acme")
	}
	w.agents.tier, w.blocked = pick(w.rng, "", "silver", "gold"), pick(w.rng, "", "bot", "crawler")
	doc := w.doc
	if doc.Rules = slices.Clone(doc.Rules); w.blocked != "" {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.All, Mode: policy.Block,
			Only: "signed_agent:" + w.blocked})
	}
	if w.rng.IntN(3) == 0 {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: "GET /a", Mode: policy.Allow, Only: "signed_agent:bot"})
	}
	for i := range w.doc.Rules { // a rule for a while, in the place of another
		if r := doc.Rules[i]; w.operated && w.rng.IntN(8) == 0 && r.Limit < 1000 && r.Algorithm == policy.TokenBucket {
			r.Limit, r.Burst, r.Priority, r.Penalty = 1+w.rng.Int64N(20), 0, "", ""
			r.Expires = time.Now().Add(time.Second * time.Duration(1+w.rng.IntN(10)))
			doc.Rules = append(doc.Rules, r)
		}
	}
	if w.operated && w.rng.IntN(4) == 0 {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: "GET /b", Mode: policy.Block, Only: "api_key:ann",
			Expires: time.Now().Add(3 * time.Second)})
	}
	var by policy.ClassesBy
	class := func() policy.Class { return policy.Critical + policy.Class(w.rng.IntN(int(policy.Low))) }
	if w.rng.IntN(2) == 0 {
		by.Endpoints = map[endpoint.ID]policy.Class{endpoint.ID(1 + w.rng.IntN(w.Table.Len())): class()}
	}
	if w.rng.IntN(2) == 0 {
		by.Tiers = map[string]policy.Class{"silver": class(), "gold": class(), "suspect": class()}
	}
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: w.Table, Previous: w.rules.Load(),
		Now: time.Now().Add(-time.Duration(w.back.Load())), ClassesBy: by})
	if err := problems.Err(); err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
	w.rules.Store(set)
}

func (w *company) request() headgate.Request {
	rng := w.rng
	r := headgate.Request{Method: "GET", Target: pick(rng, "/a", "/a", "/b", "/d/1", "/x/../d/2"),
		Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(2))}), Header: http.Header{}}
	if rng.IntN(5) == 0 {
		r.Method, r.Target = "POST", "/c"
	}
	header := r.Header.(http.Header)
	if n := rng.IntN(5); n < 3 {
		header.Set("X-Api-Key", w.keys[n])
		if rng.IntN(3) == 0 {
			header.Set("Authorization", "Bearer "+w.keys[rng.IntN(3)])
		}
	}
	if rng.IntN(4) == 0 {
		header.Set("Signature-Input", pick(rng, "bot", "crawler", "bot crawler", "!bot", "!crawler bot",
			"flood", "bot flood"))
	}
	if rng.IntN(20) == 0 {
		header.Set("X-Api-Key", "hg_made_up")
	}
	r.Identifier, r.Unparsable = pick(rng, "", "ann@example.org", "bob@example.org"), rng.IntN(10) == 0
	if rng.IntN(3) == 0 {
		header.Set(slot.FieldPending, fmt.Sprint(rng.IntN(3)))
	}
	r.Cost = pick[int64](rng, 0, 0, 1, 1, 2, 5, 13)
	r.Parts = pick[int64](rng, 0, 0, 0, 3)
	r.MaxWait = pick[time.Duration](rng, 0, 0, -1, time.Second)
	r.UnderWay = rng.IntN(12) == 0
	r.Class = pick(rng, policy.Unclassed, policy.Unclassed, policy.Unclassed, policy.High, policy.Low)
	return r
}
