package report_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/rate"
)

func shape(t testing.TB, perSecond, burst int64) rate.Shape {
	t.Helper()
	sh, err := rate.Compile(rate.Limit{Tokens: perSecond, Per: time.Second, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// line runs a story: at a time a replica takes, sends, hears or misses, and so much is pending afterwards.
func TestAccount(t *testing.T) {
	const ms = int64(time.Millisecond)
	sh := shape(t, 100, 100) // a token each 10 ms
	ledger := new(report.Ledger)
	a := report.NewAccount(1)
	var sent report.Report
	take := func(cost int64, want report.Verdict) func(int64) bool {
		return func(now int64) bool { return a.Take(now, &sh, 10, cost) == want }
	}
	send := func(want int64) func(int64) bool {
		return func(int64) (ok bool) { sent, ok = a.Report(); return ok && sent.Tokens == want }
	}
	hear := func(want bool) func(int64) bool {
		return func(now int64) bool { return a.Answer(now, &sh, ledger.Charge(now, sh, 7, sent)) == want }
	}
	others := func(tokens int64) func(int64) bool {
		return func(now int64) bool {
			ledger.Charge(now, sh, 8, report.Report{Seq: uint64(now) + 1, Tokens: tokens})
			return true
		}
	}
	for i, step := range []struct {
		at      int64
		what    string
		do      func(now int64) bool
		pending int64
	}{
		{0, "takes what it knows to be there", take(4, report.Admit), 4},
		{0, "takes no more than its headroom", take(7, report.Ask), 4},
		{0, "takes all of its headroom", take(6, report.Admit), 10},
		{0, "sends", send(10), 10},
		{0, "sends no second report meanwhile", func(int64) bool { _, ok := a.Report(); return !ok }, 10},
		{0, "has no headroom while nothing is answered", take(1, report.Ask), 10},
		{ms, "hears what is owed", hear(true), 0},
		{ms, "hears nothing twice", hear(false), 0},
		{ms, "knows of 10", func(now int64) bool {
			var o bucket.Outcome
			a.Describe(&o, now, &sh, 1, true)
			return o.Remaining == 90
		}, 0},
		{2 * ms, "takes again", take(3, report.Admit), 3},
		{2 * ms, "sends", send(3), 3},
		{7 * ms, "gets no answer", func(int64) bool { a.Failed(sent.Seq); return true }, 3},
		{7 * ms, "takes meanwhile", take(2, report.Admit), 5},
		{7 * ms, "sends the same again", send(3), 5},
		{8 * ms, "others take nearly all", others(85), 5},
		{8 * ms, "hears of both", hear(true), 2},
		{8 * ms, "is told of 98, and has 2 more", take(1, report.Deny), 2},
		{8 * ms, "sends the rest", send(2), 2},
		{8 * ms, "hears", hear(true), 0},
		{20 * ms, "waits for what drains", take(1, report.Admit), 1},
		{20 * ms, "gives it back", func(now int64) bool { return a.Return(now, &sh, 1, now) }, 0},
		{20 * ms, "has nothing to tell", func(int64) bool { return !a.Due() }, 0},
		{20 * ms, "may be forgotten", func(now int64) bool { return a.Idle(now, &sh) }, 0},
		{20 * ms, "heard of it at 8 ms", func(int64) bool { return a.Stale(8*ms) && !a.Stale(8*ms-1) }, 0},
		{20 * ms, "looks", func(int64) bool { a.Look(); return a.Due() }, 0},
		{20 * ms, "others owe more than there is", others(60), 0},
		{20 * ms, "sends nothing but a question", send(0), 0},
		{20 * ms, "hears of a debt beyond the burst", hear(true), 0},
		{20 * ms, "may not be forgotten", func(now int64) bool { return !a.Idle(now, &sh) }, 0},
		{600 * ms, "denies until that has drained", take(1, report.Deny), 0},
		{640 * ms, "and not longer", take(1, report.Admit), 1},
		{640 * ms, "never has more than a burst", take(101, report.Deny), 1},
		{640 * ms, "sends", send(1), 1},
		{640 * ms, "cannot give back what was told", func(now int64) bool { return !a.Return(now, &sh, 1, now) }, 1},
	} {
		if !step.do(step.at) {
			t.Errorf("step %d, at %v: not so: %s", i, time.Duration(step.at), step.what)
		}
		if got := a.Pending(); got != step.pending {
			t.Errorf("step %d, at %v, %s: %d pending, want %d", i, time.Duration(step.at), step.what, got, step.pending)
		}
	}
}

// A change of the limit keeps what is owed, in tokens.
func TestAccountThroughAChangeOfLimit(t *testing.T) {
	from, to := shape(t, 100, 100), shape(t, 7, 50)
	a := report.NewAccount(1)
	a.Look()
	r, _ := a.Report()
	a.Answer(1, &from, report.Answer{Seq: r.Seq, Debt: 80 * from.Unit})
	a.Change(1, &from, &to)
	if v := a.Take(1, &to, 10, 1); v != report.Deny {
		t.Errorf("80 owed of 50: %v, want a denial", v)
	}
	if v := a.Take(1+int64(5*time.Second), &to, 10, 4); v != report.Admit {
		t.Errorf("45 owed of 50: 4 get %v, want them", v)
	}
}

// Tokens that a report has told of stay charged, though others were admitted since: were those given
// back in their place, they would be admitted and never charged.
func TestNothingIsGivenBackInThePlaceOfWhatWasTold(t *testing.T) {
	const ms = int64(time.Millisecond)
	sh := shape(t, 100, 10)
	ledger := new(report.Ledger)
	a := report.NewAccount(1)
	tell := func(now int64) {
		if r, ok := a.Report(); ok {
			a.Answer(now, &sh, ledger.Charge(now, sh, 7, r))
		}
	}
	admitted := int64(0) // and not denied elsewhere
	take := func(now, cost int64) bool { return a.Take(now, &sh, 10, cost) == report.Admit }
	take(0, 5) // is denied elsewhere, 61 ms later
	tell(0)
	if take(60*ms, 5) { // what was charged has drained by then
		admitted += 5
	}
	if a.Return(61*ms, &sh, 5, 0) {
		t.Error("what a report has told of is given back")
	}
	for range 10 {
		tell(61 * ms)
		if take(61*ms, 1) {
			admitted++
		}
	}
	if admitted > 10 {
		t.Errorf("%d tokens are admitted within a millisecond, want the burst of 10", admitted)
	}
	if !take(200*ms, 3) || !a.Return(201*ms, &sh, 3, 200*ms) {
		t.Error("what no report has told of is not given back")
	}
}
