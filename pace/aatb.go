package pace

import (
	"time"
)

// AATB is the paper's assisted adaptive token bucket (Tables II and IV): a token
// bucket of the client's own, whose rate follows what an aggregator tells of all
// clients of the quota. It grows by turns of Interval in which nobody was refused, not
// with successes; a refusal makes everybody wait. Rates are in tokens a second.
type AATB struct {
	Bucket  float64 // B: most tokens saved up. Default 40
	Rate    float64 // r0: the rate at first. Default 40 a minute
	MinRate float64 // sigma: the rate never falls below. Default 0.6 a minute
	Step    float64 // delta: the least increase. Default 0.6 a minute
	Alpha   float64 // growth for clients with less than three quarters of the average load. Default 1.4
	Beta    float64 // growth for the others. Default 1.2

	// MaxRate is what the rate never grows beyond. The paper has no such bound (+Inf).
	// Default 10 times Rate.
	MaxRate float64

	// Interval is omega: how often a report is sent, and how long everybody waits
	// after a refusal. Default 30 s.
	Interval time.Duration

	// Quota is the rate of the quota where the aggregator does not know it. Default 15
	// a minute, as in the paper's code.
	Quota float64

	// Gate, if set, obeys the refusals of others only if this client met one itself
	// within two Intervals: who can forge aggregates can otherwise stop everybody. It
	// costs refusals. Set it where telemetry is not authenticated.
	Gate bool

	// Profile: Published waits for the time that as many tokens take as clients were
	// refused. Reference, the code, counts reports of refusals, and one token for this
	// client besides; what a client could save up while it was told to wait is lost; it
	// waits up to three seconds for an answer, and without one never grows again.
	// Corrected does as the code but never waits for an answer, and after two Intervals
	// without one keeps to the rules of ATB.
	Profile Profile
}

func (a AATB) filled() AATB {
	setDefault(&a.Bucket, 40)
	setDefault(&a.Rate, 40.0/60)
	setDefault(&a.MinRate, 0.6/60)
	setDefault(&a.Step, 0.6/60)
	setDefault(&a.Alpha, 1.4)
	setDefault(&a.Beta, 1.2)
	setDefault(&a.MaxRate, 10*a.Rate)
	setDefault(&a.Interval, 30*time.Second)
	setDefault(&a.Quota, 15.0/60)
	return a
}

// Start implements [Algorithm].
func (a AATB) Start(now time.Duration, random func() float64) Pacer {
	a = a.filled()
	p := &aatb{
		AATB: a, random: random,
		tokens: 1, rate: a.Rate, last: now,
		changed: now - longest, refused: now - longest,
		routine: now + a.Interval, told: now, asked: never,
	}
	p.set(a.Rate)
	return p
}

// answerWithin is how long an answer of the aggregator is waited for.
const answerWithin = 3 * time.Second

type aatb struct {
	AATB
	random func() float64

	tokens float64       // at last
	rate   float64       // tokens a second
	last   time.Duration // when tokens was counted

	notBefore time.Duration // nextAcq: nothing is sent before, 0 if unset
	under     bool          // a request is unanswered

	// All but Published: the turn of the request that waits is decided once. What is told later is for
	// the one after it.
	decided bool
	turn    time.Duration
	held    float64       // tokens, when it was decided
	obeyed  time.Duration // notBefore, when it was

	changed time.Duration // lastChange: when the rate changed
	refused time.Duration // lastOwnCong: when a request was refused
	routine time.Duration // when the next report in its turn is due
	asked   time.Duration // when one was sent whose answer is to come, or never
	told    time.Duration // of the last answer, or the start
	latest  Aggregate     // the last answer

	sent, archived     int64 // since the last report; in the last report
	accepted, rejected int64 // since the last report
	waiting            int

	alarm alarm
}

// alarm is a refusal that the client reported.
type alarm struct {
	due     bool          // it is still to be reported
	open    bool          // an answer to it would be heeded
	decided bool          // what follows from it holds, as long as there is no answer
	at      time.Duration // when
	rate    float64       // the rate then
	jitter  float64       // drawn for it
}

func (p *aatb) at(now time.Duration) float64 {
	return min(p.Bucket, p.tokens+max(0, now-p.last).Seconds()*p.rate)
}

func (p *aatb) Next(now time.Duration) time.Duration {
	if p.alarm.open && !p.alarm.decided {
		if until := p.alarm.at + answerWithin; now < until {
			return until
		}
		p.decide(now, Aggregate{Active: 1})
	}
	if p.Profile == Published || p.waiting == 0 || p.under {
		return p.due(now)
	}
	if !p.decided {
		p.decided, p.turn, p.held = true, p.due(now), p.at(now)
		p.obeyed, p.notBefore = p.notBefore, 0
	}
	return p.turn
}

// due is when a request that comes now has its token, and may be sent.
func (p *aatb) due(now time.Duration) time.Duration {
	if p.Profile == Published {
		now = max(now, p.notBefore)
	}
	at := now
	if tokens := p.at(now); tokens < 1 {
		at += seconds((1 - tokens) / p.rate)
	}
	return max(at, p.notBefore)
}

func (p *aatb) Sent(now time.Duration) {
	tokens := p.at(now)
	if p.decided { // what could be saved up while it waited is lost
		tokens = p.held
	}
	p.tokens, p.last = max(0, tokens-1), now
	if p.notBefore <= now && !p.decided {
		p.notBefore = 0
	}
	p.decided, p.under = false, true
}

func (p *aatb) Accepted(now time.Duration, _ Hint) {
	p.under = false
	p.sent++
	p.accepted++
	if p.alone(now) {
		p.set(max(p.rate+p.Step, p.rate*p.Beta))
	}
}

// alone reports whether the client has to do without telemetry.
func (p *aatb) alone(now time.Duration) bool {
	return p.Profile == Corrected && now-p.told > 2*p.Interval
}

func (p *aatb) Refused(now time.Duration, _ int, _ Hint) {
	p.under, p.decided = false, false
	p.sent++
	p.rejected++
	p.refused = now
	p.alarm = alarm{due: true, open: true, at: now, rate: p.rate}
	switch {
	case p.alone(now):
		p.alarm.decided, p.alarm.open = true, false
		p.tokens, p.last, p.changed = 0, now, now
		p.set(max(p.MinRate, p.rate/2))
	case p.Profile == Corrected:
		p.alarm.jitter = p.random()
		p.decide(now, p.latest)
	}
}

// decide does what a refusal asks for, given what is known of the others.
func (p *aatb) decide(now time.Duration, a Aggregate) {
	first := !p.alarm.decided
	p.alarm.decided = true
	base := p.alarm.at
	if p.Profile != Corrected { // it was blocked until now
		base, p.alarm.jitter, p.alarm.open = now, p.random(), false
	}
	tokens := float64(a.Refusals) + 1
	switch p.Profile {
	case Published:
		tokens = float64(a.Refused)
	case Corrected:
		tokens = float64(min(a.Refusals, int64(a.Active))) + 1
	}
	share := 3.0
	if p.load() < 0.5*average(a) {
		share = 2
	}
	p.set(max(p.MinRate, p.alarm.rate/share))
	if first {
		p.tokens, p.last = 1.1, base
	}
	p.changed = base
	wait := seconds(tokens/p.quota(a) + p.alarm.jitter)
	if p.Profile == Corrected {
		wait = min(wait, time.Minute)
	}
	p.notBefore, p.decided = base+wait, false
}

func (p *aatb) quota(a Aggregate) float64 {
	if a.PerSecond > 0 {
		return a.PerSecond
	}
	return p.Quota
}

// load is what the client sent of late: as much as its last two reports.
func (p *aatb) load() float64 { return float64(p.archived + p.sent) }

func average(a Aggregate) float64 { return float64(a.Sent) / float64(max(1, a.Active)) }

func (p *aatb) Queue(_ time.Duration, requests int) {
	if p.waiting = requests; requests == 0 && p.decided { // nobody waits for that turn any more
		p.decided, p.notBefore = false, max(p.notBefore, p.obeyed)
	}
}

func (p *aatb) NextReport(now time.Duration) time.Duration {
	if p.alarm.due {
		return now
	}
	return p.routine
}

func (p *aatb) Report(now time.Duration) (Report, bool) {
	if p.alarm.due {
		p.alarm.due = false
		return p.report(true), true
	}
	if now < p.routine {
		return Report{}, false
	}
	for p.routine <= now {
		p.routine += p.Interval
	}
	if now-p.refused < p.Interval {
		return Report{}, false
	}
	p.asked = now
	return p.report(false), true
}

func (p *aatb) report(congested bool) Report {
	r := Report{Congested: congested, Sent: p.sent, Accepted: p.accepted, Refused: p.rejected, Waiting: p.waiting}
	p.archived, p.sent, p.accepted, p.rejected = p.sent, 0, 0, 0
	return r
}

func (p *aatb) Told(now time.Duration, a Aggregate) {
	a = a.plausible()
	p.told, p.latest = now, a
	if p.alarm.open {
		p.alarm.open = false
		if now-p.alarm.at <= answerWithin {
			p.decide(now, a)
			return
		}
		if !p.alarm.decided {
			p.decide(p.alarm.at+answerWithin, Aggregate{Active: 1})
		}
	}
	if p.asked == never || now-p.asked > answerWithin {
		return
	}
	if p.Profile == Corrected {
		now = p.asked // else an answer that is quicker than the one before comes within the Interval of it
	}
	p.asked = never
	congested := a.Refusals > 0
	if p.Profile == Published {
		congested = a.Refused > 0
	}
	if p.Gate && now-p.refused > 2*p.Interval {
		congested = false // nothing that this client saw agrees
	}
	switch {
	case congested:
		p.notBefore = now + p.Interval + between(p.random, -2*time.Second, 2*time.Second)
	case a.Partial && p.Profile == Corrected:
		// An aggregator that has just started knows of no refusals, whoever had some.
	case now-p.changed >= p.Interval:
		p.grow(now, a)
	}
}

func (p *aatb) grow(now time.Duration, a Aggregate) {
	growth := p.Beta
	few := p.load() < 0.75*average(a)
	if p.Profile != Published {
		few = few || a.Active == 1 || a.Sent == 0
	}
	if few {
		growth = p.Alpha
	}
	p.set(max(p.rate+p.Step, p.rate*growth))
	p.changed = now
}

func (p *aatb) set(rate float64) {
	rate = min(rate, p.MaxRate)
	if p.Profile == Reference {
		rate = rounded(rate)
	}
	p.rate = rate
}

func (p *aatb) Concurrent() int { return 1 }

// Rate is the rate at which tokens come.
func (p *aatb) Rate() float64 { return p.rate }

func (p *aatb) Mode(now time.Duration) string {
	if p.alone(now) {
		return "rate"
	}
	return "shared"
}

var _ Sharer = (*aatb)(nil)
