package adaptive_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

// TestWhoFollowsLowersTheSame: a table that follows another one's changes lowers rates as that one does, at any time,
// until the endpoint leaves it.
func TestWhoFollowsLowersTheSame(t *testing.T) {
	var follower adaptive.Table
	last := int64(0)
	leader := adaptive.Table{Changed: func(c adaptive.Change) {
		if c.At < last || c.Since > c.At {
			t.Errorf("%+v after one at %d", c, last)
		}
		last = c.At
		follower.Follow(c)
	}}
	const at = "GET /a"
	now := int64(time.Hour)
	leader.Use(map[string]adaptive.Settings{at: {SLO: time.Second, Floor: adaptive.Whole / 10}}, now)
	leads := leader.Named(at)
	same := func() (lowered bool) {
		want, got := leads.Lowered(now), follower.Named(at)
		if got == nil {
			return want.Own != nil || want.Shared != nil
		}
		is := got.Lowered(now)
		for from := now - int64(time.Minute); from < now; from += int64(time.Second) {
			if is.Own.Elapsed(from, now) != want.Own.Elapsed(from, now) || is.Own.Part() != want.Own.Part() ||
				is.Shared.Elapsed(from, now) != want.Shared.Elapsed(from, now) {
				t.Fatalf("at %d: %v and %v, want %v and %v", now, is.Own, is.Shared, want.Own, want.Shared)
			}
		}
		return want.Own.Part() < adaptive.Whole
	}
	were := 0
	for n := range 400 {
		for caller := range uint64(60) {
			if n%100 > 50 {
				break // silence
			}
			leads.Sent(now, caller)
			leads.Answered(now, caller, time.Duration(1+n%2)*time.Second, false)
		}
		now += int64(2 * time.Second)
		if same() {
			were++
		}
	}
	if were < 100 {
		t.Errorf("it was lowered %d times: that shows little", were)
	}
	if !same() {
		for range 3 {
			for caller := range uint64(60) {
				leads.Sent(now, caller)
				leads.Answered(now, caller, 2*time.Second, false)
			}
			now += int64(2 * time.Second)
		}
		leads.Lowered(now)
	}
	leader.Use(nil, now)
	if l := follower.Named(at).Lowered(now); l.Own != nil || l.Shared != nil {
		t.Errorf("%v is lowered for an endpoint that is none of the table", l)
	}
	for caller := range uint64(60) { // which were under way
		leads.Answered(now+int64(3*time.Second), caller, 2*time.Second, false)
	}
	leads.Lowered(now + int64(6*time.Second))
	if l := follower.Named(at).Lowered(now); l.Own != nil || l.Shared != nil {
		t.Errorf("%v is lowered by requests to one that has left", l)
	}
}
