package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
)

// ParseRule reads a rule that is written in one line: its endpoint, its limit, and, in any order, what is left to
// say.
//
//	GET /v1/reports/{report} 2/h           two an hour for each caller
//	POST /v1/login 5/min burst 10 by ip    the burst, and whose requests share a bucket (Subject)
//	GET /v1/reports/{report} 3 at once     how many may be under way, beside a rate (Concurrency)
//	POST /v1/login 5/min counting 401,403  which answers count (Answers)
//	default 1000/15m shadow                a time of one's own; counts, and denies nobody
//	GET /health allow                      no limit; or block
//	* block by ip:192.0.2.0/24             for one network or caller (Rule.SetSubject)
//
// The time is s, min (or m), h or d, with a whole number before it or none (15min). What a rule
// may be beyond that, Compile checks. The error says everything that is wrong with the text, and quotes it.
func ParseRule(text string) (Rule, error) {
	fields := strings.Fields(text)
	words := 2 // a method and a path
	if len(fields) > 0 && slices.Contains([]string{Default, UnknownEndpoint, All}, fields[0]) {
		words = 1
	}
	if len(fields) <= words {
		return Rule{}, fmt.Errorf(`rule %q: want an endpoint and a limit, such as "GET /v1/items/{id} 20/s"`, text)
	}
	r := Rule{Endpoint: strings.Join(fields[:words], " ")}
	var errs []error
	if words == 2 {
		if _, err := endpoint.ParseTemplate(r.Endpoint); err != nil {
			errs = append(errs, err)
		}
	}
	rest := fields[words+1:]
	atOnce := len(rest) > 1 && rest[0] == "at" && rest[1] == "once"
	if atOnce {
		rest = rest[2:]
		if err := r.setAtOnce(fields[words]); err != nil {
			errs = append(errs, err)
		}
	} else if err := r.setRate(fields[words]); err != nil {
		errs = append(errs, err)
	}
	if err := r.parseWords(rest); err != nil {
		errs = append(errs, err)
	}
	if atOnce {
		r.count(CountsUnderWay)
	} else if r.Mode.Limits() && r.Subject.underWay() {
		errs = append(errs, fmt.Errorf("limit is %q, want \"%d at once by %s\", or a subject without in_flight: for "+
			"a rate", fields[words], r.Limit, r.Whose()))
	}
	if len(errs) > 0 {
		return Rule{}, fmt.Errorf("rule %q: %w", text, errors.Join(errs...))
	}
	return r, nil
}

// setAtOnce reads how many requests may be under way at once.
func (r *Rule) setAtOnce(written string) error {
	n, err := strconv.ParseInt(written, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf(`limit is %q, want a whole number of 1 or more before "at once", such as "20 at once"`, written)
	}
	r.Limit = n
	return nil
}

// setRate reads a limit, or what stands in its place.
func (r *Rule) setRate(written string) (err error) {
	switch written {
	case Allow.String():
		r.Mode = Allow
	case Block.String():
		r.Mode = Block
	default:
		r.Limit, r.Per, err = ParseLimit(written)
	}
	return err
}

// parseWords reads what stands behind the limit.
func (r *Rule) parseWords(fields []string) error {
	var errs []error
	seen := map[string]bool{}
	for len(fields) > 0 {
		word, value := fields[0], ""
		fields = fields[1:]
		if word == "burst" || word == "by" || word == "counting" {
			if len(fields) == 0 {
				errs = append(errs, fmt.Errorf("%s is the last word, want its value behind it", word))
				break
			}
			value, fields = fields[0], fields[1:]
		}
		if seen[word] {
			errs = append(errs, fmt.Errorf("%s stands twice, want it once", word))
		}
		seen[word] = true
		switch word {
		case "burst":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				errs = append(errs, fmt.Errorf("burst is %q, want a whole number of 1 or more", value))
			}
			r.Burst = n
		case "counting":
			if err := r.CountWhen.UnmarshalText([]byte(value)); err != nil {
				errs = append(errs, err)
			}
		case "by":
			if err := r.SetSubject(value); err != nil {
				errs = append(errs, err)
			}
		case "shadow":
			if !r.Mode.Limits() {
				errs = append(errs, fmt.Errorf("shadow stands behind %v, want one of the two", r.Mode))
				break
			}
			r.Mode = Shadow
		default:
			errs = append(errs,
				fmt.Errorf("%q means nothing here, want burst and a number, by and a subject, counting and "+
					"statuses, or shadow", word))
		}
	}
	return errors.Join(errs...)
}

// units are the times that a limit may be for.
var units = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// times reads a whole number of one unit, such as "15min".
func times(text string) (time.Duration, bool) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	n, err := strconv.ParseInt(text[:digits], 10, 32)
	unit, ok := units[text[digits:]]
	d := time.Duration(n) * unit
	return d, ok && err == nil && n > 0 && d/unit == time.Duration(n)
}

// ParseDuration reads "30d" and "15min", as the times of limits are written, and what time.ParseDuration reads.
func ParseDuration(text string) (time.Duration, error) {
	if d, ok := times(text); ok {
		return d, nil
	}
	return time.ParseDuration(text)
}

// ParseLimit reads "20/s" or "1000/15min", as in ParseRule.
func ParseLimit(text string) (limit int64, per time.Duration, err error) {
	wrong := fmt.Errorf(`limit is %q, want a whole number of 1 or more and a time, such as "20/s", "5/min" or "1000/15min"`, text)
	number, of, ok := strings.Cut(text, "/")
	if limit, err = strconv.ParseInt(number, 10, 64); err != nil || !ok || limit < 1 {
		return 0, 0, wrong
	}
	if _, one := units[of]; one {
		of = "1" + of
	}
	if per, ok = times(of); !ok {
		return 0, 0, wrong
	}
	return limit, per, nil
}
