package adaptive_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
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

// TestSettingsChangeAtAnyTime: whatever comes together, answers, silence, what others say, clocks that step
// and settings that change, each part is the floor that is asked for or more, and falls for what is seen
// alone; limits on how many are under way are whole where they do not follow; and decisions go by what the
// status says, as do those of a table that follows.
func TestSettingsChangeAtAnyTime(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(race.Fewer(200)) {
		rng := rand.New(rand.NewPCG(seed, 24))
		var follower adaptive.Table
		leader := adaptive.Table{Changed: follower.Follow}
		now, s := int64(time.Hour), adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 10, AtOnce: true}
		leader.Use(map[string]adaptive.Settings{name: s}, now)
		leads := leader.Named(name)
		busy, took := true, time.Duration(0)
		before := leads.Status(now)
		judged := func(of *adaptive.Status) (n uint64) {
			for _, windows := range of.Windows[adaptive.Held:] {
				n += windows
			}
			return n
		}
		for step := range 200 {
			switch n := rng.IntN(20); n {
			case 0:
				s.Floor, s.AtOnce = 1+rng.IntN(adaptive.Whole), rng.IntN(2) == 0
				if rng.IntN(3) == 0 {
					s.SLO = time.Duration(1+rng.IntN(3000)) * time.Millisecond
				}
				leader.Use(map[string]adaptive.Settings{name: s}, now)
			case 1:
				var others [][]byte
				for range rng.IntN(3) {
					others = append(others, at(t, 1+rng.IntN(adaptive.Whole)))
				}
				leader.Hear(now, others)
			case 2, 3:
				busy, took = rng.IntN(2) == 0, time.Duration(rng.IntN(3))*s.SLO/2
			case 4:
				now += rng.Int64N(int64(time.Minute))
			case 5:
				now -= rng.Int64N(int64(5 * time.Second))
			}
			if busy {
				for caller := range uint64(60) {
					leads.Sent(now, caller)
					leads.Answered(now, caller, took, false)
				}
				leads.Refused(true, true)
			}
			now += int64(max(time.Second, 2*s.SLO))
			is, lowered := leads.Status(now), leads.Lowered(now)
			least := s.Floor
			if !s.AtOnce {
				least = adaptive.Whole
			}
			if is.Multiplier < s.Floor || is.Multiplier > adaptive.Whole || is.Agreed < s.Floor ||
				is.Agreed > adaptive.Whole || is.AtOnce < least || is.AtOnce > adaptive.Whole {
				t.Fatalf("seed %d, step %d: %d, %d agreed, %d at once, with %+v", seed, step, is.Multiplier, is.Agreed,
					is.AtOnce, s)
			}
			if judged(&is) == judged(&before) &&
				(is.Multiplier < before.Multiplier || is.AtOnce < before.AtOnce) {
				t.Fatalf("seed %d, step %d: from %d and %d to %d and %d, for nothing that was seen", seed, step,
					before.Multiplier, before.AtOnce, is.Multiplier, is.AtOnce)
			}
			before = is
			if lowered.Own.Part() != is.Multiplier || lowered.Shared.Part() != is.Agreed ||
				lowered.AtOnce.Part() != is.AtOnce {
				t.Fatalf("seed %d, step %d: lowered to %d, %d and %d, and the status says %+v", seed, step,
					lowered.Own.Part(), lowered.Shared.Part(), lowered.AtOnce.Part(), is)
			}
			if one := follower.Named(name); one != nil {
				follows := one.Lowered(now)
				if follows.Own.Part() != is.Multiplier || follows.Shared.Part() != is.Agreed ||
					follows.AtOnce.Part() != is.AtOnce {
					t.Fatalf("seed %d, step %d: who follows lowers to %d, %d and %d, not to %+v", seed, step,
						follows.Own.Part(), follows.Shared.Part(), follows.AtOnce.Part(), is)
				}
			}
			for what, part := range map[string]int{"rates": is.Multiplier, "at once": is.AtOnce} {
				if part < adaptive.Whole {
					seen[what]++
				}
			}
		}
	}
	if !race.Enabled && (seen["rates"] < 1000 || seen["at once"] < 1000) {
		t.Errorf("lowered %v times: that shows little", seen)
	}
}

// TestWhoBeginsToListenHearsAll: to what all endpoints are lowered, and that of those of which another process has told
// no more is.
func TestWhoBeginsToListenHearsAll(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		var late adaptive.Table
		for name, own := range map[string]int{"GET /a": 300, "GET /b": 400, "GET /c": 500} { // before a restart
			late.Follow(adaptive.Change{Endpoint: name, At: 1, Since: 1, Own: own, Shared: own, AtOnce: own})
		}
		var hears func(adaptive.Change)
		table := adaptive.Table{KeepShared: keeps, Changed: func(c adaptive.Change) {
			if hears != nil {
				hears(c)
			}
		}}
		now, s := int64(time.Hour), adaptive.Settings{SLO: time.Second, Floor: 1, AtOnce: true}
		table.Use(map[string]adaptive.Settings{"GET /a": s, "GET /b": s}, now)
		for range 3 {
			for caller := range uint64(60) {
				table.Named("GET /a").Sent(now, caller)
				table.Named("GET /a").Answered(now, caller, 2*time.Second, false)
			}
			now += int64(2 * time.Second)
		}
		want := table.Named("GET /a").Lowered(now)
		hears = late.Follow
		table.Repeat(now)
		for name, want := range map[string]rate.Lowerings{"GET /a": want, "GET /b": {}, "GET /c": {}} {
			if got := late.Named(name).Lowered(now); got.Own.Part() != want.Own.Part() ||
				got.Shared.Part() != want.Shared.Part() || got.AtOnce.Part() != want.AtOnce.Part() {
				t.Errorf("of %s %d, %d and %d are heard, want %d, %d and %d", name, got.Own.Part(), got.Shared.Part(),
					got.AtOnce.Part(), want.Own.Part(), want.Shared.Part(), want.AtOnce.Part())
			}
		}
		if want.Own.Part() == adaptive.Whole || want.AtOnce.Part() == adaptive.Whole {
			t.Errorf("nothing is lowered: that shows little")
		}
	}
}
