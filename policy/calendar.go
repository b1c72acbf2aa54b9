package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// A rule with algorithm calendar counts by the day, the week (from Monday, ISO 8601) or the month of a time zone, as
// Per says: 24h, 168h or 720h. Its window is as long as the calendar says. In Europe/Zurich, where clocks go from 2 to
// 3 on 29 March 2026 and from 3 to 2 on 25 October:
//
//	day of 2026-03-29     2026-03-28T23:00:00Z to 2026-03-29T22:00:00Z    23 hours
//	day of 2026-10-25     2026-10-24T22:00:00Z to 2026-10-25T23:00:00Z    25 hours
//	month of 2028-02      2028-01-31T23:00:00Z to 2028-02-29T23:00:00Z    29 days

// The lengths that a rule by the calendar may have.
const (
	perDay   = 24 * time.Hour
	perWeek  = 7 * perDay
	perMonth = 30 * perDay
)

// zone is a time zone of an Algorithm.
type zone struct {
	name     string
	location *time.Location
	current  [3]atomic.Pointer[period] // the last one that was asked for, of a day, a week and a month
}

// zones are the time zones that rules have named in this process, by Algorithm from Calendar on. Their names are those
// of the time zone database and of Algorithm's width, so that there are never many.
var zones struct {
	sync.Mutex
	list atomic.Pointer[[]*zone]
}

func init() {
	zones.list.Store(&[]*zone{{name: "UTC", location: time.UTC}})
}

const calendarOf = "calendar:" // before the name of a zone, but for UTC

// OnCalendar reports whether a counts by the calendar of a time zone.
func (a Algorithm) OnCalendar() bool {
	return a >= Calendar && a != Concurrency && int(a-Calendar) < len(*zones.list.Load())
}

// Zone is the time zone whose calendar a counts by, or "".
func (a Algorithm) Zone() string {
	if !a.OnCalendar() {
		return ""
	}
	return (*zones.list.Load())[a-Calendar].name
}

// Counts is how buckets count under a.
func (a Algorithm) Counts() rate.Algorithm {
	if a == Concurrency {
		return rate.SlidingLog
	}
	if a >= Calendar {
		return rate.FixedWindow
	}
	return rate.Algorithm(a)
}

// calendarIn is the algorithm for the calendar of a zone.
func calendarIn(name string) (Algorithm, error) {
	location, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" || strings.TrimSpace(name) != name {
		return 0, fmt.Errorf(`a time zone behind "calendar:", such as "calendar:Europe/Zurich", or "calendar" for UTC`)
	}
	zones.Lock()
	defer zones.Unlock()
	list := *zones.list.Load()
	for i, z := range list {
		if z.name == name {
			return Calendar + Algorithm(i), nil
		}
	}
	if len(list) >= int(Concurrency-Calendar) {
		return 0, fmt.Errorf("one of the %d time zones that this process has met already", len(list))
	}
	list = append(slices.Clip(list), &zone{name: name, location: location})
	zones.list.Store(&list)
	return Calendar + Algorithm(len(list)-1), nil
}

// period is a day, week or month, in Unix nanoseconds. Its end is the beginning of the next.
type period struct{ begin, end int64 }

// Period is the day, week or month of a rule by the calendar that holds now, in Unix nanoseconds by the wall clock.
func (s *Set) Period(id RuleID, now int64) (begin, end int64) {
	r := &s.rows[id]
	return r.algorithm.period(s.limits[r.limit].Per, now)
}

func (a Algorithm) period(per time.Duration, now int64) (begin, end int64) {
	z := (*zones.list.Load())[a-Calendar]
	kept := &z.current[0]
	switch per {
	case perWeek:
		kept = &z.current[1]
	case perMonth:
		kept = &z.current[2]
	}
	if p := kept.Load(); p != nil && p.begin <= now && now < p.end {
		return p.begin, p.end
	}
	p := z.period(per, now)
	kept.Store(&p)
	return p.begin, p.end
}

func (z *zone) period(per time.Duration, now int64) period {
	year, month, day := time.Unix(0, now).In(z.location).Date()
	if z.dayBegins(year, month, day+1) <= now { // a clock went back over midnight, and the day had begun before
		day++
	}
	switch per {
	case perWeek:
		day -= (int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday()) + 6) % 7
		return period{z.dayBegins(year, month, day), z.dayBegins(year, month, day+7)}
	case perMonth:
		normal := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		year, month, _ = normal.Date()
		return period{z.dayBegins(year, month, 1), z.dayBegins(year, month+1, 1)}
	}
	return period{z.dayBegins(year, month, day), z.dayBegins(year, month, day+1)}
}

// dayBegins is the first moment at which clocks of the zone show a day, or a later one: midnight; or when clocks go
// from before midnight to after it, or a day is left out, that moment.
func (z *zone) dayBegins(year int, month time.Month, day int) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for at := midnight.Add(-27 * time.Hour); ; { // no zone is further from UTC, before or after a change
		local := at.In(z.location)
		_, offset := local.Zone()
		begins := midnight.Add(-time.Duration(offset) * time.Second)
		_, end := local.ZoneBounds()
		switch {
		case begins.Before(at):
			return at.UnixNano() // clocks went over midnight
		case end.IsZero() || begins.Before(end):
			return begins.UnixNano()
		}
		at = end
	}
}
