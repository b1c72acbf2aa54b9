package report

import (
	"math"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Account is what one replica knows of one shared bucket. It begins as NewAccount makes it, knowing
// of no debt. Times are nanoseconds of the replica's own monotonic clock, in any epoch. Who has an
// Account guards it.
//
// Whoever wants tokens calls Take. After that Report tells what is to be sent to the authority;
// what comes back goes to Answer, and what gets lost to Failed.
type Account struct {
	// state is what the last answer said, as of when it came, and what was admitted since. That was
	// some time after the authority said it, so less has drained here than there: all that a
	// replica underrates of the debt is what others have charged since.
	state  bucket.State
	slowed int64 // up to when it drained at the rate in force, and at the full one since

	unsent int64 // tokens that were admitted and are in no report yet
	latest int64 // when tokens were admitted last
	told   int64 // when the last of those were that a report has told of

	// The report that was sent last. Until it is answered the same one is sent again: the authority
	// knows it by its number.
	seq    uint64
	out    int64 // tokens in it, 0 once it was answered
	open   bool  // it was not answered
	flying bool  // nor is it lost yet

	heard int64 // when the last answer came
	look  bool  // an answer is wanted, though there may be nothing to report
}

// NewAccount returns the account that a replica makes as its nth. The reports of one replica about
// one bucket must never share a number, also if an account is forgotten and made again, or the
// authority would take the new one for one that it has charged.
func NewAccount(nth uint32) Account {
	return Account{seq: uint64(nth) << 32, told: math.MinInt64, latest: math.MinInt64}
}

// Verdict is what Take says.
type Verdict uint8

const (
	Deny  Verdict = iota // the bucket owes too much
	Admit                // the tokens are taken
	// there may be room, but too much is unanswered: the authority has to be asked for these tokens
	// alone
	Ask
)

// Take takes cost tokens, if the bucket has room for them as far as is known, and no more than
// headroom would be unanswered then.
func (a *Account) Take(now int64, sh *rate.Shape, headroom, cost int64) Verdict {
	units, ok := rate.Units(sh, cost)
	if !ok {
		return Deny
	}
	after, ok := a.state.Try(now, sh, units)
	switch {
	case !ok:
		return Deny
	case cost > headroom-a.Pending():
		return Ask
	}
	a.state = after
	a.unsent += cost
	a.latest = now
	return Admit
}

// Slow has what is owed drain until now at a rate that was lowered of late: what did not drain is taken as if it had
// been charged so much later.
func (a *Account) Slow(now int64, l *rate.Lowered) {
	if from := max(a.slowed, a.state.Stamp); l != nil && from < now {
		a.state.Stamp += now - from - l.Elapsed(from, now)
	}
	a.slowed = now
}

// Return takes tokens back that Take gave at a time, for a request that another bucket denied. It
// reports false if a report has told of them, or may have: then they stay charged, and what was
// admitted since is not given back in their place.
func (a *Account) Return(now int64, sh *rate.Shape, tokens, taken int64) bool {
	units, ok := rate.Units(sh, tokens)
	if !ok || tokens > a.unsent || taken <= a.told {
		return false
	}
	a.unsent -= tokens
	a.state = a.state.Refund(now, *sh, units, taken)
	return true
}

// Pending is how many tokens were admitted that no answer tells of yet.
func (a *Account) Pending() int64 { return a.unsent + a.out }

// Urgent reports whether half of the headroom is used up by what is in no report yet.
func (a *Account) Urgent(headroom int64) bool { return 2*a.unsent >= headroom }

// Look has a next report made also if there is nothing to tell, for the sake of its answer.
func (a *Account) Look() { a.look = true }

// Stale reports whether no answer came later than since, nor is about to.
func (a *Account) Stale(since int64) bool { return !a.flying && a.heard <= since }

// Report is what to tell the authority: tokens that were admitted. Seq tells the reports of one
// account apart; one that was lost is sent again under its number, and the authority charges it
// only once.
type Report struct {
	Seq    uint64
	Tokens int64
}

// Due reports whether there is anything to report.
func (a *Account) Due() bool { return !a.flying && (a.open || a.unsent > 0 || a.look) }

// Report is what to report now, and takes it for sent. It is false if there is nothing.
func (a *Account) Report() (Report, bool) {
	if !a.Due() {
		return Report{}, false
	}
	if !a.open {
		a.seq++
		a.out, a.unsent, a.told = a.unsent, 0, a.latest
	}
	a.open, a.flying, a.look = true, true, false
	return Report{a.seq, a.out}, true
}

// Answer is what the authority says to a Report.
type Answer struct {
	Seq  uint64
	Debt int64 // what is owed with the tokens of the report, in units of the limit's shape, rounded up
}

// Answer notes an answer and reports false for one that is to no report that waits for one.
func (a *Account) Answer(now int64, sh *rate.Shape, got Answer) bool {
	if got.Seq != a.seq || !a.open {
		return false
	}
	a.open, a.flying, a.out, a.heard = false, false, 0, now
	most := sh.MaxDebt()
	a.state = bucket.State{Debt: min(got.Debt, most), Stamp: now}
	a.state.Debt += min(sh.UnitsSaturating(a.unsent), most-a.state.Debt)
	return true
}

// Failed notes that a report got no answer in time. Should the answer come after all, Answer takes it.
func (a *Account) Failed(seq uint64) {
	if seq == a.seq {
		a.flying = false
	}
}

// Change restates what is known for another limit. What is owed stays owed, in tokens, and is not cut.
func (a *Account) Change(now int64, from, to *rate.Shape) {
	a.state = bucket.State{
		Debt:  min(bucket.Rescale(owed(a.state, from, now), to.Unit, from.Unit, true), to.MaxDebt()),
		Stamp: now,
	}
}

// Describe writes into o how the bucket stands, as far as is known, after a take of cost tokens was allowed or not.
func (a *Account) Describe(o *bucket.Outcome, now int64, sh *rate.Shape, cost int64, allowed bool) {
	units, ok := rate.Units(sh, cost)
	if !ok {
		units = -1
	}
	a.state.Report(o, now, sh, units, allowed)
}

// Idle reports whether the account may be forgotten: everything is charged, and the bucket was not
// denying. A new one knows of no debt, and may admit a headroom; so may this one.
func (a *Account) Idle(now int64, sh *rate.Shape) bool {
	return !a.open && a.unsent == 0 && owed(a.state, sh, now) <= sh.Capacity
}

// owed is what a bucket owes at a time, in units, also beyond the capacity.
func owed(s bucket.State, sh *rate.Shape, now int64) int64 {
	wide := *sh
	wide.Capacity = sh.MaxDebt()
	return s.Convert(*sh, wide, now).Debt
}
