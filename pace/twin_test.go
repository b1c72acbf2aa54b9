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
	t := &twinATB{random: random, bucket: b, sigma: 0.01, delta: 0.01, alpha: 1.2, beta: 1.2, most: math.Inf(1), tokens: 1, current: r0, congested: c0}
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
	random  func() float64
	T       float64
	k       int
	kmax    float64
	first   bool
	until   float64
	probing bool
	full    float64
}

func newTwinAP(random func() float64) *twinAP {
	return &twinAP{random: random, T: 30, kmax: 1, first: true}
}

func (t *twinAP) next(now float64) float64 { return math.Max(now, t.until) }
func (t *twinAP) sent(float64)             {}
func (t *twinAP) rate() float64            { return 0 }

func (t *twinAP) concurrent() int {
	if t.probing {
		return 1
	}
	return 0
}

func (t *twinAP) accepted(float64, hint) {
	t.k++
	t.kmax = math.Max(t.kmax, float64(t.k))
	t.probing = false
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
	t.first, t.probing, t.k = false, true, 0
	t.until = now + t.T*(0.8+0.4*t.random())
}

// twinAATB: Tables II and IV.
type twinAATB struct {
	random  func() float64
	profile pace.Profile
	bucket  float64
	gated   bool

	tokens, current, last float64
	nextAcq               float64
	slept                 bool
	lastChange, lastCong  float64
	sends, accepts, fails int64
	archived              int64
	waiting               int
	routine, lastTold     float64
	routineAsked          float64 // -1: nothing asked
	alarmDue              bool
	alarmAt               float64 // -1: no answer is waited for
	blocked               bool    // until that answer
	alarmRate, alarmDraw  float64
	known                 aggregate
}

const omega = 30

func newTwinAATB(profile pace.Profile, b, r0 float64, gated bool, random func() float64) *twinAATB {
	t := &twinAATB{
		random: random, profile: profile, bucket: b, gated: gated, tokens: 1, current: r0,
		lastChange: -1e9, lastCong: -1e9, routine: omega, routineAsked: -1, alarmAt: -1,
	}
	if profile == pace.Reference {
		t.current = round2(r0)
	}
	return t
}

func (t *twinAATB) have(now float64) float64 {
	return math.Min(t.bucket, t.tokens+(now-t.last)*t.current)
}

func (t *twinAATB) next(now float64) float64 {
	if t.blocked {
		if now < t.alarmAt+3 {
			return t.alarmAt + 3
		}
		t.notified(now, aggregate{Active: 1})
	}
	if t.profile == pace.Reference && t.nextAcq > 0 {
		if now < t.nextAcq {
			t.slept = true
			return t.nextAcq
		}
		if t.slept {
			return now
		}
	}
	at := math.Max(now, t.nextAcq)
	if have := t.have(at); have < 1 {
		at += (1 - have) / t.current
	}
	return at
}

func (t *twinAATB) sent(now float64) {
	have := t.have(now)
	if t.profile == pace.Reference && t.slept {
		have = t.tokens
	}
	t.tokens, t.last = math.Max(0, have-1), now
	if t.nextAcq <= now {
		t.nextAcq, t.slept = 0, false
	}
}

func (t *twinAATB) forsaken(now float64) bool {
	return t.profile == pace.Corrected && now-t.lastTold > 2*omega
}

func (t *twinAATB) accepted(now float64, _ hint) {
	t.sends++
	t.accepts++
	if t.forsaken(now) {
		t.set(math.Max(t.current+0.01, t.current*1.2))
	}
}

func (t *twinAATB) set(rate float64) {
	t.current = rate
	if t.profile == pace.Reference {
		t.current = round2(rate)
	}
}

func (t *twinAATB) refused(now float64, _ int, _ hint) {
	t.sends++
	t.fails++
	t.lastCong, t.alarmDue = now, true
	if t.forsaken(now) {
		t.alarmAt, t.blocked = -1, false
		t.tokens, t.last, t.lastChange = 0, now, now
		t.set(math.Max(0.01, t.current/2))
		return
	}
	t.alarmAt, t.alarmRate = now, t.current
	if t.profile == pace.Corrected {
		t.alarmDraw = t.random()
		t.tokens, t.last = 1.1, now
		t.notified(now, t.known)
		return
	}
	t.blocked = true
}

// notified is CONGESTION_NOTIFICATION, once the aggregate is there.
func (t *twinAATB) notified(now float64, a aggregate) {
	at := t.alarmAt
	if t.profile != pace.Corrected {
		at = now
		t.alarmDraw, t.alarmAt, t.blocked = t.random(), -1, false
		t.tokens, t.last = 1.1, now
	}
	divisor := 3.0
	if load := float64(t.archived + t.sends); load < 0.5*float64(a.Sent)/math.Max(1, float64(a.Active)) {
		divisor = 2
	}
	t.set(math.Max(0.01, t.alarmRate/divisor))
	perMinute := 15.0
	if a.PerSecond > 0 {
		perMinute = 60 * a.PerSecond
	}
	r429 := float64(a.Refusals)
	if t.profile == pace.Corrected {
		r429 = math.Min(r429, float64(a.Active))
	}
	r429++
	if t.profile == pace.Published {
		r429 = float64(a.Refused)
	}
	wait := r429*60/perMinute + t.alarmDraw
	if t.profile == pace.Corrected {
		wait = math.Min(60, wait)
	}
	t.lastChange, t.nextAcq, t.slept = at, at+wait, false
}

func (t *twinAATB) concurrent() int        { return 1 }
func (t *twinAATB) rate() float64          { return t.current }
func (t *twinAATB) queue(_ float64, n int) { t.waiting = n }

func (t *twinAATB) nextReport(now float64) float64 {
	if t.alarmDue {
		return now
	}
	return t.routine
}

func (t *twinAATB) report(now float64) *report {
	alarm := t.alarmDue
	if !alarm {
		if now < t.routine {
			return nil
		}
		for t.routine <= now {
			t.routine += omega
		}
		if now-t.lastCong < omega {
			return nil
		}
		t.routineAsked = now
	}
	r := &report{Congested: alarm, Sent: t.sends, Accepted: t.accepts, Refused: t.fails, Waiting: t.waiting}
	t.alarmDue, t.archived, t.sends, t.accepts, t.fails = false, t.sends, 0, 0, 0
	return r
}

func (t *twinAATB) told(now float64, a aggregate) {
	t.lastTold, t.known = now, a
	if t.alarmAt >= 0 {
		at, blocked := t.alarmAt, t.blocked
		if now-at <= 3 {
			t.notified(now, a)
			t.alarmAt = -1
			return
		}
		if blocked {
			t.notified(at+3, aggregate{Active: 1})
		}
		t.alarmAt = -1
	}
	if t.routineAsked < 0 || now-t.routineAsked > 3 {
		return
	}
	t.routineAsked = -1
	r429 := a.Refusals
	if t.profile == pace.Published {
		r429 = int64(a.Refused)
	}
	if r429 > 0 && (!t.gated || now-t.lastCong <= 2*omega) {
		t.nextAcq, t.slept = now+omega-2+4*t.random(), false
		return
	}
	if a.Partial && t.profile == pace.Corrected || now-t.lastChange < omega {
		return
	}
	avg := float64(a.Sent) / math.Max(1, float64(a.Active))
	g := 1.2
	if float64(t.archived+t.sends) < 0.75*avg {
		g = 1.4
	}
	if t.profile != pace.Published && (a.Active == 1 || avg == 0) {
		g = 1.4
	}
	t.set(math.Max(t.current*g, t.current+0.01))
	t.lastChange = now
}

// twinXATB: explicit shares.
type twinXATB struct {
	*twinAP
	gated, alarm, congested  bool
	due, reported, lastTold  float64
	counts                   report
	q, named                 int
	known                    aggregate
	lastCong, base, fraction float64
	hold                     float64
}

func newTwinXATB(gated bool, random func() float64) *twinXATB {
	return &twinXATB{twinAP: newTwinAP(random), gated: gated, due: math.Inf(1), reported: -1e9, lastTold: -1e9, lastCong: -1e9}
}

func (t *twinXATB) fresh(now float64) bool { return now-t.lastTold <= 2*omega && t.known.PerSecond > 0 }

func (t *twinXATB) share() float64 {
	c := t.known.PerSecond
	mine := math.Max(1, math.Max(float64(t.q), float64(t.named)))
	all := mine + math.Max(0, float64(t.known.Waiting)-float64(t.named))
	return math.Min(c, math.Max(c*mine/all, c/(10*math.Max(1, float64(t.known.Active)))))
}

func (t *twinXATB) rate() float64 {
	if !t.congested {
		return 0
	}
	return t.share()
}

func (t *twinXATB) next(now float64) float64 {
	if !t.fresh(now) {
		return t.twinAP.next(now)
	}
	if !t.congested {
		return now
	}
	return math.Max(now, math.Max(t.hold, t.base+t.fraction/t.share()))
}

func (t *twinXATB) sent(now float64) { t.base, t.fraction = now, 1 }

func (t *twinXATB) accepted(now float64, h hint) {
	t.counts.Sent++
	t.counts.Accepted++
	t.twinAP.accepted(now, h)
}

func (t *twinXATB) refused(now float64, n int, h hint) {
	t.counts.Sent++
	t.counts.Refused++
	t.lastCong, t.alarm, t.due = now, true, now
	if !t.fresh(now) {
		t.congested = true
		t.twinAP.refused(now, n, h)
		return
	}
	t.begin(now)
	t.hold = now + (2+2*t.random())/t.known.PerSecond
}

func (t *twinXATB) begin(now float64) {
	if !t.congested {
		t.congested, t.base, t.fraction = true, now, t.random()
	}
}

func (t *twinXATB) queue(now float64, n int) {
	if t.q == 0 && n > 0 {
		t.due = math.Min(t.due, math.Max(now, t.reported+1))
	}
	if t.q > 0 && n == 0 && t.congested && t.named > 0 {
		t.due = math.Min(t.due, now)
	}
	t.q = n
}

func (t *twinXATB) nextReport(float64) float64 { return t.due }

func (t *twinXATB) report(now float64) *report {
	if now < t.due {
		return nil
	}
	t.due = math.Inf(1)
	if t.q == 0 && !t.alarm && t.named == 0 {
		return nil
	}
	if t.q > 0 {
		t.due = now + omega
	}
	r := t.counts
	r.Congested, r.Waiting = t.alarm, t.q
	t.counts, t.alarm, t.named, t.reported = report{}, false, t.q, now
	return &r
}

func (t *twinXATB) told(now float64, a aggregate) {
	t.lastTold, t.known = now, a
	if a.Waiting <= 1 {
		t.congested = false
		return
	}
	heard := a.LastRefusal >= 0 && a.LastRefusal <= 3*omega
	if heard && (!t.gated || now-t.lastCong <= 2*omega) {
		t.begin(now)
	}
}

// twinHATB obeys the server, and otherwise is another one.
type twinHATB struct {
	twin
	random                func() float64
	until, marked, window float64
	held, doubted         bool
	most                  int
}

func newTwinHATB(other twin, random func() float64) *twinHATB {
	return &twinHATB{twin: other, random: random, marked: -1e9, window: 60, most: 1}
}

func (t *twinHATB) next(now float64) float64 {
	if !t.held && now-t.marked <= 2*t.window {
		return math.Max(now, t.until)
	}
	return math.Max(t.until, t.twin.next(now))
}

func (t *twinHATB) obey(now float64, h hint) {
	t.until = math.Max(t.until, now-h.RoundTrip/2+h.Wait+0.05*t.random())
	if h.Slot && !t.doubted {
		t.marked, t.held = now, false
	}
	if full := float64(h.Burst) * h.Gap; full > 0 {
		t.window = math.Min(3600, full)
	}
}

func (t *twinHATB) accepted(now float64, h hint) {
	t.twin.accepted(now, h)
	t.most = 0
	if h.Remaining != nil {
		t.most = int(math.Max(1, float64(*h.Remaining)))
	}
	if h.empty() && h.Wait > 0 {
		t.obey(now, h)
	}
}

func (t *twinHATB) refused(now float64, n int, h hint) {
	if h.Slot && h.Wait > 0 && !t.doubted {
		t.most = 1
		t.obey(now, h)
		return
	}
	t.held = true
	t.twin.refused(now, n, h)
	if h.Wait > 0 {
		t.until = math.Max(t.until, now+h.Wait)
	}
}

func (t *twinHATB) concurrent() int {
	other := t.twin.concurrent()
	switch {
	case t.most == 0:
		return other
	case other == 0:
		return t.most
	}
	return int(math.Min(float64(t.most), float64(other)))
}

// twinAuto: the former over shares.
type twinAuto struct {
	*twinHATB
	shares *twinXATB
}

func newTwinAuto(random func() float64) *twinAuto {
	shares := newTwinXATB(false, random)
	return &twinAuto{newTwinHATB(shares, random), shares}
}

func (t *twinAuto) queue(now float64, n int)       { t.shares.queue(now, n) }
func (t *twinAuto) nextReport(now float64) float64 { return t.shares.nextReport(now) }
func (t *twinAuto) report(now float64) *report     { return t.shares.report(now) }
func (t *twinAuto) told(now float64, a aggregate)  { t.shares.told(now, a) }
