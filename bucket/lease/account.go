package lease

import (
	"math"
	"time"
)

// Terms are how leases are sized and renewed. A zero field stands for its default.
type Terms struct {
	// TTL is how long a batch may be used, from when it was asked for. Longer means fewer messages,
	// shorter a tighter bound and less that is lost. It must be several round trips: with fewer
	// than four, a batch is old before it is used. Default 100 ms.
	TTL time.Duration

	// Poll is how long a replica waits at least, and twice that at most, before it asks again for a
	// bucket that gave less than was wanted; up to eight times longer where so little is to be had
	// that a message brings hardly anything. Shorter finds new tokens sooner, and costs messages in
	// proportion for as long as the bucket is empty. Default 25 ms.
	Poll time.Duration
}

const (
	defaultTTL  = 100 * time.Millisecond
	defaultPoll = 25 * time.Millisecond

	// worthwhile is for how many requests a batch is asked for ahead of need, at least. A batch for
	// fewer is more often lost than used: where 64 replicas each hold a few tokens of a small
	// limit, up to half of the limit is never admitted.
	worthwhile = 4

	// plenty is how many times what is asked for ahead of need, along with what somebody waits for,
	// the bucket must have had left, and half of its burst besides. So many replicas may let all of
	// that expire before anybody misses it.
	plenty = 8

	// maxBatches bounds what an account holds. Should more come in than expire, the newest two are made one.
	maxBatches = 8

	// longest is how long an answer that gave too little is believed at most: who gives tokens back
	// elsewhere is heard of then.
	longest = int64(time.Second)
)

// Complete returns t with defaults in place of zeros.
func (t Terms) Complete() Terms {
	if t.TTL == 0 {
		t.TTL = defaultTTL
	}
	if t.Poll == 0 {
		t.Poll = defaultPoll
	}
	return t
}

// Account is what one replica holds of one shared bucket. It begins as NewAccount makes it, holding
// nothing. Times are nanoseconds of the replica's own monotonic clock, in any epoch, and Terms are
// complete. Who has an Account guards it.
//
// Whoever wants tokens calls Take. If that says Ask, they wait for the next answer and call Retake.
// After each of these calls Question tells whether something is to be sent to the authority; what
// comes back goes to Answer, and what gets lost to Failed.
type Account struct {
	batches [maxBatches]batch // the oldest first
	count   int
	held    int64 // tokens in batches
	lost    int64 // tokens that expired since Lost was called

	// The question that was sent last. Until it is answered, the same one is sent again: the
	// authority knows it by its number.
	seq    uint64
	want   int64
	need   int64
	sent   int64 // when it was sent first
	open   bool  // it was not answered
	flying bool  // nor is it lost yet

	waiting int64 // tokens that were asked for since
	least   int64 // the fewest of them that help somebody

	// The last answer.
	short bool  // gave less than was wanted
	again int64 // the time before which it is not asked again, if short
	ready int64 // the time at which there would be enough
	left  int64 // tokens that it left in the bucket
	burst int64 // tokens that the bucket holds when it is full
	full  int64 // the time at which the bucket would be full
	lull  uint8 // how often the wait before asking again was doubled

	// What was wanted in the window of one TTL that began at since, and in the one before it.
	since          int64
	wanted, before demand
}

// demand is how many requests came, and for how many tokens together.
type demand struct{ requests, tokens int64 }

// batch is worth having ahead of half of that demand.
func (d demand) batch() int64 {
	if d.requests/2 < worthwhile {
		return 0
	}
	return d.tokens / 2
}

type batch struct{ tokens, until int64 }

// NewAccount returns the account that a replica makes as its nth. The questions of one replica
// about one bucket must never share a number, also if an account is forgotten and made again, or
// the new one would be told what the old one was given.
func NewAccount(nth uint32) Account { return Account{seq: uint64(nth) << 32} }

// Verdict is what Take says.
type Verdict uint8

const (
	Deny  Verdict = iota // the bucket was empty a moment ago; RetryAfter says when to try again
	Admit                // the tokens are taken
	Ask                  // the tokens are not here, and may be with the authority
)

// Take takes cost tokens, 1 or more, out of what is held.
func (a *Account) Take(now int64, t Terms, cost int64) Verdict {
	a.notice(now, t, cost)
	return a.Retake(now, cost)
}

// Retake is Take for those who were told to ask, after an answer came.
func (a *Account) Retake(now int64, cost int64) Verdict {
	a.expire(now)
	switch {
	case a.spend(cost):
		return Admit
	case a.empty(now, cost):
		return Deny
	}
	if a.waiting == 0 || cost < a.least {
		a.least = cost
	}
	a.waiting = add(a.waiting, cost)
	return Ask
}

// Ready reports whether Take would say something else than Ask.
func (a *Account) Ready(now int64, cost int64) bool {
	a.expire(now)
	return cost <= a.held || a.empty(now, cost)
}

// empty reports whether the bucket was a moment ago, for a cost.
func (a *Account) empty(now, cost int64) bool { return a.short && now < a.again && cost > a.left }

// notice counts what is wanted, whether or not it can be had: that is what the next batch is sized by.
func (a *Account) notice(now int64, t Terms, cost int64) {
	switch age := now - a.since; {
	case age < 0 || age >= 2*int64(t.TTL):
		a.since, a.wanted, a.before = now, demand{}, demand{}
	case age >= int64(t.TTL):
		a.since, a.wanted, a.before = a.since+int64(t.TTL), demand{}, a.wanted
	}
	a.wanted.requests++
	a.wanted.tokens = add(a.wanted.tokens, cost)
}

// size is the batch that is worth having: what is wanted in half a TTL.
func (a *Account) size(now int64, t Terms) int64 {
	if now-a.since >= 2*int64(t.TTL) {
		return 0
	}
	return max(a.wanted.batch(), a.before.batch())
}

// along is what to ask for besides what somebody waits for, though it would not be worth a message.
// Where the bucket had plenty that is as much as came within a TTL before. Else it is a third of
// that, if three requests came: where they go on to come at random, hardly any of it is lost.
func (a *Account) along() int64 {
	// so that cheap requests do not hold what dear ones want
	most := min(a.waiting, math.MaxInt64/worthwhile) * worthwhile
	lately := max(a.before.tokens, a.wanted.tokens-a.waiting)
	switch {
	case !a.short && a.left >= a.burst/2 && lately <= a.left/plenty:
		return min(lately, most)
	case a.before.requests >= 3:
		return min(a.before.tokens/3, most)
	}
	return 0
}

// Question is what to ask the authority for. Seq tells the questions of one account apart; one that
// was lost is asked again under its number, and the authority answers it only once.
type Question struct {
	Seq  uint64
	Want int64 // tokens, 1 or more
	Need int64 // fewer than these help nobody; 0 if any number does
}

// Due reports whether there is anything to ask.
func (a *Account) Due(now int64, t Terms) bool {
	switch {
	case a.flying:
		return false
	case a.waiting > 0:
		return true
	case a.open && now-a.sent < int64(t.TTL):
		return false // what was lost is asked for again when somebody needs it
	}
	a.expire(now)
	return 2*a.held < a.size(now, t) && !(a.short && now < a.again)
}

// Question reports what to ask for now, and takes it for sent. It reports false if nothing is to be asked.
func (a *Account) Question(now int64, t Terms) (Question, bool) {
	if !a.Due(now, t) {
		return Question{}, false
	}
	if a.open && now-a.sent < int64(t.TTL) {
		a.flying = true
		return Question{a.seq, a.want, a.need}, true
	}
	a.expire(now)
	ahead := a.size(now, t)
	a.seq++
	if a.waiting > 0 {
		ahead = max(ahead, a.along())
	}
	a.want, a.need = max(1, add(a.waiting, ahead)-a.held), 0
	if a.waiting > 0 {
		a.want, a.need = max(a.want, a.waiting), max(1, a.least-a.held)
	}
	a.sent, a.open, a.flying = now, true, true
	a.waiting = 0
	return Question{a.seq, a.want, a.need}, true
}

// Answer is what the authority says to a Question.
type Answer struct {
	Seq    uint64
	Tokens int64         // that it charged to the bucket for this batch, at most Want; fewer than Need only if none
	Left   int64         // that are still in the bucket
	Burst  int64         // that it holds when it is full
	Wait   time.Duration // until Need tokens are there, or one if that is 0, if nobody else takes; 0 if they are
	Reset  time.Duration // until the bucket is full
}

// Answer notes an answer and reports false for one that came too late to matter: for it, nobody
// waits. Vary is how much longer than Terms.Poll to wait before asking again, at random, so that
// replicas do not ask in step.
func (a *Account) Answer(now int64, t Terms, got Answer, vary time.Duration) bool {
	if got.Seq != a.seq || !a.open {
		return false
	}
	a.open, a.flying = false, false
	a.waiting = 0 // they call Retake now
	if until := a.sent + int64(t.TTL); got.Tokens > 0 && now < until {
		a.hold(got.Tokens, until)
	}
	a.short = got.Tokens < a.want
	a.again = now + max(a.pause(t, got, int64(t.Poll+vary)), min(int64(got.Wait), longest))
	a.left, a.burst, a.ready, a.full = got.Left, got.Burst, add(now, int64(got.Wait)), add(now, int64(got.Reset))
	return true
}

// longestLull is how often the wait before asking again is doubled at most.
const longestLull = 3

// pause is how long not to ask, after an answer. Where that gave too little to be worth its message
// it is twice as long each time; but never so long that the bucket could become full while all
// replicas wait.
func (a *Account) pause(t Terms, got Answer, poll int64) int64 {
	switch {
	case !a.short:
		a.lull = 0
	case got.Tokens < a.worth() && a.lull < longestLull:
		a.lull++
	case got.Tokens >= 2*a.worth() && a.lull > 0:
		a.lull--
	}
	return max(poll, min(poll<<a.lull, int64(got.Reset)/4))
}

// worth is how many tokens are worth a message: those for some requests of the usual cost.
func (a *Account) worth() int64 {
	requests, tokens := a.wanted.requests+a.before.requests, add(a.wanted.tokens, a.before.tokens)
	return worthwhile * min(max(1, tokens/max(1, requests)), math.MaxInt64/2/worthwhile)
}

// Failed notes that a question got no answer in time, and reports false if it is none that somebody
// waits for. Those who wait call Retake or give up. Should the answer come after all, Answer takes
// it.
func (a *Account) Failed(seq uint64) bool {
	if !a.flying || seq != a.seq {
		return false
	}
	a.flying, a.waiting = false, 0
	return true
}

// Until is the time until which tokens that Take would admit now are good; now if it would admit none.
func (a *Account) Until(now int64) int64 {
	a.expire(now)
	if a.count == 0 {
		return now
	}
	return a.batches[0].until
}

// Return takes tokens back that Take gave just before, for a request that another bucket denied.
// Until is what Until said before that Take.
func (a *Account) Return(now, tokens, until int64) {
	if now < until {
		a.hold(tokens, until)
	}
}

// Recheck has the authority asked again, though it gave too little a moment ago: the bucket was changed since.
func (a *Account) Recheck() { a.short = false }

// RetryAfter is how long to wait after Deny.
func (a *Account) RetryAfter(now int64) time.Duration {
	return time.Duration(max(0, max(a.again, a.ready)-now))
}

// Held is how many tokens are held.
func (a *Account) Held(now int64) int64 {
	a.expire(now)
	return a.held
}

// Lost is how many tokens expired unused since it was called last.
func (a *Account) Lost() (tokens int64) {
	tokens, a.lost = a.lost, 0
	return tokens
}

// Drop loses what is held, and what the last answer said: the limit is another one.
func (a *Account) Drop() {
	a.lost = add(a.lost, a.held)
	a.count, a.held, a.short, a.left, a.full = 0, 0, false, 0, 0
	a.open, a.flying, a.waiting = false, false, 0 // what comes still is of the old one
}

// Remaining is how many tokens are held, and were in the bucket when it was last asked about.
func (a *Account) Remaining(now int64) int64 {
	a.expire(now)
	return add(a.held, a.left)
}

// ResetAfter is how long it is until the bucket is full, as far as the last answer tells.
func (a *Account) ResetAfter(now int64) time.Duration { return time.Duration(max(0, a.full-now)) }

// Idle reports whether nothing would be lost if the account were forgotten.
func (a *Account) Idle(now int64) bool {
	a.expire(now)
	return a.held == 0 && !a.flying && a.waiting == 0 && !(a.short && now < a.again)
}

// spend takes tokens from the oldest batches.
func (a *Account) spend(tokens int64) bool {
	if tokens > a.held {
		return false
	}
	a.held -= tokens
	done := 0
	for tokens > 0 {
		b := &a.batches[done]
		used := min(tokens, b.tokens)
		tokens -= used
		if b.tokens -= used; b.tokens == 0 {
			done++
		}
	}
	a.drop(done)
	return true
}

// expire loses batches that are too old.
func (a *Account) expire(now int64) {
	old := 0
	for old < a.count && a.batches[old].until <= now {
		a.held -= a.batches[old].tokens
		a.lost = add(a.lost, a.batches[old].tokens)
		old++
	}
	a.drop(old)
}

// drop forgets the oldest n batches.
func (a *Account) drop(n int) {
	if n > 0 {
		copy(a.batches[:], a.batches[n:a.count])
		a.count -= n
	}
}

// hold adds a batch, in its place by age.
func (a *Account) hold(tokens, until int64) {
	a.held = add(a.held, tokens)
	if a.count == maxBatches { // the two newest become one, which expires with the older
		last := &a.batches[a.count-2]
		last.tokens = add(last.tokens, a.batches[a.count-1].tokens)
		a.count--
	}
	at := a.count
	for at > 0 && a.batches[at-1].until > until {
		a.batches[at] = a.batches[at-1]
		at--
	}
	a.batches[at] = batch{tokens, until}
	a.count++
}

// add is a + b for what is not negative, at most the largest int64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
