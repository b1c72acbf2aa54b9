package pace

import "time"

// XATB shares a quota by what an aggregator tells: while the quota is congested, each
// client sends at the part of its rate that the client's queue is of all queues. While
// it is not, nobody holds back. Without fresh news, or if nobody knows the rate of the
// quota, it is [AP].
type XATB struct {
	// Pause is used without news.
	Pause AP

	// Interval is how often a client with a queue reports. News are fresh for twice as
	// long. Default 30 s.
	Interval time.Duration

	// Quota is the rate of the quota where the aggregator does not know it, in tokens a
	// second. Default: unknown.
	Quota float64

	// Factor is the part of the quota that all clients together use. Default 1: less
	// meets fewer refusals and takes longer.
	Factor float64

	// Gate, if set, holds back because of the refusals of others only if this client
	// met one itself within two Intervals. See [AATB].
	Gate bool
}

func (a XATB) filled() XATB {
	a.Pause = a.Pause.filled()
	setDefault(&a.Interval, 30*time.Second)
	setDefault(&a.Factor, 1)
	return a
}

// Start implements [Algorithm].
func (a XATB) Start(now time.Duration, random func() float64) Pacer {
	a = a.filled()
	return &xatb{
		XATB: a, random: random, pause: a.Pause.Start(now, random).(*ap),
		due: never, reported: now - longest, refused: now - longest, told: now - longest,
	}
}

// reportGap is the least time between two reports that no refusal caused.
const reportGap = time.Second

type xatb struct {
	XATB
	random func() float64
	pause  *ap

	due      time.Duration // when the next report is, or never
	reported time.Duration // when the last one was sent
	alarm    bool          // it is due because of a refusal
	counts   Report        // since the last report
	served   int           // since the last refusal
	queue    int           // requests not served yet
	named    int           // in the last report

	told   time.Duration // of the last answer
	latest Aggregate

	congested bool
	refused   time.Duration // when a request was refused
	since     time.Duration // the next request is due phase/rate after it
	phase     float64
	until     time.Duration // nothing is sent before, after a refusal
}

func (p *xatb) fresh(now time.Duration) bool {
	return now-p.told <= 2*p.Interval && p.quota() > 0
}

func (p *xatb) quota() float64 {
	if p.latest.PerSecond > 0 {
		return p.latest.PerSecond
	}
	return p.Quota
}

// Rate is the client's share of the quota.
func (p *xatb) Rate() float64 {
	if !p.congested {
		return 0
	}
	return p.share()
}

// share is at least a tenth of an equal share, whatever the others claim. A queue counts as
// long as it was when it was reported, as those of the others do: if all counted their own as
// it is, together they would use less than there is while queues shrink, and more while a burst
// arrives.
func (p *xatb) share() float64 {
	all := p.Factor * p.quota()
	own := float64(max(1, p.named))
	others := max(0, float64(p.latest.Waiting)-float64(p.named))
	return min(all, max(all*own/(own+others), all/(10*float64(max(1, p.latest.Active)))))
}

func (p *xatb) Next(now time.Duration) time.Duration {
	if !p.fresh(now) {
		return p.pause.Next(now)
	}
	if !p.congested {
		return p.until
	}
	return max(p.until, p.since+seconds(p.phase/p.share()))
}

func (p *xatb) Sent(now time.Duration) {
	p.pause.Sent(now)
	p.since, p.phase = now, 1
}

func (p *xatb) Accepted(now time.Duration, h Hint) {
	p.counts.Sent++
	p.counts.Accepted++
	p.served++
	p.pause.Accepted(now, h)
}

func (p *xatb) Refused(now time.Duration, n int, h Hint) {
	p.counts.Sent++
	p.counts.Refused++
	p.refused, p.served = now, 0
	p.alarm, p.due = true, now
	if !p.fresh(now) {
		p.congested = true
		p.pause.Refused(now, n, h)
		return
	}
	p.congest(now)
	p.until = now + seconds((2+2*p.random())/p.quota())
	p.since = p.until // its turns go on from there
}

// congest begins to hold back, at a random moment of the client's turn.
func (p *xatb) congest(now time.Duration) {
	if !p.congested {
		p.congested, p.since, p.phase = true, now, p.random()
	}
}

func (p *xatb) Queue(now time.Duration, requests int) {
	if p.queue == 0 && requests > 0 {
		p.due = min(p.due, max(now, p.reported+reportGap))
	}
	if p.queue > 0 && requests == 0 && p.congested && p.named > 0 {
		p.due = min(p.due, now) // the others may have its share
	}
	p.queue = requests
}

func (p *xatb) NextReport(time.Duration) time.Duration { return p.due }

func (p *xatb) Report(now time.Duration) (Report, bool) {
	if now < p.due {
		return Report{}, false
	}
	p.due = never
	if p.queue == 0 && !p.alarm && p.named == 0 {
		return Report{}, false
	}
	if p.queue > 0 {
		p.due = now + p.Interval
	}
	r := p.counts
	if r.Congested = p.alarm; p.congested {
		r.Waiting = p.queue // else nothing is held back, and all that there is will be gone when others hear of it
	}
	p.counts, p.alarm, p.named, p.reported = Report{}, false, r.Waiting, now
	return r, true
}

func (p *xatb) Told(now time.Duration, a Aggregate) {
	p.told, p.latest = now, a.plausible()
	recent := a.LastRefusal >= 0 && a.LastRefusal <= 3*p.Interval
	switch {
	case p.latest.Waiting <= 1:
		// Nobody else waits, as far as is known by an aggregator that has watched for a window. A client
		// that was just refused is not told so by its own report.
		if !a.Partial && now >= p.until {
			p.congested = false
		}
	case recent && !(p.Gate && now-p.refused > 2*p.Interval):
		p.congest(now)
	}
}

// Concurrent is as with [AP]. To share is no reason to send all that waits at once.
func (p *xatb) Concurrent() int {
	if p.refused < -longest/2 { // never
		return p.pause.Concurrent()
	}
	return after(p.served)
}

func (p *xatb) Mode(now time.Duration) string {
	if p.fresh(now) {
		return "shared"
	}
	return p.pause.Mode(now)
}

var _ Sharer = (*xatb)(nil)
