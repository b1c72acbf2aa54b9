package pace

import "time"

// AP pauses the whole queue after a refusal, and then lets it go faster and faster until the
// next one. It adjusts the length of its pause: shorter as long as many requests are
// served between two refusals, twice as long after a pause that was too short to
// have one served. It needs nothing but refusals, and suits quotas with a burst.
type AP struct {
	// First is the first pause. Default 30 s.
	First time.Duration
	// Min and Max bound the pause. Default 4 s and 90 s: for quotas of the order of
	// one request a second.
	Min, Max time.Duration
}

func (a AP) filled() AP {
	if a.First == 0 {
		a.First = 30 * time.Second
	}
	if a.Min == 0 {
		a.Min = min(4*time.Second, a.First)
	}
	if a.Max == 0 {
		a.Max = max(90*time.Second, a.First)
	}
	return a
}

// Start implements [Algorithm].
func (a AP) Start(_ time.Duration, random func() float64) Pacer {
	a = a.filled()
	return &ap{AP: a, random: random, pause: a.First, most: 1}
}

type ap struct {
	AP
	random  func() float64
	pause   time.Duration
	until   time.Duration // nothing is sent before
	served  int           // since the last refusal
	most    float64       // served between two refusals, slowly forgotten: an estimate of the quota's burst
	refused bool          // at least once
	full    time.Duration // in which the quota fills, as far as the server says
}

func (p *ap) Next(time.Duration) time.Duration { return p.until }

func (p *ap) Sent(time.Duration) {}

func (p *ap) Accepted(time.Duration, Hint) {
	p.served++
	p.most = max(p.most, float64(p.served))
}

func (p *ap) Refused(now time.Duration, _ int, h Hint) {
	if full := h.FullIn(); full > 0 {
		p.full = full
	}
	if now < p.until {
		return // one of several that were under way together: the pause has begun
	}
	enough := min(16, max(1, p.most/2))
	if p.refused {
		switch {
		case p.served == 0:
			p.pause = min(p.Max, 2*p.pause)
		case float64(p.served) >= enough:
			p.pause = max(p.Min, p.pause*2/3)
		}
	}
	if p.full > 0 && (p.served > 0 || !p.refused) {
		p.pause = min(p.pause, p.full) // no pause saves up more than that
	}
	p.most = max(1, 0.97*p.most)
	p.refused, p.served = true, 0
	p.until = now + time.Duration(float64(p.pause)*(0.8+0.4*p.random()))
}

// Concurrent is 1 after a pause: one request finds out whether it was long enough. It is one more
// for every eight that are served: the next refusal then meets a few of those that wait, and not
// all of them.
func (p *ap) Concurrent() int {
	if !p.refused {
		return 0
	}
	return after(p.served)
}

// after is how many requests may be unanswered at once when so many were served since a refusal.
func after(served int) int { return 1 + served/8 }

// Rate is unknown: there is only a pause.
func (p *ap) Rate() float64 { return 0 }

func (p *ap) Mode(time.Duration) string { return "pause" }
