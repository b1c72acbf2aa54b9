package simulate

import (
	"math"
	"time"
)

// Promise finds how much was admitted of one bucket beyond what is published for it, where that
// changes: limits do, and each fault may add something. It is the Lindley maximum as in Envelope,
// in one pass. Its zero value allows nothing.
//
// Beyond its rate a limit allows its burst, once in any interval. Where the burst grows within an
// interval, what it grew by is allowed besides: debt is cut to a smaller burst and kept under a
// larger one (bucket.State.Convert). An interval is taken to begin where nothing was left of what
// was admitted before.
type Promise struct {
	Admitted int64 // tokens
	rate     float64
	burst    float64
	extras   []extra

	last    time.Duration
	backlog float64 // tokens over the rate since the interval began
	allowed float64 // what it may be
	worst   float64 // the most it was beyond
	at      time.Duration
	began   bool
}

// extra is tokens that a fault may add to intervals that begin before a time.
type extra struct {
	tokens float64
	until  time.Duration
}

// Set says what is published from at on: tokens a second, and at once.
func (p *Promise) Set(at time.Duration, rate, burst float64) {
	p.advance(at)
	if !p.began {
		p.worst, p.began = math.Inf(-1), true
		p.allowed += burst
	} else {
		p.allowed += max(0, burst-p.burst)
	}
	p.rate, p.burst = rate, burst
	p.settle()
}

// Add says that a fault may add tokens to every interval that ends after at and begins before until.
func (p *Promise) Add(at, until time.Duration, tokens float64) {
	if tokens <= 0 {
		return
	}
	p.advance(at)
	p.extras = append(p.extras, extra{tokens, until})
	p.allowed += tokens
}

// Admit notes tokens that were admitted at a time, which does not run back.
func (p *Promise) Admit(at time.Duration, tokens int64) {
	p.advance(at)
	p.Admitted += tokens
	p.backlog += float64(tokens)
	if over := p.backlog - p.allowed; over > p.worst {
		p.worst, p.at = over, at
	}
}

// Worst is the most that was admitted in any interval beyond what was promised for it, in tokens,
// and when that was; below zero if there always was room.
func (p *Promise) Worst() (tokens float64, at time.Duration) { return p.worst, p.at }

func (p *Promise) advance(at time.Duration) {
	p.backlog -= p.rate * (at - p.last).Seconds()
	p.last = max(p.last, at)
	p.settle()
}

// settle begins another interval if nothing is left of the one before.
func (p *Promise) settle() {
	if p.backlog > 0 {
		return
	}
	p.backlog, p.allowed = 0, p.burst
	kept := p.extras[:0]
	for _, e := range p.extras {
		if e.until > p.last {
			kept = append(kept, e)
			p.allowed += e.tokens
		}
	}
	p.extras = kept
}
