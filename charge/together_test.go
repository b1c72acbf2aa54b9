package charge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/slot"
)

// Whatever rules say, alone or together, some things hold. Here all that they can say is drawn at random, with callers,
// clocks and corrections, and a ledger before a real store holds it to them.

// placesKept is for how long places among the requests under way are kept here, which no other limit counts over.
const placesKept = 30 * time.Second

// ledger is a store that notes what is charged to which bucket.
type ledger struct {
	*memory.Store
	last    map[key.Key]bucket.Take // as each bucket was named last
	entries map[key.Key][]entry
	moved   map[key.Key]bool // its project moved to a tier with another limit
	actual  int64            // tokens that the request came to which is being settled
}

// entry is what a bucket was charged, net of what came back since.
type entry struct {
	at, as  int64 // when it counts, and when whoever charged it says that it was
	units   int64
	room    int64 // what the bucket may hold with it at most; 0 for a correction, which is not bounded
	unit    int64
	refills bool // it fills the bucket
}

func (l *ledger) note(takes []bucket.Take) {
	for i := range takes {
		if was, known := l.last[takes[i].Key]; known && was.Shape != takes[i].Shape {
			l.moved[takes[i].Key] = true
		}
		t := takes[i]
		for past := &t.Before; *past != nil; past = &(*past).Before { // which is memory of the next request
			own := **past
			*past = &own
		}
		l.last[t.Key] = t
	}
}

func (l *ledger) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	l.note(takes)
	return l.Store.Peek(ctx, now, takes, outs)
}

func (l *ledger) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	l.note(takes)
	allowed, err := l.Store.TryConsume(ctx, now, takes, outs)
	for i := range takes {
		t := &takes[i]
		if units, _ := t.Shape.Units(t.Cost); allowed && outs[i].Allowed && units > 0 {
			met := t.Met()
			l.add(t.Key, entry{at: now + int64(outs[i].Later), units: units, room: met.Capacity, unit: t.Shape.Unit})
		}
	}
	return allowed, err
}

// add keeps entries in order: a clock that was set back counts as the time it was at.
func (l *ledger) add(k key.Key, e entry) {
	e.as = e.at
	if n := len(l.entries[k]); n > 0 && l.last[k].Shape.Algorithm.Drains() {
		e.at = max(e.at, l.entries[k][n-1].at)
	}
	l.entries[k] = append(l.entries[k], e)
}

func (l *ledger) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	err := l.Store.Correct(ctx, now, changes, moved)
	for i := range changes {
		switch c := &changes[i]; {
		case c.Units > 0:
			l.add(c.Key, entry{at: now, units: moved[i]})
		case c.Units == bucket.Fill:
			l.add(c.Key, entry{at: now, refills: true})
		case c.Charged == 0:
			l.add(c.Key, entry{at: now, units: moved[i]})
		case moved[i] < 0:
			l.serve(c.Key, c.Charged, l.actual)
		}
	}
	return err
}

func (l *ledger) Refund(ctx context.Context, now, charged int64, takes []bucket.Take) error {
	for i := range takes {
		l.serve(takes[i].Key, charged, 0)
	}
	return l.Store.Refund(ctx, now, charged, takes)
}

// serve notes that of what a bucket was charged at a time so many tokens were used.
func (l *ledger) serve(k key.Key, charged, tokens int64) {
	for i := range l.entries[k] {
		if e := &l.entries[k][i]; e.as == charged && e.room > 0 {
			e.units = min(e.units, tokens*e.unit)
		}
	}
}

// exceeded says of a bucket that it was charged more than it holds, "" if it was not: by the full rate, whatever part
// of it was in force.
func (l *ledger) exceeded(k key.Key) string {
	sh, all := l.last[k].Shape, l.entries[k]
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	switch {
	case l.moved[k]:
	case sh.Algorithm == rate.SlidingLog && sh.Tick < int64(placesKept): // and no places among requests under way
		for i, from := 0, 0; i < len(all); i++ {
			sum := int64(0)
			for ; all[i].at-all[from].at > sh.Tick; from++ {
			}
			for _, e := range all[from : i+1] {
				if sum += e.units; e.refills {
					sum = 0
				}
			}
			if all[i].room > 0 && sum > sh.Capacity {
				return fmt.Sprintf("%d of %d in a window", sum, sh.Capacity)
			}
		}
	case sh.Algorithm.Drains():
		debt, last := int64(0), int64(0)
		for _, e := range all {
			debt = max(0, debt-sh.Drained(time.Duration(min(e.at-last, int64(time.Hour))))-1)
			if last, debt = e.at, max(0, debt+e.units); e.refills {
				debt = 0
			}
			if e.room > 0 && e.units > 0 && debt > e.room {
				return fmt.Sprintf("%d units of %d at %d", debt, e.room, e.at)
			}
		}
	}
	return ""
}

// standing is how all buckets stand.
func (l *ledger) standing(now int64) map[key.Key]bucket.Outcome {
	all := map[key.Key]bucket.Outcome{}
	for k, t := range l.last {
		t.Cost, t.Kept, t.Shadow, t.MaxWait = 0, 0, false, 0
		var outs [1]bucket.Outcome
		_, _ = l.Store.Peek(context.Background(), now, []bucket.Take{t}, outs[:])
		all[k] = outs[0]
	}
	return all
}

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
	slots    bool // callers have times of their own, which are told as of when they were last refused
	requests bool // a rule counts requests, and one that is settled was one, whatever it cost
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
		moved: map[key.Key]bool{}}
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
	who, err := identity.New(identity.Options{Keys: w.ring, Digester: digester,
		KeySources: identity.KeySources{Header: "X-Api-Key", Bearer: true, Query: "api_key"}})
	if err != nil {
		t.Fatal(err)
	}
	scores := anomaly.New(512)
	settings := &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights,
		Tiers: []anomaly.Tier{{From: 1 + uint8(rng.IntN(40)), Name: pick(rng, "suspect", "silver"), Addresses: true}}}
	scores.Use(settings)
	w.Bench = trial.New(t, togetherTemplates, nil, func(o *headgate.Options) {
		o.Policies, o.Identities, o.Buckets, o.Scores, o.Adaptive = w.rules, who, w.ledger, scores, w.adaptive
		o.Penalties, o.Names = penalty.New(512), nil
		o.NamedTiers = func() bool { return true }
		o.Now = func() time.Time { return time.Now().Add(-time.Duration(w.back.Load())) }
		if w.slots = rng.IntN(2) == 0; w.slots {
			o.Slots = slot.New(slot.Options{Reserve: rng.IntN(2) == 0})
		}
	})
	w.adaptive.Use(map[string]adaptive.Settings{
		"GET /a":  {SLO: 100 * time.Millisecond, Floor: adaptive.Whole / 8},
		"POST /c": {SLO: 100 * time.Millisecond, Floor: adaptive.Whole / 2},
	}, time.Now().UnixNano())
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
				policy.SubjectProject, policy.SubjectEndpoint)
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
		add(policy.Rule{Endpoint: policy.All, Limit: 100, Per: placesKept, Priority: "high:20,low:10",
			Subject: policy.SubjectEndpoint.Counting(policy.CountsUnderWay)})
	}
	if w.requests = rng.IntN(2) == 0; w.requests {
		add(limit(policy.Rule{Endpoint: policy.Default, Algorithm: algorithm(),
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)}))
	}
	add(policy.Rule{Endpoint: policy.Default, Limit: 1000, Project: "umbrella", Subject: policy.SubjectSite})
	w.doc = policy.Document{Rules: rules, Projects: map[string]string{"acme": pick(rng, "", "silver", "gold")}}
}

// load puts the rules in force; some are changed in what does not change their limits.
func (w *company) load() {
	for i := range w.doc.Rules {
		r := &w.doc.Rules[i]
		if _, what := r.Subject.Counts(); what == policy.CountsUnderWay || w.rng.IntN(4) > 0 {
			continue
		}
		switch w.rng.IntN(3) {
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
	set, problems := policy.Compile(w.doc, policy.CompileOptions{Endpoints: w.Table, Previous: w.rules.Load(),
		Now: time.Now().Add(-time.Duration(w.back.Load()))})
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
	if rng.IntN(3) == 0 {
		header.Set(slot.FieldPending, fmt.Sprint(rng.IntN(3)))
	}
	r.Cost = pick[int64](rng, 0, 0, 1, 1, 2, 5, 13)
	r.Parts = pick[int64](rng, 0, 0, 0, 3)
	r.MaxWait = pick[time.Duration](rng, 0, 0, -1, time.Second)
	r.UnderWay = rng.IntN(12) == 0
	return r
}

func (w *company) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, step %d: %s", w.seed, w.step, fmt.Sprintf(format, args...))
}

func (w *company) now() int64 { return time.Now().Add(-time.Duration(w.back.Load())).UnixNano() }

// same fails where a bucket stands otherwise than before; spare is by how much longer it may take to be full.
func (w *company) same(what string, before map[key.Key]bucket.Outcome, spare time.Duration) {
	w.t.Helper()
	for k, is := range w.standing(w.now()) {
		was, known := before[k]
		if !known {
			was.Allowed, was.Remaining = true, w.last[k].Shape.Burst()
			if !w.last[k].Shape.Algorithm.Drains() {
				was.ResetAfter, is.ResetAfter = 0, 0
			}
		}
		was.Later, is.Later = 0, 0
		if spare > 0 && is.ResetAfter >= was.ResetAfter && is.ResetAfter <= was.ResetAfter+spare &&
			is.Remaining <= was.Remaining && w.last[k].Shape.Algorithm.Drains() {
			continue
		}
		if is != was {
			w.fail("%s: a bucket %+v\nstands at %+v,\nnot at %+v", what, w.last[k], is, was)
		}
	}
}

// ask asks for a request, by Explain first, and then by Check or by Reserve.
func (w *company) ask() {
	r, ctx := w.request(), w.t.Context()
	x := w.Explain(ctx, r)
	before := w.standing(w.now())
	w.same("Explain", before, 0)
	var d headgate.Decision
	var made headgate.Reservation
	reserves := w.rng.IntN(2) == 0
	if reserves {
		if r.Cost == 0 && w.rng.IntN(2) == 0 {
			r.Cost = 1
			x = w.Explain(ctx, r)
		}
		made, d = w.Reserve(ctx, r, pick[time.Duration](w.rng, 0, headgate.UntilSettled))
	} else {
		d = w.Check(ctx, r)
	}
	w.seen[d.Reason.String()]++
	rule := ""
	if v, ok := d.Binding(); ok {
		rule = d.Policies().Rule(v.Rule).Title()
	}
	begins := d.Reason == headgate.InPenalty && x.Verdict.Reason == headgate.OverLimit.String()
	if x.Verdict.Allowed != d.Allowed || x.Cost != d.Cost || !begins && (x.Verdict.Reason != d.Reason.String() ||
		x.Verdict.Wait != d.Wait || !w.slots && (x.Verdict.RetryAfter != d.RetryAfter ||
		!d.Allowed && x.Verdict.Rule != rule)) {
		w.fail("Explain = %+v, cost %d, and then %v by %q, %v, %v, cost %d, of %+v", x.Verdict, x.Cost, d.Reason, rule,
			d.RetryAfter, d.Wait, d.Cost, r)
	}
	if d.Class != policy.Unclassed {
		w.seen["class"]++
	}
	for _, v := range d.Verdicts() {
		if v.Lowered > 0 {
			w.seen["lowered"]++
		}
		if v.Scored {
			w.seen["scored"]++
		}
		if v.Earlier {
			w.seen["guarded"]++
		}
	}
	w.Answered(&d, pick(w.rng, 200, 404, 404, 500))
	if exchange := w.Exchange(&d); !exchange.Zero() {
		exchange.Sent()
		exchange.Answered(w.rng.IntN(4) == 0)
	}
	switch {
	case !d.Allowed:
		w.same("a denial", before, 0)
	case made == (headgate.Reservation{}):
	case w.rng.IntN(2) == 0:
		w.held = append(w.held, holding{made, r})
	default:
		w.settle(holding{made, r}, headgate.Answer{})
		if !w.requests && w.settled() {
			w.same("what was never served", before, w.spare())
		}
	}
	if reserves && d.Allowed && made == (headgate.Reservation{}) && len(d.Verdicts()) > 0 &&
		d.Reason != headgate.NoRule {
		w.fail("reserved nothing: %v", d.Reason)
	}
}

// settled reports whether the last change of the rules is over: who comes from before it may have had another limit.
func (w *company) settled() bool { return int64(time.Since(w.changed)) > w.back.Load() }

// spare is what may be lost: where a rate is lowered to an eighth at least, a nanosecond of the full one by
// rounding; and what drains while others are ahead by their clock.
func (w *company) spare() time.Duration { return 8 + 8*time.Duration(w.back.Load()) }

// abandon has a request wait whose caller has left.
func (w *company) abandon() {
	r := w.request()
	w.Explain(w.t.Context(), r)
	before := w.standing(w.now())
	w.actual = 0
	ctx, leave := context.WithCancel(w.t.Context())
	leave()
	var d headgate.Decision
	var err error
	waits := w.rng.IntN(2) == 0
	if waits {
		d, err = w.Wait(ctx, r)
	} else {
		_, d, err = w.ReserveWait(ctx, r, 0)
	}
	if errors.Is(err, context.Canceled) {
		w.seen["abandoned"]++
	}
	if !d.Allowed && !waits && w.settled() {
		w.same("an abandoned reservation", before, w.spare())
	} else if !d.Allowed && waits && time.Since(w.changed) > 10*time.Second { // Refund gives nothing back for a while
		w.same("an abandoned request", before, w.spare())
	}
}

func (w *company) settle(h holding, a headgate.Answer) {
	w.t.Helper()
	if w.actual = min(a.Actual, h.made.Cost); a.Forgiven || a.Status != 0 {
		w.actual = 0
	}
	if _, err := w.SettleAnswer(w.t.Context(), h.made.ID, a); err != nil {
		w.fail("%v", err)
	}
}

// settleOne settles one of the reservations that are held.
func (w *company) settleOne() {
	if len(w.held) == 0 {
		return
	}
	i := w.rng.IntN(len(w.held))
	h := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	w.settle(h, headgate.Answer{Actual: pick(w.rng, 0, h.made.Cost/2, h.made.Cost, 2*h.made.Cost),
		Status: pick(w.rng, 0, 0, 200, 404), Forgiven: w.rng.IntN(6) == 0})
}

// lower has the API be slow for a while, or well.
func (w *company) lower() {
	took := pick(w.rng, time.Millisecond, 500*time.Millisecond)
	for range 3 {
		for _, name := range []string{"GET /a", "POST /c"} {
			at := w.adaptive.Named(name)
			for n := range uint64(60) {
				at.Sent(w.now(), n)
				at.Answered(w.now(), n, took, false)
			}
			if took == time.Millisecond {
				at.Refused()
			}
		}
		time.Sleep(1100 * time.Millisecond)
	}
}

func (w *company) run(steps int) {
	for w.step = range steps {
		time.Sleep(time.Nanosecond) // so that no two requests come at one time, and what comes back is one's
		back := int64(0)
		if w.rng.IntN(8) == 0 {
			back = w.rng.Int64N(int64(pick(w.rng, time.Microsecond, time.Second)))
		}
		w.back.Store(back)
		switch n := w.rng.IntN(200); {
		case n < 130:
			w.ask()
		case n < 150:
			w.settleOne()
		case n < 155:
			w.abandon()
		case n < 157:
			w.load()
		case n < 159:
			w.lower()
		case n < 160:
			w.records[2].Key.Tier = pick(w.rng, "", "silver", "gold")
			if err := w.ring.Replace(w.records); err != nil {
				w.fail("%v", err)
			}
		default:
			most := pick(w.rng, time.Microsecond, 100*time.Millisecond, time.Second)
			time.Sleep(time.Duration(w.rng.Int64N(int64(most))))
		}
	}
	for k := range w.entries {
		if what := w.exceeded(k); what != "" {
			w.fail("a bucket of %+v held %s", w.last[k], what)
		}
	}
	for _, h := range w.held {
		w.settle(h, headgate.Answer{})
	}
}

// TestEverythingTogether: whatever rules say in one another's company, no bucket is charged more than its burst and its
// rate; what was never served is given back, to a nanosecond; Explain says what Check does then, and changes nothing;
// and neither does a denial.
func TestEverythingTogether(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(race.Fewer(40)) {
		synctest.Test(t, func(t *testing.T) {
			w := newCompany(t, seed)
			w.run(600)
			for what, n := range w.seen {
				seen[what] += n
			}
			time.Sleep(time.Hour) // what renews places ends
		})
	}
	for _, what := range []string{"abandoned", "class", "guarded", "in_penalty", "lowered", "over_limit", "scored"} {
		if seen[what] < 10 && !race.Enabled {
			t.Errorf("%d %s, want more", seen[what], what)
		}
	}
}
