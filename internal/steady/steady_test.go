package steady_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/steady"
)

var epoch = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

// TestSteps sets the wall clock forward and back: Now goes on evenly, and Wall learns of it at the next look.
func TestSteps(t *testing.T) {
	var elapsed, set time.Duration
	c := steady.Of(func() time.Duration { return elapsed }, func() time.Time { return epoch.Add(elapsed + set) })
	for _, step := range []struct {
		what           string
		at, set        time.Duration
		wantNow, wantW time.Duration // since epoch
	}{
		{"the beginning", 0, 0, 0, 0},
		{"a second", time.Second, 0, time.Second, time.Second},
		{"set forward by an hour, and not looked at yet", time.Second + 100*time.Millisecond, time.Hour,
			1100 * time.Millisecond, 1100 * time.Millisecond},
		{"looked at", 1250 * time.Millisecond, time.Hour, 1250 * time.Millisecond, time.Hour + 1250*time.Millisecond},
		{"set back by two hours", 2 * time.Second, -time.Hour, 2 * time.Second, -time.Hour + 2*time.Second},
		{"set right, after a long rest", 24 * time.Hour, 0, 24 * time.Hour, 24 * time.Hour},
	} {
		elapsed, set = step.at, step.set
		now := c.Now()
		if got := time.Duration(now - epoch.UnixNano()); got != step.wantNow {
			t.Errorf("%s: Now is %v after the beginning, want %v", step.what, got, step.wantNow)
		}
		if got := time.Duration(c.Wall(now) - epoch.UnixNano()); got != step.wantW {
			t.Errorf("%s: Wall is %v after the beginning, want %v", step.what, got, step.wantW)
		}
	}
}

// TestInjected: a test that gives one clock has one.
func TestInjected(t *testing.T) {
	now := epoch
	c := steady.New(func() time.Time { return now })
	now = now.Add(-time.Hour)
	if got := c.Now(); got != now.UnixNano() || c.Wall(got) != got {
		t.Errorf("Now = %d and Wall = %d, want both %d", got, c.Wall(got), now.UnixNano())
	}
}

// TestRealTime: without one, both are the wall clock's while nobody sets it.
func TestRealTime(t *testing.T) {
	before := time.Now()
	c := steady.New(nil)
	now := c.Now()
	after := time.Now()
	if now < before.UnixNano()-int64(time.Second) || now > after.UnixNano()+int64(time.Second) {
		t.Errorf("Now = %v, want between %v and %v", time.Unix(0, now), before, after)
	}
	if ahead := c.Wall(now) - now; ahead != 0 {
		t.Errorf("Wall is %v ahead of Now at the beginning, want 0", time.Duration(ahead))
	}
}
