package pace

import (
	"math"
	"time"
)

// ATB is the paper's adaptive token bucket (Tables II and III): requests take
// tokens from a bucket of the client's own, whose rate grows with successes and is
// halved by a refusal. Rates are in tokens a second.
type ATB struct {
	Bucket    float64 // B: most tokens saved up. Default 40
	Rate      float64 // r0: the rate at first. Default 40 a minute
	Congested float64 // c0: the rate at which congestion is expected at first. Default 300 a minute
	MinRate   float64 // sigma: the rate never falls below. Default 0.6 a minute
	Step      float64 // delta: the least increase. Default 0.6 a minute
	Alpha     float64 // growth below the rate that last met congestion. Default 1.2
	Beta      float64 // growth above it. Default 1.2

	// MaxRate is what the rate never grows beyond. The paper has no such bound
	// (+Inf). Default 10 times Rate.
	MaxRate float64

	Profile Profile
}

func (a ATB) filled() ATB {
	setDefault(&a.Bucket, 40)
	setDefault(&a.Rate, 40.0/60)
	setDefault(&a.Congested, 300.0/60)
	setDefault(&a.MinRate, 0.6/60)
	setDefault(&a.Step, 0.6/60)
	setDefault(&a.Alpha, 1.2)
	setDefault(&a.Beta, 1.2)
	setDefault(&a.MaxRate, 10*a.Rate)
	return a
}

// Start implements [Algorithm].
func (a ATB) Start(now time.Duration, random func() float64) Pacer {
	a = a.filled()
	p := &atb{ATB: a, random: random, tokens: 1, rate: a.Rate, congested: a.Congested, last: now}
	if a.Profile == Reference {
		// The code reads the rate of congestion, which is given per minute, as one
		// per second.
		p.congested *= 60
		p.rate = rounded(p.rate)
	}
	return p
}

type atb struct {
	ATB
	random    func() float64
	tokens    float64       // at last
	rate      float64       // tokens a second
	congested float64       // the rate when a request was last refused
	last      time.Duration // when tokens was counted
}

func (p *atb) at(now time.Duration) float64 {
	since := now - p.last
	if p.Profile == Reference { // its times have two decimals
		since = now.Round(10*time.Millisecond) - p.last.Round(10*time.Millisecond)
	}
	return min(p.Bucket, p.tokens+max(0, since).Seconds()*p.rate)
}

func (p *atb) Next(now time.Duration) time.Duration {
	tokens := p.at(now)
	if tokens >= 1 {
		return now
	}
	return now + seconds((1-tokens)/p.rate)
}

func (p *atb) Sent(now time.Duration) {
	// Rounding may leave a token a billionth short of whole.
	p.tokens, p.last = max(0, p.at(now)-1), now
}

func (p *atb) Accepted(time.Duration, Hint) {
	growth := p.Beta
	if p.rate < p.congested {
		growth = p.Alpha
	}
	p.set(min(p.MaxRate, max(p.rate+p.Step, p.rate*growth)))
}

func (p *atb) Refused(now time.Duration, _ int, _ Hint) {
	p.congested, p.tokens = p.rate, 0
	least := p.MinRate
	switch p.Profile {
	case Corrected:
		p.last = now // else the time on the network counts as saved up
	case Published:
		// Line 24 of Table III; its unit is not given. Per minute comes closer to
		// the paper's figures.
		least += (p.random() - 0.5) / 60
	}
	p.set(max(least, p.rate/2))
}

func (p *atb) set(rate float64) {
	if p.Profile == Reference {
		rate = rounded(rate)
	}
	p.rate = rate
}

// rounded is what the published code makes of a rate: two decimals.
func rounded(rate float64) float64 { return math.Round(rate*100) / 100 }

func (p *atb) Concurrent() int { return 1 }

// Rate is the rate at which tokens come.
func (p *atb) Rate() float64 { return p.rate }

func (p *atb) Mode(time.Duration) string { return "rate" }
