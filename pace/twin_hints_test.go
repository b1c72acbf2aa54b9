package pace_test

import "math"

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
	t.until = math.Max(t.until, now-math.Max(0, h.RoundTrip-1)+h.Wait+0.05*t.random())
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
