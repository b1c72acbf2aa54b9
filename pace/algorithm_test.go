package pace_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

const second = time.Second

func fixed(v float64) func() float64 { return func() float64 { return v } }

// The bound of UB is 2^n - 1 seconds until it reaches a number drawn once.
func TestUB(t *testing.T) {
	p := pace.UB{}.Start(0, fixed(0.5)) // the bound is never above 32 s
	for n, want := range map[int]time.Duration{
		1:  550 * time.Millisecond,
		2:  1550 * time.Millisecond,
		5:  15550 * time.Millisecond,
		6:  16050 * time.Millisecond,
		60: 16050 * time.Millisecond,
	} {
		p.Refused(100*second, n, pace.Hint{})
		if got := p.Next(100*second) - 100*second; got != want {
			t.Errorf("wait after refusal %d is %v, want %v", n, got, want)
		}
	}
}

// WB counts successes, or every attempt as the paper's text has it.
func TestWB(t *testing.T) {
	for profile, want := range map[pace.Profile]time.Duration{pace.Corrected: 10 * second,
		pace.Published: 61 * second} {
		p := pace.WB{PerMinute: 2, Profile: profile}.Start(0, fixed(0))
		p.Sent(1 * second)
		p.Accepted(2*second, pace.Hint{})
		p.Sent(3 * second)
		p.Refused(4*second, 1, pace.Hint{})
		if got := max(10*second, p.Next(10*second)); got != want {
			t.Errorf("profile %d: next at %v, want %v", profile, got, want)
		}
		p.Accepted(20*second, pace.Hint{})
		if got := p.Next(20 * second); profile == pace.Corrected && got != 62*second {
			t.Errorf("next after two successes at %v, want a minute after the first", got)
		}
	}
}

// ATB spends tokens, grows by a factor or a step, and is halved by a refusal.
func TestATB(t *testing.T) {
	p := pace.ATB{Bucket: 3, Rate: 0.5, Congested: 10, MaxRate: 100}.Start(0, fixed(0))
	if got := p.Next(0); got != 0 {
		t.Errorf("the first may be sent at %v, want at once", got)
	}
	p.Sent(0)
	if got := p.Next(0); got != 2*second {
		t.Errorf("the second may be sent at %v, want 2s", got)
	}
	p.Sent(2 * second)
	p.Accepted(2*second, pace.Hint{}) // 0.6 a second
	p.Refused(4*second, 1, pace.Hint{})
	if got, want := p.Next(4*second)-4*second, 3333333333*time.Nanosecond; math.Abs(float64(got-want)) > 1 {
		t.Errorf("wait after a refusal is %v, want %v", got, want)
	}
	for range 4 { // from an hour later on there are 3 tokens and no more
		p.Next(time.Hour)
		p.Sent(time.Hour)
	}
	if got := p.Next(time.Hour); got <= time.Hour {
		t.Error("4 requests may be sent at once, want 3")
	}
}

func TestATBIsBounded(t *testing.T) {
	p := pace.ATB{Rate: 1}.Start(0, fixed(0))
	for range 100 {
		p.Accepted(0, pace.Hint{})
	}
	p.Sent(0)
	if got := p.Next(0); got < 99*time.Millisecond {
		t.Errorf("wait is %v, want a tenth of a second: 10 times the first rate", got)
	}
	for range 1000 {
		p.Refused(0, 1, pace.Hint{})
	}
	if got := p.Next(0); got > 101*second {
		t.Errorf("wait after many refusals is %v, want at most the 100 s of the least rate", got)
	}
}

// AP doubles a pause after which nothing was served, and shortens one after which
// much was.
func TestAP(t *testing.T) {
	p := pace.AP{}.Start(0, fixed(0.5)) // exactly the pause
	pause := func(now time.Duration, served int) time.Duration {
		for range served {
			p.Accepted(now, pace.Hint{})
		}
		p.Refused(now, 1, pace.Hint{})
		return p.Next(now) - now
	}
	for i, c := range []struct {
		served int
		want   time.Duration
	}{{5, 30}, {0, 60}, {0, 90}, {0, 90}, {100, 60}, {100, 40}} {
		now := time.Duration(i+1) * 1000 * second
		if got := pause(now, c.served); got != c.want*second {
			t.Errorf("pause %d, after %d served, is %v, want %v", i, c.served, got, c.want*second)
		}
	}
	if got := p.Concurrent(); got != 1 {
		t.Errorf("%d at once after a pause, want 1 that tries", got)
	}
	for served := 1; served <= 80; served++ {
		p.Accepted(7000*second, pace.Hint{})
		if got, want := p.Concurrent(), 1+served/8; got != want {
			t.Errorf("%d at once after %d were served, want %d", got, served, want)
		}
	}
}

// Several that were under way together and are refused are one refusal.
func TestAPCountsAVolleyOnce(t *testing.T) {
	p := pace.AP{}.Start(0, fixed(0.5))
	for range 5 {
		p.Refused(second, 1, pace.Hint{})
	}
	if got := p.Next(second) - second; got != 30*second {
		t.Errorf("pause is %v, want the first one, 30s", got)
	}
}

// A slot is kept to the millisecond; any other wait is only a lower bound.
func TestAuto(t *testing.T) {
	p := pace.Auto{Pause: pace.AP{First: 4 * second}, Hints: pace.HATB{Jitter: -1}}.Start(0, fixed(0.5))
	if got := p.Concurrent(); got != 1 {
		t.Errorf("%d at once before the server said anything, want 1", got)
	}
	p.Refused(10*second, 1, pace.Hint{Wait: 250 * time.Millisecond, Slot: true, RoundTrip: 100 * time.Millisecond})
	if got := p.Next(10*second) - 10*second; got != 250*time.Millisecond {
		t.Errorf("wait for a slot is %v, want 250ms: nobody knows when in the round trip it was given", got)
	}
	slow := pace.HATB{Jitter: -1}.Start(0, fixed(0.5)) // the API behind the limiter took most of a minute
	slow.Accepted(60*second, pace.Hint{Wait: 58 * second, Slot: true, RoundTrip: 57 * second})
	if got := slow.Next(60*second) - 60*second; got != 2*second {
		t.Errorf("wait for a slot that was given 57 s ago is %v, want 2s of its 58", got)
	}
	if got := p.Concurrent(); got != 1 {
		t.Errorf("%d at once while nothing is left, want 1", got)
	}
	p.Accepted(11*second, pace.Hint{Remaining: 5})
	if got := p.Concurrent(); got != 5 {
		t.Errorf("%d at once while 5 are left, want 5", got)
	}
	p.Refused(20*second, 1, pace.Hint{Wait: 50 * time.Millisecond, Remaining: 0})
	if got := p.Next(20*second) - 20*second; got != 4*second {
		t.Errorf("wait is %v, want the pause of 4s: others were told the same 50 ms", got)
	}
	p.Refused(30*second, 1, pace.Hint{Wait: time.Minute, Remaining: 0})
	if got := p.Next(30*second) - 30*second; got != time.Minute {
		t.Errorf("wait is %v, want the minute that the server asked for", got)
	}
}
