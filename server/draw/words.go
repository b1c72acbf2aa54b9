package draw

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// about is the limit of a rule for people.
func about(r policy.Rule) string {
	text := r.Rate()
	if r.Algorithm.Counts().Drains() { // or a limit has no burst beside it
		text += ", burst " + count(r.Burst)
	}
	if r.Algorithm != policy.TokenBucket && r.Algorithm != policy.Concurrency {
		text += ", as a " + r.Algorithm.String()
	}
	return text + " for each " + r.Whose()
}

// sentence says what the picture comes to.
func (p *Picture) sentence() string {
	r := &p.rule
	limit, per, full := count(r.Limit), perOf(r), span(seconds(p.FullSeconds))
	rest := fmt.Sprintf("%s per %s", limit, per)
	if r.Limit > 1 && p.EachSeconds >= 1e-9 {
		rest += ", one every " + span(seconds(p.EachSeconds))
	}
	switch {
	case r.Algorithm == policy.Concurrency:
		return fmt.Sprintf("%s under way at once, however long each takes; the place of one whose process has died is "+
			"free again after %s.", limit, span(r.Kept()))
	case r.Algorithm.OnCalendar():
		return fmt.Sprintf("%s in each %s of the calendar of %s, all at once if the caller likes, and %s more as "+
			"soon as the next one begins; what is not used by then is lost.",
			limit, per, r.Algorithm.Zone(), limit)
	case r.Algorithm.Counts() == rate.FixedWindow:
		return fmt.Sprintf("%s in each window of %s, all at once if the caller likes, so %s within a moment where "+
			"two windows meet; silence saves up nothing beyond that.",
			limit, span(r.Per), count(2*r.Limit))
	case r.Algorithm.Counts() == rate.SlidingWindow:
		return fmt.Sprintf("%s at once after a silence of up to %s; then what was used comes back little by "+
			"little, %s per %s in the long run, and at worst %s within %s.",
			limit, span(2*r.Per), limit, per, count(2*r.Limit), span(r.Per))
	case r.Algorithm.Counts() == rate.SlidingLog:
		return fmt.Sprintf("%s at once, and never more than %s within any %s: each comes back that long after it "+
			"was used, or up to %s later.",
			limit, limit, span(r.Per), span(r.Per/25))
	case r.Algorithm.Counts() == rate.LeakyBucket:
		return fmt.Sprintf("%s are taken in at once, and go on one after the other, %s in the first second: %s, "+
			"however they come; after %s of silence the line is empty.",
			count(p.AtOnce), count(p.FirstSecond), rest, full)
	}
	first := count(p.AtOnce) + " at once after a silence"
	if p.FirstSecond > p.AtOnce {
		first += fmt.Sprintf(", %s in the first second", count(p.FirstSecond))
	} else {
		first += ", and no more in the first second"
	}
	return fmt.Sprintf("%s; then %s; %s of silence and the bucket is full again.", first, rest, full)
}

// perOf names the time of a limit.
func perOf(r *policy.Rule) string {
	switch r.Per {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	case 7 * 24 * time.Hour:
		return "week"
	case 30 * 24 * time.Hour:
		if r.Algorithm.OnCalendar() {
			return "month"
		}
	}
	return span(r.Per)
}

// count writes a number with a comma before each three digits.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// span writes a time to about three digits: "200ms", "1.5s", "1h30m", "7 days".
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return strconv.FormatFloat(float64(d.Round(day/10))/float64(day), 'f', -1, 64) + " days"
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	}
	text := d.String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	if whole, ok := strings.CutSuffix(text, "h0m"); ok {
		text = whole + "h"
	}
	return text
}
