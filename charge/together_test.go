package charge_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

var (
	worlds     = flag.Int("worlds", 40, "how many worlds TestEverythingTogether draws")
	firstWorld = flag.Uint64("first", 0, "the seed of the first of them")
)

// Whatever rules say, alone or together, some things hold. Here all that they can say is drawn at random, with callers,
// clocks and corrections, and a ledger before a real store holds it to them.

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
		if spare > 0 && is.ResetAfter >= was.ResetAfter && (is.ResetAfter <= was.ResetAfter+spare || w.windows[k]) &&
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
	if w.seen[d.Reason.String()]++; w.misled != "" {
		w.fail("%s", w.misled)
	}
	w.mu.Lock()
	beyond := w.beyond
	w.mu.Unlock()
	if beyond != "" {
		w.fail("%s", beyond)
	}
	rule := ""
	if v, ok := d.Binding(); ok {
		rule = d.Policies().Rule(v.Rule).Title()
	}
	// Who comes before the time that it was told is refused for that bucket, and no other is asked.
	early := w.slots && d.Reason == headgate.OverLimit && x.Verdict.Reason == headgate.CostAboveBurst.String()
	if x.Verdict.Allowed != d.Allowed || x.Cost != d.Cost || x.Class != d.Class.String() || !early &&
		(x.Verdict.Reason != d.Reason.String() || x.Verdict.Wait != d.Wait || !w.slots &&
			(x.Verdict.RetryAfter != d.RetryAfter || !d.Allowed && x.Verdict.Rule != rule)) {
		w.fail("Explain = %+v, class %q, cost %d, and then %v by %q, %v, %v, class %v, cost %d, of %+v", x.Verdict,
			x.Class, x.Cost, d.Reason, rule, d.RetryAfter, d.Wait, d.Class, d.Cost, r)
	}
	refused := d.Reason == headgate.Blocked || d.Reason == headgate.CredentialUnverified
	if refused != w.blocks(&r) && (!refused || !w.operated && !w.refuses) {
		w.fail("%v, with agent %q blocked, of %+v, %v", d.Reason, w.blocked, r, r.Header)
	}
	if d.Class != policy.Unclassed {
		w.seen["class"]++
	}
	for _, v := range d.Verdicts() {
		if v.Lowered > 0 {
			w.seen["lowered"]++
			if d.Policies().Rule(v.Rule).Algorithm == policy.Concurrency {
				w.seen["fewer"]++
			}
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
	case w.costs(&d):
	case !d.Allowed:
		w.same("a denial", before, 0)
	case made == (headgate.Reservation{}):
	case w.rng.IntN(2) == 0:
		w.held = append(w.held, holding{made, r})
	default:
		w.settle(holding{made, r}, headgate.Answer{})
		if !w.requests && w.settled() && w.restores(&d) {
			w.same("what was never served", before, w.spare())
		}
	}
	if reserves && d.Allowed && made == (headgate.Reservation{}) && len(d.Verdicts()) > 0 &&
		d.Reason != headgate.NoRule {
		w.fail("reserved nothing: %v", d.Reason)
	}
}

// costs reports whether a request was refused for a credential, which costs what it costs otherwise.
func (w *company) costs(d *headgate.Decision) bool {
	return d.Reason == headgate.BadCredential || d.Reason == headgate.CredentialUnverified && w.refuses
}

// settled reports whether the last change of the rules is over: who comes from before it may have had another limit.
func (w *company) settled() bool { return int64(time.Since(w.changed)) > w.back.Load() }

// restores reports whether all is given back of what a decision charged that was never served. What a limit changed of
// that the caller's project had before it moved to another tier is left alone.
func (w *company) restores(d *headgate.Decision) bool {
	if w.operated {
		return false
	}
	return !w.relimits || !slices.ContainsFunc(d.Verdicts(), func(v headgate.Verdict) bool {
		return v.Earlier
	})
}

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
	if w.rng.IntN(2) == 0 {
		d, err = w.Wait(ctx, r)
	} else {
		_, d, err = w.ReserveWait(ctx, r, 0)
	}
	if errors.Is(err, context.Canceled) {
		w.seen["abandoned"]++
	}
	if w.restores(&d) && !w.costs(&d) && !d.Allowed && w.settled() {
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
				at.Refused(true, true)
			}
		}
		time.Sleep(1100 * time.Millisecond)
	}
}

// operate fills the bucket of a rule, or gives it tokens, once or for a while.
func (w *company) operate() {
	subject := pick(w.rng, policy.SubjectPrincipal, policy.SubjectIP, policy.SubjectProject, policy.SubjectIdentifier)
	q := inspect.Query{Endpoint: pick(w.rng, "GET /a", "GET /b", "POST /c", policy.All), Subject: &subject,
		Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(w.rng.IntN(2))}), Header: http.Header{}}
	if n := w.rng.IntN(4); n < 3 {
		q.Header.(http.Header).Set("X-Api-Key", w.keys[n])
	}
	q.Identifier = "ann@example.org"
	var err error
	switch ctx, amount := w.t.Context(), 1+w.rng.Int64N(5); w.rng.IntN(3) {
	case 0:
		_, err = w.Reset(ctx, q, nil)
	case 1:
		_, _, err = w.Grant(ctx, q, amount, time.Time{}, nil)
	default:
		_, _, err = w.Grant(ctx, q, amount, time.Now().Add(time.Second+time.Duration(w.rng.Int64N(5e9))), nil)
	}
	if err == nil {
		w.seen["operated"]++
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
		case n < 163 && w.operated:
			w.operate()
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
	w.seen["told"] += w.told
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
// and neither does a denial, but by a bad credential. Who was told to come again finds room then, and no agent gets
// past its block. No more requests are under way than may be, and each gives back its own place.
func TestEverythingTogether(t *testing.T) {
	seen := map[string]int{}
	for seed := *firstWorld; seed < *firstWorld+uint64(race.Fewer(*worlds)); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newCompany(t, seed)
			w.run(600)
			for what, n := range w.seen {
				seen[what] += n
			}
			time.Sleep(time.Hour) // what renews places ends
		})
	}
	for _, what := range []string{"abandoned", "bad_credential", "blocked", "class", "exempt", "fewer", "guarded",
		"in_penalty", "lowered", "operated", "over_limit", "scored", "told"} {
		if seen[what] < 10 && *worlds >= 40 && !race.Enabled {
			t.Errorf("%d %s, want more", seen[what], what)
		}
	}
}
