package charge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // whatever the machine has

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func byCalendar(t testing.TB, zone string, limit int64, per time.Duration) policy.Rule {
	t.Helper()
	r := policy.Rule{Endpoint: "GET /a", Limit: limit, Per: per}
	if err := r.Algorithm.UnmarshalText([]byte("calendar:" + zone)); err != nil {
		t.Fatal(err)
	}
	return r
}

func moment(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestBudgetOfADay goes through the nights in which clocks change, to the nanosecond.
func TestBudgetOfADay(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{byCalendar(t, "Europe/Zurich", 2, 24*time.Hour)})
	for _, step := range []struct {
		at    string
		want  bool
		retry time.Duration
	}{
		{"2026-03-28T22:59:59.999999999Z", true, 0},
		{"2026-03-28T22:59:59.999999999Z", true, 0},
		{"2026-03-28T22:59:59.999999999Z", false, 1},
		{"2026-03-28T23:00:00Z", true, 0}, // midnight in Zurich, of a day of 23 hours
		{"2026-03-29T01:30:00Z", true, 0},
		{"2026-03-29T01:30:00Z", false, 20*time.Hour + 30*time.Minute},
		{"2026-03-29T21:59:59.999999999Z", false, 1},
		{"2026-03-29T22:00:00Z", true, 0},
		{"2026-10-24T22:00:00Z", true, 0}, // of a day of 25 hours
		{"2026-10-25T00:30:00Z", true, 0}, // half past two, and an hour later again
		{"2026-10-25T01:30:00Z", false, 21*time.Hour + 30*time.Minute},
		{"2026-10-25T22:59:59.999999999Z", false, 1},
		{"2026-10-25T23:00:00Z", true, 0},
		{"2028-02-29T12:00:00Z", true, 0},
	} {
		b.Now = moment(t, step.at)
		d := b.Get("/a")
		if d.Allowed != step.want || d.RetryAfter != step.retry {
			t.Errorf("%s: allowed %v, retry after %v, want %v, %v", step.at, d.Allowed, d.RetryAfter,
				step.want, step.retry)
		}
	}
}

// TestCalendarBudgetsAgainstTheirTwin counts in a map by what a clock on the wall shows.
func TestCalendarBudgetsAgainstTheirTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 5))
	for range race.Fewer(60) {
		zone := []string{"Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
			"UTC"}[random.IntN(5)]
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		form := []string{"2006-01-02", "week", "2006-01"}[random.IntN(3)]
		per := map[string]time.Duration{
			"2006-01-02": 24 * time.Hour,
			"week":       168 * time.Hour,
			"2006-01":    720 * time.Hour,
		}[form]
		limit := 1 + random.Int64N(4)
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{byCalendar(t, zone, limit, per)})
		b.Now = time.Date(2026, 1, random.IntN(300), random.IntN(24), 0, 0, 0, time.UTC)
		used := map[string]int64{}
		for range 200 {
			b.Now = b.Now.Add(time.Duration(random.Int64N(int64(per) / 3)))
			shows := b.Now.In(location).Format(form)
			if form == "week" {
				year, week := b.Now.In(location).ISOWeek()
				shows = fmt.Sprint(year, " ", week)
			}
			cost := 1 + random.Int64N(2)
			want := used[shows]+cost <= limit
			if d := b.Take(cost); d.Allowed != want && cost <= limit {
				t.Fatalf("%d of %d by %v of %s at %v: allowed %v, want %v with %d used", cost, limit, per, zone, b.Now,
					d.Allowed, want, used[shows])
			} else if !d.Allowed && d.RetryAfter > 0 && cost <= limit {
				later := b.Now.Add(d.RetryAfter).In(location)
				if before := later.Add(-1); later.Format("15:04:05.999999999") != "00:00:00" &&
					before.YearDay() == later.YearDay() {
					t.Fatalf("retry at %v, want midnight", later)
				}
			}
			if want {
				used[shows] += cost
			}
		}
	}
}

// changing are Policies that change.
type changing struct{ set *policy.Set }

func (c *changing) Set() *policy.Set { return c.set }

// TestCalendarBudgetOutlivesItsLimit: within a day what was used stays used when the limit changes, is given back by
// Settle, and is gone on the next day.
func TestCalendarBudgetOutlivesItsLimit(t *testing.T) {
	p := &changing{}
	load := func(b *endpoint.Table, limit int64, at time.Time) {
		set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{byCalendar(t, "Europe/Zurich", limit,
			24*time.Hour)}},
			policy.CompileOptions{Endpoints: b, Now: at, Previous: p.set})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		p.set = set
	}
	b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies = p })
	b.Now = moment(t, "2026-10-25T08:00:00Z")
	load(b.Table, 10, b.Now)
	left := func(want int64) {
		t.Helper()
		if got := b.TokensLeft(); got != want {
			t.Errorf("at %v: %d left, want %d", b.Now, got, want)
		}
	}
	b.Take(6)
	left(4)
	b.Now = b.Now.Add(time.Hour)
	load(b.Table, 8, b.Now)
	left(2)
	load(b.Table, 20, b.Now)
	left(14)
	held := b.MustReserve(t, 10)
	left(4)
	b.MustSettle(t, held.ID, 1)
	left(13)
	held = b.MustReserve(t, 10)
	b.Now = moment(t, "2026-10-25T23:00:00Z")
	left(20)
	b.MustSettle(t, held.ID, 1)
	left(20) // what was yesterday's gives nothing today
}

// TestCalendarGoesByTheWall: buckets go by a clock that never steps, and days by that on the wall,
// also when it was set.
func TestCalendarGoesByTheWall(t *testing.T) {
	table := trial.Compile(t, []string{"GET /a"})
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{byCalendar(t, "Europe/Zurich", 3,
		24*time.Hour)}}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	store, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	who := identity.Principal{Kind: identity.LoggedIn, ID: "ann"}
	planner := charge.New(charge.Options{})
	for n, step := range []struct {
		now, wall string
		want      bool
		retry     time.Duration
	}{
		{"2026-05-01T12:00:00Z", "2026-05-01T18:00:00Z", true, 0},
		{"2026-05-01T12:00:01Z", "2026-05-01T18:00:01.5Z", true, 0}, // slewed
		{"2026-05-01T12:00:02Z", "2026-05-01T17:00:02Z", true, 0},   // set back by an hour
		{"2026-05-01T12:00:03Z", "2026-05-01T17:00:03Z", false, 4*time.Hour + 59*time.Minute + 57*time.Second},
		{"2026-05-01T16:59:59Z", "2026-05-01T21:59:59Z", false, time.Second},
		{"2026-05-01T17:00:00Z", "2026-05-01T22:00:00Z", true, 0}, // midnight in Zurich
	} {
		p := &charge.Plan{Request: charge.Request{
			Set: set, Now: moment(t, step.now).UnixNano(), Wall: moment(t, step.wall).UnixNano(),
			Match: table.Match("GET", "/a"), Endpoints: table, Who: &who, Cost: 1,
		}}
		planner.Plan(p)
		outs := make([]bucket.Outcome, len(p.Takes))
		ok, err := store.TryConsume(context.Background(), p.Now, p.Takes, outs)
		if err != nil || ok != step.want || outs[0].RetryAfter != step.retry {
			t.Errorf("step %d: allowed %v, retry after %v, %v, want %v, %v", n, ok, outs[0].RetryAfter, err,
				step.want, step.retry)
		}
	}
}

func TestCalendarAllocatesNothing(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{byCalendar(t, "Europe/Zurich", 1<<30, 24*time.Hour)})
	b.Get("/a")
	if n := testing.AllocsPerRun(100, func() { b.Get("/a") }); n >= trial.Allocations {
		t.Errorf("Check allocates %v times, want 0", n)
	}
}
