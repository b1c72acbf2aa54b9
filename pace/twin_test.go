package pace_test

import (
	"math"

	"github.com/headgate-io/headgate/pace"
)

// The algorithms a second time, as their listings have them: in seconds as floating
// point numbers, keeping everything that happened. The vectors in testdata are what
// these say.
type twin interface {
	next(now float64) float64
	sent(now float64)
	accepted(now float64, h hint)
	refused(now float64, n int, h hint)
	concurrent() int
	rate() float64
}

// sharingTwin is the twin of a [pace.Sharer].
type sharingTwin interface {
	twin
	queue(now float64, n int)
	nextReport(now float64) float64 // +Inf: none is due
	report(now float64) *report
	told(now float64, a aggregate)
}

// These are how the vectors write what [pace] has types for. Times are in seconds.
type (
	hint struct {
		Wait      float64 `json:"wait,omitempty"`
		Remaining *int64  `json:"remaining,omitempty"` // absent: unknown
		Slot      bool    `json:"slot,omitempty"`
		Burst     int64   `json:"burst,omitempty"`
		Gap       float64 `json:"gap,omitempty"`
		Reserves  bool    `json:"reserves,omitempty"`
		RoundTrip float64 `json:"roundTrip,omitempty"`
	}
	report struct {
		Congested bool  `json:"congested"`
		Sent      int64 `json:"sent"`
		Accepted  int64 `json:"accepted"`
		Refused   int64 `json:"refused"`
		Waiting   int   `json:"waiting"`
	}
	aggregate struct {
		Sent        int64   `json:"sent"`
		Active      int     `json:"active"`
		Refusals    int64   `json:"refusals"`
		Refused     int     `json:"refused"`
		Waiting     int64   `json:"waiting"`
		LastRefusal float64 `json:"lastRefusal"` // negative: none is known
		PerSecond   float64 `json:"perSecond"`
		Partial     bool    `json:"partial,omitempty"`
	}
)

func (h hint) empty() bool { return h.Remaining != nil && *h.Remaining == 0 }

// twinUB: section 1.2 of the experiment's description.
type twinUB struct {
	random func() float64
	most   float64
	until  float64
}

func newTwinUB(random func() float64) *twinUB { return &twinUB{random: random, most: 30 + 4*random()} }

func (t *twinUB) next(now float64) float64 { return math.Max(now, t.until) }
func (t *twinUB) sent(float64)             {}
func (t *twinUB) accepted(float64, hint)   {}
func (t *twinUB) concurrent() int          { return 1 }
func (t *twinUB) rate() float64            { return 0 }
func (t *twinUB) refused(now float64, n int, _ hint) {
	bound := math.Min(math.Pow(2, float64(n))-1, t.most)
	t.until = now + 0.1 + (bound-0.1)*t.random()
}

// twinWB counts what happened in the last minute.
type twinWB struct {
	*twinUB
	perMinute int
	attempts  bool // count these, not successes
	times     []float64
}

func (t *twinWB) sent(now float64) {
	if t.attempts {
		t.times = append(t.times, now)
	}
}

func (t *twinWB) accepted(now float64, _ hint) {
	if !t.attempts {
		t.times = append(t.times, now)
	}
}

func (t *twinWB) next(now float64) float64 {
	at := t.twinUB.next(now)
	if n := len(t.times); n >= t.perMinute {
		at = math.Max(at, t.times[n-t.perMinute]+60)
	}
	return at
}

// twinATB: Tables II and III.
type twinATB struct {
	random                                  func() float64
	bucket, sigma, delta, alpha, beta, most float64
	tokens, current, congested, last        float64
	twoDecimals, leak, randomFloor          bool
}

func round2(x float64) float64 { return math.Round(x*100) / 100 }

func newTwinATB(profile pace.Profile, b, r0, c0 float64, random func() float64) *twinATB {
	t := &twinATB{
		random:    random,
		bucket:    b,
		sigma:     0.01,
		delta:     0.01,
		alpha:     1.2,
		beta:      1.2,
		most:      math.Inf(1),
		tokens:    1,
		current:   r0,
		congested: c0,
	}
	switch profile {
	case pace.Published:
		t.leak, t.randomFloor = true, true
	case pace.Reference:
		t.leak, t.twoDecimals = true, true
		t.congested *= 60
		t.current = round2(r0)
	}
	return t
}

func (t *twinATB) have(now float64) float64 {
	from, to := t.last, now
	if t.twoDecimals {
		from, to = round2(from), round2(to)
	}
	return math.Min(t.bucket, t.tokens+(to-from)*t.current)
}

func (t *twinATB) next(now float64) float64 {
	if have := t.have(now); have < 1 {
		return now + (1-have)/t.current
	}
	return now
}

func (t *twinATB) sent(now float64) { t.tokens, t.last = math.Max(0, t.have(now)-1), now }

func (t *twinATB) accepted(float64, hint) {
	g := t.beta
	if t.current < t.congested {
		g = t.alpha
	}
	t.set(math.Max(t.current+t.delta, t.current*g))
}

func (t *twinATB) set(rate float64) {
	t.current = math.Min(rate, t.most)
	if t.twoDecimals {
		t.current = round2(t.current)
	}
}

func (t *twinATB) refused(now float64, _ int, _ hint) {
	t.congested = t.current
	t.tokens = 0
	if !t.leak {
		t.last = now
	}
	sigma := t.sigma
	if t.randomFloor {
		sigma += (t.random() - 0.5) / 60 // Table III, line 24, per minute
	}
	t.set(math.Max(sigma, t.current/2))
}

func (t *twinATB) concurrent() int { return 1 }
func (t *twinATB) rate() float64   { return t.current }

// twinAP: the self-tuning pause.
type twinAP struct {
	random func() float64
	T      float64
	k      int
	kmax   float64
	first  bool
	until  float64
	full   float64
}

func newTwinAP(random func() float64) *twinAP {
	return &twinAP{random: random, T: 30, kmax: 1, first: true}
}

func (t *twinAP) next(now float64) float64 { return math.Max(now, t.until) }
func (t *twinAP) sent(float64)             {}
func (t *twinAP) rate() float64            { return 0 }

func (t *twinAP) concurrent() int {
	if t.first {
		return 0
	}
	return 1 + t.k/8
}

func (t *twinAP) accepted(float64, hint) {
	t.k++
	t.kmax = math.Max(t.kmax, float64(t.k))
}

func (t *twinAP) refused(now float64, _ int, h hint) {
	if h.Burst > 0 && h.Gap > 0 {
		t.full = float64(h.Burst) * h.Gap
	}
	if now < t.until {
		return
	}
	hi := math.Min(16, math.Max(1, 0.5*t.kmax))
	if !t.first && t.k < 1 {
		t.T = math.Min(90, 2*t.T)
	}
	if !t.first && float64(t.k) >= hi && t.k >= 1 {
		t.T = math.Max(4, t.T/1.5)
	}
	if t.full > 0 && (t.first || t.k > 0) {
		t.T = math.Min(t.T, t.full)
	}
	t.kmax = math.Max(1, 0.97*t.kmax)
	t.first, t.k = false, 0
	t.until = now + t.T*(0.8+0.4*t.random())
}
