package pace_test

import (
	"math"

	"github.com/headgate-io/headgate/pace"
)

// twinAATB: Tables II and IV.
type twinAATB struct {
	random  func() float64
	profile pace.Profile
	bucket  float64
	gated   bool

	tokens, current, last float64
	nextAcq               float64
	sleeping, under       bool
	wakes, asleepWith     float64
	obeyed                float64
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
	if t.profile == pace.Published {
		at := math.Max(now, t.nextAcq)
		if have := t.have(at); have < 1 {
			at += (1 - have) / t.current
		}
		return at
	}
	if t.sleeping {
		return t.wakes
	}
	wakes := math.Max(now, t.nextAcq)
	if have := t.have(now); have < 1 {
		wakes = math.Max(wakes, now+(1-have)/t.current)
	}
	if t.waiting > 0 && !t.under { // ACQUIRE
		t.sleeping, t.wakes, t.asleepWith, t.obeyed, t.nextAcq = true, wakes, t.have(now), t.nextAcq, 0
	}
	return wakes
}

func (t *twinAATB) sent(now float64) {
	have := t.have(now)
	if t.sleeping {
		have = t.asleepWith
	}
	t.tokens, t.last = math.Max(0, have-1), now
	if t.nextAcq <= now && !t.sleeping {
		t.nextAcq = 0
	}
	t.sleeping, t.under = false, true
}

func (t *twinAATB) forsaken(now float64) bool {
	return t.profile == pace.Corrected && now-t.lastTold > 2*omega
}

func (t *twinAATB) accepted(now float64, _ hint) {
	t.under = false
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
	t.under, t.sleeping = false, false
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
	t.lastChange, t.nextAcq, t.sleeping = at, at+wait, false
}

func (t *twinAATB) concurrent() int { return 1 }
func (t *twinAATB) rate() float64   { return t.current }
func (t *twinAATB) queue(_ float64, n int) {
	t.waiting = n
	if n == 0 && t.sleeping {
		t.sleeping, t.nextAcq = false, math.Max(t.nextAcq, t.obeyed)
	}
}

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
	if t.profile == pace.Corrected {
		now = t.routineAsked
	}
	t.routineAsked = -1
	r429 := a.Refusals
	if t.profile == pace.Published {
		r429 = int64(a.Refused)
	}
	if r429 > 0 && (!t.gated || now-t.lastCong <= 2*omega) {
		t.nextAcq = now + omega - 2 + 4*t.random()
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
	met                      bool // a refusal
	sinceMet                 int  // served
}

func newTwinXATB(gated bool, random func() float64) *twinXATB {
	return &twinXATB{
		twinAP:   newTwinAP(random),
		gated:    gated,
		due:      math.Inf(1),
		reported: -1e9,
		lastTold: -1e9,
		lastCong: -1e9,
	}
}

func (t *twinXATB) fresh(now float64) bool { return now-t.lastTold <= 2*omega && t.known.PerSecond > 0 }

func (t *twinXATB) share() float64 {
	c := t.known.PerSecond
	mine := math.Max(1, float64(t.named))
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
		return math.Max(now, t.hold)
	}
	return math.Max(now, math.Max(t.hold, t.base+t.fraction/t.share()))
}

func (t *twinXATB) sent(now float64) { t.base, t.fraction = now, 1 }

func (t *twinXATB) accepted(now float64, h hint) {
	t.counts.Sent++
	t.counts.Accepted++
	t.sinceMet++
	t.twinAP.accepted(now, h)
}

func (t *twinXATB) refused(now float64, n int, h hint) {
	t.counts.Sent++
	t.counts.Refused++
	t.lastCong, t.alarm, t.due = now, true, now
	t.met, t.sinceMet = true, 0
	if !t.fresh(now) {
		t.congested = true
		t.twinAP.refused(now, n, h)
		return
	}
	t.begin(now)
	t.hold = now + (2+2*t.random())/t.known.PerSecond
	t.base = t.hold
}

func (t *twinXATB) concurrent() int {
	if !t.met {
		return 0
	}
	return 1 + t.sinceMet/8
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
	if r.Congested = t.alarm; t.congested {
		r.Waiting = t.q
	}
	t.counts, t.alarm, t.named, t.reported = report{}, false, r.Waiting, now
	return &r
}

func (t *twinXATB) told(now float64, a aggregate) {
	t.lastTold, t.known = now, a
	if a.Waiting <= 1 {
		t.congested = t.congested && (a.Partial || now < t.hold)
		return
	}
	heard := a.LastRefusal >= 0 && a.LastRefusal <= 3*omega
	if heard && (!t.gated || now-t.lastCong <= 2*omega) {
		t.begin(now)
	}
}
