package adaptive_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func TestJudgeAtOnce(t *testing.T) {
	const slo = time.Second
	for _, c := range []struct {
		p    int
		w    adaptive.Window
		want int
	}{
		{1000, adaptive.Window{Usual: 300 * time.Millisecond}, 1000},
		{1000, adaptive.Window{Usual: 300 * time.Millisecond, Full: 1}, 1010},
		{1020, adaptive.Window{Full: 1}, adaptive.Whole},
		{1000, adaptive.Window{Usual: 500 * time.Millisecond}, 960},
		{1000, adaptive.Window{Usual: time.Hour}, 900},
		{1000, adaptive.Window{Failing: true}, 900},
		{110, adaptive.Window{Usual: time.Hour}, 100},
	} {
		if got := adaptive.JudgeAtOnce(c.p, 100, c.w, slo); got != c.want {
			t.Errorf("JudgeAtOnce(%d, 100, %+v) = %d, want %d", c.p, c.w, got, c.want)
		}
	}
}

// TestRequestsUnderWayFollowTheAPI: fewer are while it is slow, one at least, where that is asked for and the places
// are of this process and this endpoint; and all again when nothing is known of it any more.
func TestRequestsUnderWayFollowTheAPI(t *testing.T) {
	places := func(b *trial.Bench) (n int) {
		for b.Get("/a").Allowed {
			n++
		}
		return n
	}
	for name, c := range map[string]struct {
		endpoint string
		scope    policy.Scope
		follows  bool
		limit    int64
		want     int
	}{
		"follows":                {"GET /a", policy.Local, true, 10, 5},
		"the default":            {policy.Default, policy.Local, true, 10, 5},
		"one":                    {"GET /a", policy.Local, true, 1, 1},
		"does not":               {"GET /a", policy.Local, false, 10, 10},
		"all endpoints together": {policy.All, policy.Local, true, 10, 10},
		"shared":                 {"GET /a", policy.Strict, true, 10, 10},
	} {
		rule := policy.Rule{Endpoint: c.endpoint, Limit: c.limit, Scope: c.scope}
		if err := rule.SetSubject("in_flight:principal"); err != nil {
			t.Fatal(err)
		}
		table := &adaptive.Table{}
		b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{rule},
			func(o *headgate.Options) { o.Adaptive = table })
		s := adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 2, AtOnce: c.follows}
		table.Use(map[string]adaptive.Settings{"GET /a": s}, b.Now.UnixNano())
		at := table.Named("GET /a")
		for range 10 {
			for n := range uint64(60) {
				at.Sent(b.Now.UnixNano(), n)
				at.Answered(b.Now.UnixNano(), n, 2*time.Second, false)
			}
			b.Now = b.Now.Add(2 * time.Second)
		}
		x := b.Explain(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
		if places := x.Buckets[0].Places; places != int64(c.want) && (places != 0 || int64(c.want) != c.limit) {
			t.Errorf("%s: explain tells of %d places, want %d", name, places, c.want)
		}
		if got := places(b); got != c.want {
			t.Errorf("%s: %d at once, want %d", name, got, c.want)
		}
		if b.Now = b.Now.Add(200 * time.Second); places(b) != int(c.limit) {
			t.Errorf("%s: fewer than %d at once when nothing is known of the API", name, c.limit)
		}
	}
}

// TestOneCallerLowersNobodysNumber: half of the callers, or fewer, are slow and fail, and the number stays.
func TestOneCallerLowersNobodysNumber(t *testing.T) {
	table, now := &adaptive.Table{}, int64(time.Hour)
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: 1, AtOnce: true}}, now)
	at := table.Named("GET /a")
	for range 20 {
		for n := range uint64(120) {
			bad := n%4 < 2
			at.Sent(now, n%4)
			at.Answered(now, n%4, map[bool]time.Duration{true: time.Minute, false: time.Millisecond}[bad], bad)
		}
		now += int64(2 * time.Second)
	}
	if s := at.Status(now); s.AtOnce != adaptive.Whole {
		t.Errorf("it is lowered to %d by half of the callers", s.AtOnce)
	}
}
