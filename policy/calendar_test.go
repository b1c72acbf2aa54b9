package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // whatever the machine has

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
)

var pers = map[string]time.Duration{"day": 24 * time.Hour, "week": 168 * time.Hour, "month": 720 * time.Hour}

// calendarRule compiles a rule by the calendar of a zone.
func calendarRule(t testing.TB, zone, per string) *policy.Set {
	t.Helper()
	r := policy.Rule{Endpoint: policy.Default, Limit: 5, Per: pers[per]}
	if err := r.Algorithm.UnmarshalText([]byte("calendar:" + zone)); err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{r}}, policy.CompileOptions{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestPeriods(t *testing.T) {
	for _, c := range []struct{ zone, per, at, begin, end string }{
		{"UTC", "day", "2026-03-29T00:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		{"UTC", "day", "2026-03-28T23:59:59Z", "2026-03-28T00:00:00Z", "2026-03-29T00:00:00Z"},
		// 23 and 25 hours
		{"Europe/Zurich", "day", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Zurich", "day", "2026-10-25T00:30:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"Europe/Zurich", "week", "2026-10-25T22:59:59Z", "2026-10-18T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"Europe/Zurich", "week", "2026-10-25T23:00:00Z", "2026-10-25T23:00:00Z", "2026-11-01T23:00:00Z"},
		{"Europe/Zurich", "month", "2026-03-31T21:59:59Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"Europe/Zurich", "month", "2026-12-31T22:59:59Z", "2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z"},
		// leap days
		{"Europe/Zurich", "day", "2028-02-29T12:00:00Z", "2028-02-28T23:00:00Z", "2028-02-29T23:00:00Z"},
		{"UTC", "month", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"UTC", "month", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		// half an hour of daylight saving
		{"Australia/Lord_Howe", "day", "2026-04-04T20:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		// no midnight: clocks go from 0 to 1
		{"Africa/Cairo", "day", "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		// midnight twice: clocks go from 1 back to 0
		{"America/Havana", "day", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// back over midnight, at one minute past: the day has begun with the first
		{"America/St_Johns", "day", "2009-11-01T02:30:30Z", "2009-11-01T02:30:00Z", "2009-11-02T03:30:00Z"},
		{"America/St_Johns", "day", "2009-11-01T03:00:00Z", "2009-11-01T02:30:00Z", "2009-11-02T03:30:00Z"},
		// a day that was left out
		{"Pacific/Apia", "day", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", "day", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := calendarRule(t, c.zone, c.per).Period(0, at.UnixNano())
		got := [2]string{time.Unix(0, begin).UTC().Format(time.RFC3339), time.Unix(0, end).UTC().Format(time.RFC3339)}
		if got != [2]string{c.begin, c.end} {
			t.Errorf("the %s of %s in %s is %v, want from %s to %s", c.per, c.at, c.zone, got, c.begin, c.end)
		}
	}
}

// TestPeriodsAgainstTheirTwin goes through time minute by minute and looks at what clocks have shown at most so far.
func TestPeriodsAgainstTheirTwin(t *testing.T) {
	zones := []string{"UTC", "Europe/Zurich", "America/New_York", "America/St_Johns", "America/Havana", "Africa/Cairo",
		"Asia/Kathmandu", "Asia/Beirut",
		"Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham", "America/Sao_Paulo", "Asia/Gaza", "Antarctica/Troll",
		"Pacific/Kiritimati"}
	random := rand.New(rand.NewPCG(16, 3))
	for range race.Fewer(400) {
		name := zones[random.IntN(len(zones))]
		location, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(1975, 1, 1, 0, random.IntN(60*24*365*60), random.IntN(60), 0, time.UTC)
		if random.IntN(2) == 0 { // near a change of clocks
			if _, change := at.In(location).ZoneBounds(); !change.IsZero() {
				at = change.Add(time.Duration(random.IntN(6*3600)-3*3600) * time.Second)
			}
		}
		shown := func(m time.Time) string { return m.In(location).Format("2006-01-02") }
		var begin, end, most string
		for m := at.Truncate(time.Minute).Add(-60 * time.Hour); end == ""; m = m.Add(time.Minute) {
			if day := shown(m); day > most {
				if most = day; m.After(at) {
					end = m.UTC().Format(time.RFC3339)
				} else {
					begin = m.UTC().Format(time.RFC3339)
				}
			}
		}
		b, e := calendarRule(t, name, "day").Period(0, at.UnixNano())
		if got := [2]string{time.Unix(0, b).UTC().Format(time.RFC3339),
			time.Unix(0, e).UTC().Format(time.RFC3339)}; got != [2]string{begin, end} {
			t.Errorf("the day of %s in %s is %v, want from %s to %s", at.Format(time.RFC3339), name, got, begin, end)
		}
		// Weeks and months are days one after the other, and a moment of each has the same.
		for _, per := range []string{"week", "month"} {
			set := calendarRule(t, name, per)
			from, to := set.Period(0, at.UnixNano())
			first, last := time.Unix(0, from).In(location), time.Unix(0, to).In(location)
			if b < from || to < e || per == "week" && first.Add(3*time.Hour).Weekday() != time.Monday ||
				per == "month" && (first.Add(3*time.Hour).Day() != 1 || last.Add(3*time.Hour).Day() != 1) {
				t.Errorf("the %s of %s in %s is from %v to %v", per, at.Format(time.RFC3339), name, first, last)
			}
			if next, _ := set.Period(0, to); next != to {
				t.Errorf("the %s after %v in %s does not follow", per, last, name)
			}
			if before, until := set.Period(0, from-1); until != from || before >= from {
				t.Errorf("the %s before %v in %s does not lead to it", per, first, name)
			}
		}
	}
}

func TestCalendarIsReadAndChecked(t *testing.T) {
	read := func(text string) (a policy.Algorithm, err error) { return a, a.UnmarshalText([]byte(text)) }
	for _, text := range []string{"calendar", "calendar:Europe/Zurich", "calendar:America/Argentina/Buenos_Aires"} {
		a, err := read(text)
		if again, err2 := a.MarshalText(); err != nil || err2 != nil || string(again) != text || !a.OnCalendar() {
			t.Errorf("%s reads as %v, %v", text, a, err)
		}
	}
	if a, err := read("calendar:UTC"); err != nil || a != policy.Calendar {
		t.Errorf("calendar:UTC is %v, %v, want calendar", a, err)
	}
	for _, text := range []string{"calendar:", "calendar:Local", "calendar:Mars/Olympus", "calendar: UTC",
		"calendar:../etc/passwd", "calendars"} {
		if _, err := read(text); err == nil {
			t.Errorf("%q is read, want it refused", text)
		}
	}
	zurich, _ := read("calendar:Europe/Zurich")
	base := policy.Rule{Endpoint: policy.Default, Limit: 5, Per: 24 * time.Hour, Algorithm: zurich}
	for want, change := range map[string]func(*policy.Rule){
		"per is 1h, want 24h for a day":                  func(r *policy.Rule) { r.Per = time.Hour },
		"per is 1s, want 24h for a day":                  func(r *policy.Rule) { r.Per = 0 },
		"burst is 9, want none, because a calendar":      func(r *policy.Rule) { r.Burst = 9 },
		`scope is "strict", want "local", because a cal`: func(r *policy.Rule) { r.Scope = policy.Strict },
		`scope is "split", want "local", because a cal`:  func(r *policy.Rule) { r.Scope = policy.Split },
		"algorithm is 254, want":                         func(r *policy.Rule) { r.Algorithm = 254 },
	} {
		r := base
		change(&r)
		if _, problems := policy.Compile(policy.Document{Rules: []policy.Rule{r}},
			policy.CompileOptions{}); !strings.Contains(fmt.Sprint(problems), want) {
			t.Errorf("%+v: %v, want %q", r, problems, want)
		}
	}
	for per, length := range pers {
		r := base
		r.Per = length
		if got := r.Rate(); got != "5 per "+per {
			t.Errorf("the rate is %q, want 5 per %s", got, per)
		}
	}
	utc := base
	utc.Algorithm = policy.Calendar
	if a, b := (policy.Document{Rules: []policy.Rule{base}}),
		(policy.Document{Rules: []policy.Rule{utc}}); a.Fingerprint() == b.Fingerprint() {
		t.Error("two zones have one fingerprint")
	}
}
